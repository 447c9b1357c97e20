// The worker store of the round that this node has joined or waits for.
//
// Each round gets a new socket and key space: the protocol carries no round, and a straggler of the
// old one would otherwise write among the new keys. With a fixed address (`static`) the port is the
// coordinator's and stays; connections come by Adopt, and those of the old round are closed.
//
// The port that other nodes are told is kept for the round, but nobody listens there before it is
// known by which addresses they will come: those alone answer then.
//
// Where the job has an identity no store is open to other hosts: workers find it on loopback at
// their own agent, which either serves it or leads to rank 0's agent in TLS.
//
// The rest is called on the agent's thread.
#ifndef DDPRUN_LAUNCHER_AGENT_ROUND_STORE_H_
#define DDPRUN_LAUNCHER_AGENT_ROUND_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/client/tunnels.h"
#include "rendezvous/core/types.h"
#include "rendezvous/server/port_listener.h"
#include "rendezvous/store/store_server.h"

namespace ddprun::launcher {

class RoundStore {
 public:
  enum class Reach {
    kNone,       // this node never serves a store: `static`, not node rank 0
    kThisHost,   // all workers are here
    kAllHosts,   // workers of other nodes connect too, to the addresses of BeReachedBy
    kOtherPort,  // connections come by Adopt
    kWorkers,    // rank 0's worker serves it, as the user wants: a port is kept for it
  };

  // The user's wish is TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; `static`, whose port is the agent's,
  // does not hear it, as in torchrun.
  static Reach ReachOf(const LaunchConfig& config, const Environment& environment);

  // `on_no_descriptor`: StoreServer::Options.
  explicit RoundStore(Reach reach, std::function<void()> on_no_descriptor = {})
      : reach_(reach), on_no_descriptor_(std::move(on_no_descriptor)) {}

  // From now on stores of other nodes are reached through these, and other nodes reach ours so.
  // REQUIRES: no round was open yet.
  void Secure(std::shared_ptr<rendezvous::Tunnels> tunnels) { tunnels_ = std::move(tunnels); }

  // Closes the store of the last round and opens the next one's.
  absl::Status Renew();
  void Close();
  // From now on other nodes reach this one by these of its addresses; empty: by any. Those by which
  // they reached the open round so far stay open, too. On any thread.
  absl::Status BeReachedBy(std::vector<std::string> hosts);
  // How the workers of this node reach the round's store.
  struct Way {
    std::string host;
    uint16_t port = 0;
    // What other nodes reach this one by, where `host` does not tell; empty: it does.
    std::string own_address;
  };
  // May take as long as the resolver. On any thread.
  absl::StatusOr<Way> WayTo(const rendezvous::Assignment& assignment);
  // Takes a connection that arrived at the coordinator's port, on any thread. Closed when no round
  // is open.
  void Adopt(UniqueFd connection);
  // Where other nodes find the current store, or a worker's; 0 when there is none.
  uint16_t port() const;
  bool is_workers() const { return reach_ == Reach::kWorkers; }

 private:
  // REQUIRES, all: mutex_ is held.
  absl::Status ListenForOthers();
  absl::Status OpenDoor(std::vector<UniqueFd> sockets);

  const Reach reach_;
  const std::function<void()> on_no_descriptor_;
  mutable std::mutex mutex_;
  std::shared_ptr<rendezvous::Tunnels> tunnels_;  // null: plain
  std::unique_ptr<rendezvous::StoreServer> server_;
  // Of the store, for other nodes in TLS: one for each time that their way changed.
  std::vector<std::unique_ptr<rendezvous::PortListener>> doors_;
  UniqueFd kept_port_;                                  // kAllHosts, kWorkers
  std::optional<std::vector<std::string>> reached_by_;  // nullopt: not known yet
  std::set<std::string> open_hosts_;                    // where the round's port answers
  bool is_open_everywhere_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_ROUND_STORE_H_
