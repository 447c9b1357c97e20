// The collectives of a group of one rank.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_LOCAL_LOCAL_ENGINE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_LOCAL_LOCAL_ENGINE_H_

#include <mutex>
#include <optional>
#include <string>

#include "worker_runtime/comm/engine.h"

namespace ddp::internal {

// World size 1: sums and averages of one value are that value.
class LocalEngine final : public Engine {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  const char* backend() const override { return "local"; }
  absl::Status Run(const Op& op) override;
  void Abort(const std::string&, std::optional<int>) override {}
  void Leave() override {}
  absl::Status peer_error() const override { return absl::OkStatus(); }
  pid_t ProcessOf(int) const override { return 0; }
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_LOCAL_LOCAL_ENGINE_H_
