// Collectives among the ranks of one host, through memory that they share.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_ENGINE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_ENGINE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker_runtime/comm/engine.h"
#include "worker_runtime/comm/kernels.h"
#include "worker_runtime/comm/shm/shm_setup.h"

namespace ddp::internal {

// A large all-reduce on buffers of the group's own is done in place: rank i sums slice i of all
// ranks' buffers and writes it into all of them, which moves two bytes per byte and rank. Private
// memory passes through staging in chunks. A small one is copied to where all see it, and every
// rank sums everything: one meeting instead of two.
class ShmEngine final : public Engine {
 public:
  explicit ShmEngine(ShmGroup group) : group_(std::move(group)), domain_(*group_.domain) {}

  int rank() const override { return domain_.ranks()[domain_.index()]; }
  int world_size() const override { return domain_.size(); }
  const char* backend() const override { return "shm"; }
  absl::Status Run(const Op& op) override;
  void Abort(const std::string& reason, std::optional<int> left_peer) override;
  void Leave() override { domain_.MarkLeft(); }
  absl::Status peer_error() const override { return domain_.PeerError(); }
  pid_t ProcessOf(int rank) const override { return domain_.ProcessOf(rank); }
  std::vector<int> LateRanks() const override { return domain_.LateRanks(); }

 private:
  absl::Status Execute(const Op& op);
  absl::Status AllReduceSmall(const Op& op);
  absl::Status AllReduceLarge(const Op& op);
  absl::Status AllReduceInPlace(const Op& op, const Location& location);
  absl::Status AllReduceStaged(const Op& op);
  absl::Status Broadcast(const Op& op);
  absl::Status AllGather(const Op& op);
  absl::Status ReduceScatter(const Op& op);
  absl::Status Reduce(const Op& op);
  absl::Status PassParts(const Op& op);
  absl::Status Allocate(const Op& op);

  int Divisor(const Op& op) const { return op.reduce == ReduceOp::kAverage ? world_size() : 1; }

  const ShmGroup group_;
  ShmDomain& domain_;
  const Kernels& kernels_ = BestKernels();
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_ENGINE_H_
