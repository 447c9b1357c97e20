// A model that trains on the double of CUDA and NCCL, its step ready to be captured.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GRAPH_TRAINING_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GRAPH_TRAINING_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "ddp/step_graph.h"
#include "ddp/zero_redundancy_optimizer.h"
#include "tests/support/expect.h"  // IWYU pragma: export
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {

// Prints the text when the words are not in it.
bool Has(const std::string& text, const std::string& words);

// Three parameters, each in a bucket of its own. A step's gradients are its inputs, and its
// optimizer sets each parameter to the averaged gradient: the double runs no kernels. In a rank's
// process.
class GraphTraining {
 public:
  static constexpr int kParameters = 3;
  static constexpr size_t kCount = 100;

  // Sharded: each rank updates its part of the parameters, and the others' arrive by an all-gather.
  explicit GraphTraining(bool is_sharded = false);
  // Shuts the group down, if it is well.
  ~GraphTraining();
  GraphTraining(const GraphTraining&) = delete;
  GraphTraining& operator=(const GraphTraining&) = delete;

  absl::Status Step();
  // Sharded: the part of a step behind Finish().
  absl::Status Update();
  // Sharded: what the update of the next step's second shard returns instead.
  void FailUpdate(absl::Status status) { update_failure_ = std::move(status); }
  ddp::StepGraph::Step step() {
    return [this] { return Step(); };
  }
  absl::Status Backward(int id);
  // This rank's inputs of step `number`, into the same memory each time.
  void NextInputs(int number);
  // Whether the parameters are what step `number` of all ranks makes of them.
  bool HasTrained(int number) const;
  // An uncaptured step, and whether it was right.
  bool Train(int number);
  // A replay, and whether it was right.
  bool Replay(int number);
  // Steps 1 to 3, as a capture needs them.
  bool WarmUp() { return Train(1) && Train(2) && Train(3); }
  // How the group ends by itself; Ok when it does not.
  absl::Status AwaitEnd() const;

  ddp::Communicator& communicator() const { return group_->communicator(); }
  ddp::ProcessGroup& group() const { return *group_; }
  ddp::DistributedDataParallel& ddp() { return ddp_; }
  const DeviceArray& parameter(size_t id) const { return parameters_[id]; }
  ddp::Stream stream() const { return stream_; }
  ddp::StepGraph& graph() const { return *graph_; }

 private:
  void Copy(const void* to, const void* from, size_t count = kCount) const;

  const std::unique_ptr<ddp::ProcessGroup> group_;
  std::vector<DeviceArray> parameters_, inputs_;
  std::deque<std::vector<float>> host_inputs_;  // until the copies are done
  ddp::DistributedDataParallel ddp_;
  std::optional<ddp::ZeroRedundancyOptimizer> zero_;  // when sharded
  absl::Status update_failure_;
  const ddp::Stream stream_;
  std::unique_ptr<ddp::StepGraph> graph_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GRAPH_TRAINING_H_
