// One agent's way into the rendezvous, whatever its backend: the function the launcher calls.
#ifndef DDPRUN_RENDEZVOUS_SERVER_CONNECT_H_
#define DDPRUN_RENDEZVOUS_SERVER_CONNECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

struct RendezvousOptions {
  enum class Mode {
    kStandalone,  // everything in this process, no port, no gRPC
    kStatic,      // node_rank 0 hosts; nobody else binds
    kDynamic,     // c10d: whose host is the endpoint's hosts
  };
  Mode mode = Mode::kStandalone;
  // What a coordinator of ours would follow; run_id and join_timeout concern clients too.
  Policy policy;
  std::string endpoint_host;  // as the user wrote it, without brackets
  uint16_t endpoint_port = 0;
  // What a message calls the option that named the port.
  std::string endpoint_source = "--rdzv_endpoint";
  // What this node tells others to reach it by. A name must resolve here before it is told; an
  // address may be another machine's, of a relay say. Empty: nothing.
  std::string local_addr;
  std::string local_addr_source = "--local_addr";
  std::optional<bool> is_host;  // kDynamic: the user's own word on who hosts
  int node_rank = -1;           // kStatic: 0 hosts
  std::string run_dir;          // of the epoch file; empty: none
  // kStatic on node_rank 0: workers' connections to the shared port, unread (Coordinator::Options).
  std::function<void(UniqueFd)> on_store_connection;
  // Of a coordinator here (Coordinator::Options).
  std::function<void(const std::string&)> log_step;
  std::function<void()> on_no_descriptor;
};

// Returns at once and never fails: resolving names, binding and connecting happen on threads of the
// client, and what goes wrong comes as an event (RendezvousFailed, with the address and the cause).
// Where this agent hosts the coordinator the client owns it: NodeInfo::is_endpoint_node is filled
// in, and FlushAndStop after AckVerdict also waits, within its timeout, until the verdict is known
// to the other agents.
std::unique_ptr<RendezvousClient> ConnectRendezvous(RendezvousOptions options,
                                                    RendezvousClient::EventHandler handler);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CONNECT_H_
