// The worker store of the round that this node has joined or waits for.
//
// Each round gets a new socket and key space: the protocol carries no round, and a straggler of the
// old one would otherwise write among the new keys. With a fixed address (`static`) the port is the
// coordinator's and stays; connections come by Adopt, and those of the old round are closed. The
// rest is called on the agent's thread.
#ifndef DDPRUN_LAUNCHER_AGENT_ROUND_STORE_H_
#define DDPRUN_LAUNCHER_AGENT_ROUND_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"

namespace ddprun::launcher {

class RoundStore {
 public:
  enum class Reach {
    kNone,       // this node never serves a store: `static`, not node rank 0
    kThisHost,   // all workers are here
    kAllHosts,   // workers of other nodes connect too
    kOtherPort,  // connections come by Adopt
    kWorkers,    // rank 0's worker serves it, as the user wants: a port is kept for it
  };

  // The user's wish is TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; `static`, whose port is the agent's,
  // does not hear it, as in torchrun.
  static Reach ReachOf(const LaunchConfig& config, const Environment& environment);

  // `on_no_descriptor`: StoreServer::Options.
  explicit RoundStore(Reach reach, std::function<void()> on_no_descriptor = {})
      : reach_(reach), on_no_descriptor_(std::move(on_no_descriptor)) {}

  // Closes the store of the last round and opens the next one's.
  absl::Status Renew();
  void Close();
  // Takes a connection that arrived at the coordinator's port, on any thread. Closed when no round
  // is open.
  void Adopt(UniqueFd connection);
  // Where the current store listens, or a worker's shall; 0 when neither does.
  uint16_t port() const;
  bool is_workers() const { return reach_ == Reach::kWorkers; }

 private:
  const Reach reach_;
  const std::function<void()> on_no_descriptor_;
  mutable std::mutex mutex_;
  std::unique_ptr<rendezvous::StoreServer> server_;
  UniqueFd kept_port_;  // kWorkers alone
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_ROUND_STORE_H_
