// The network interface that the workers' libraries are told to use, by their own variables.
#ifndef DDPRUN_LAUNCHER_PLACEMENT_NETWORK_H_
#define DDPRUN_LAUNCHER_PLACEMENT_NETWORK_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::launcher {

// --network: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME in `environment`, which the workers inherit.
// What is said on purpose wins over what stood there; another value gets a line in
// config.warnings. InvalidArgument: this machine has no such interface. Nothing without the option.
absl::Status UseNetwork(LaunchConfig& config, Environment& environment);

// By itself Gloo listens on the address of the machine's own name. Where /etc/hosts gives that as
// 127.0.0.1 or 127.0.1.1, or no address of the machine at all, it takes loopback, and workers on
// other nodes connect to themselves. Then Gloo is told the interface towards rank 0's node.
//
// NCCL is told nothing: it looks at the interfaces themselves, and a name could move its traffic to
// a slower network.
class GlooInterface {
 public:
  struct Options {
    rendezvous::Resolver resolve = rendezvous::ResolveName;
    Duration patience = std::chrono::seconds(2);  // for one name
  };
  // `say` is told once, when a variable is added.
  GlooInterface(Options options, std::function<void(const std::string& line)> say);

  // `variables`, with GLOO_SOCKET_IFNAME where workers of that round need it and have none. Asks
  // for names, so it is for a thread that may wait, twice `patience` at most; one call at a time.
  std::vector<std::string> AddTo(std::vector<std::string> variables,
                                 const rendezvous::Assignment& assignment);

 private:
  std::optional<bool> IsOnLoopback();  // nullopt: no answer in time
  std::string Towards(const std::string& host) const;

  const Options options_;
  const std::function<void(const std::string&)> say_;
  std::optional<bool> is_on_loopback_;  // not asked yet
  bool has_said_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLACEMENT_NETWORK_H_
