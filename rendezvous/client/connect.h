// One agent's way into the rendezvous, whatever its backend: the function the launcher calls.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_CONNECT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CONNECT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/client/contact_core.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/client/tunnels.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

struct RendezvousOptions : ContactOptions {
  // Of a coordinator here (Coordinator::Options). kStatic on node_rank 0: on_store_connection gets
  // the workers' connections to the shared port, unread.
  std::string listen_host;  // an address of this host; empty: those that the endpoint names
  std::string run_dir;
  std::function<void(UniqueFd)> on_store_connection;
  std::function<void(const std::string&)> log_step;
  std::function<void(const std::string&)> on_file_lost;
  std::function<void()> on_no_descriptor;
  std::function<void(const std::string&)> on_refused;
  std::function<void(const std::string& host, const std::string& reason)> on_bad_node;
  // Told on the client's thread before a link is opened, and so before this node joins: by which of
  // its addresses others will reach this node from now on; empty: by any of them. Must not block.
  std::function<void(const std::vector<std::string>& hosts)> on_reached_by;
  Resolver resolver = ResolveName;
  // The ways to the other agents, by whose identity a coordinator here knows them; null: plain TCP,
  // and whoever reaches the port is believed.
  std::shared_ptr<Tunnels> tunnels;
  EtcdOptions etcd;  // kElected
};

// The client of one agent for its whole life. Returns at once and never fails: resolving names,
// binding and connecting happen on threads of the client, and what goes wrong comes as an event
// (RendezvousFailed, with the address and the cause). Where this agent hosts the coordinator the
// client owns it, and NodeInfo::is_endpoint_node is filled in.
// `clock` outlives the client, its link and the coordinator.
std::unique_ptr<RendezvousClient> ConnectRendezvous(RendezvousOptions options,
                                                    RendezvousClient::EventHandler handler,
                                                    const Clock& clock);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CONNECT_H_
