// Collectives among ranks of several nodes: shared memory within a node, a chain between nodes.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_TCP_ENGINE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_TCP_ENGINE_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker_runtime/comm/engine.h"
#include "worker_runtime/comm/failure_board.h"
#include "worker_runtime/comm/plan.h"
#include "worker_runtime/comm/shm/shm_setup.h"
#include "worker_runtime/comm/tcp/chain.h"
#include "worker_runtime/comm/tcp/tcp_setup.h"

namespace ddp::internal {

// Each node has `lanes` ranks on chains of their own; an all-reduce is divided among the lanes, the
// other operations use the first. A lane's rank works on the memory of all ranks of its node, which
// wait meanwhile. No operation ends on any rank before every rank has entered it.
class TcpEngine final : public Engine {
 public:
  // `group` is empty where this rank is alone on its node, `links` for a rank that is on no lane.
  TcpEngine(const Plan& plan, int rank, ShmGroup group, ChainLinks links,
            std::unique_ptr<FailureBoard> board);

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(node_of_.size()); }
  const char* backend() const override { return "tcp"; }
  absl::Status Run(const Op& op) override;
  void Abort(const std::string& reason, std::optional<int> left_peer) override;
  void Leave() override;
  absl::Status peer_error() const override;
  pid_t ProcessOf(int rank) const override {
    return domain_ != nullptr ? domain_->ProcessOf(rank) : 0;
  }
  std::vector<int> LateRanks() const override {
    return domain_ != nullptr ? domain_->LateRanks() : std::vector<int>();
  }

 private:
  absl::Status Execute(const Op& op);
  absl::Status AllReduce(const Op& op);
  absl::Status AllReduceInPlace(const Op& op, const Location& location);
  absl::Status AllReduceStaged(const Op& op);
  absl::Status Barrier(const Op& op);
  absl::Status Broadcast(const Op& op);
  // Part of the operation `op`: `bytes` of every rank, for all.
  absl::Status Collect(const Op& op, const void* input, void* output, size_t bytes);
  absl::Status ReduceScatter(const Op& op);
  absl::Status Reduce(const Op& op);
  absl::Status PassParts(const Op& op);
  absl::Status Allocate(const Op& op);

  // The meetings of this node's ranks. A rank alone meets nobody and has staging of its own.
  uint32_t NextStep() { return domain_ != nullptr ? domain_->NextStep() : 0; }
  absl::Status Enter(const Op& op, uint32_t step, bool is_first);
  absl::Status Finish(const Op& op, uint32_t step);
  char* Input(int index, uint32_t step);
  char* Result(uint32_t step);  // the first lane's

  // Sums `count` elements of each input into each output over this rank's lane.
  absl::Status SumOnLane(const Op& op, size_t count, std::vector<const void*> inputs,
                         std::vector<void*> outputs, bool is_first);
  // Where the node of `rank` is on the chain: -1 before this one, 1 after it, 0 this one itself.
  int DirectionOf(int rank) const;
  // Carries what rank `from`'s node has in `data` to the other nodes.
  absl::Status SpreadFrom(const Op& op, int from, void* data, size_t bytes);
  bool IsOnLane() const { return place_.index < place_.lanes; }
  bool IsFirst() const { return place_.index == 0; }
  // This rank's index on its node if it is there, else -1.
  int LocalIndex(int rank) const;

  // The words that all ranks should use for `status`, which this rank found.
  absl::Status Explain(const Op& op, const absl::Status& status);
  absl::Status Interrupted() const;

  const int rank_;
  const Place place_;
  const std::vector<int> node_of_;  // by rank
  const bool is_flat_;              // every rank is alone on its node
  const ShmGroup group_;
  ShmDomain* const domain_;  // null where this rank is alone
  const std::unique_ptr<FailureBoard> board_;
  std::vector<char> staging_;  // of a rank alone: input, then result
  mutable std::mutex mutex_;
  absl::Status aborted_;  // guarded by mutex_
  Chain chain_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_TCP_ENGINE_H_
