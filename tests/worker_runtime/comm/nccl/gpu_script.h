// A script of backward passes, run by DistributedDataParallel on a GPU and in host memory.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GPU_SCRIPT_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GPU_SCRIPT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddp/distributed_data_parallel.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {

struct GpuScriptStep {
  enum class Kind { kPass, kNoSyncPass, kZeroGrad };
  Kind kind = Kind::kPass;
  // By rank: the parameters with a gradient, as digits, one for each time; "-": no batch.
  std::string used[3] = {};
};
using GpuScript = std::vector<GpuScriptStep>;

struct GpuScriptOptions {
  ddp::DistributedDataParallelOptions ddp;
  bool owns_gradients = false;  // they are in memory of the script's
  bool has_hook = false;        // which sums
  // All passes are in a Join, on the optimizer's stream, which is busy when it is waited for.
  bool joins = false;
  bool divides_by_initial = true;  // in the Join
};

// Where a script runs: memory, and the order of what is done with it.
class Place {
 public:
  virtual ~Place() = default;
  // Of the gradients, and of the optimizer, which comes behind the former.
  virtual ddp::Stream backward() const { return nullptr; }
  virtual ddp::Stream optimizer() const { return nullptr; }
  virtual float* Allocate(const std::vector<float>& values) = 0;
  // Behind what is on the backward stream.
  virtual void Write(float* to, const std::vector<float>& values) = 0;
  // Both behind what is on the optimizer's stream.
  virtual std::vector<float> Read(const float* from, size_t count) = 0;
  virtual void Copy(float* to, const float* from, size_t count) = 0;
  // What is put on the stream from now on happens when it is let go.
  virtual void Hold(ddp::Stream) {}
  virtual void LetGo() {}
  // What comes later on the backward stream comes behind the optimizer's; and the other way.
  virtual void EndPass() {}
  virtual void LetOptimizerFollow() {}
};
std::unique_ptr<Place> OnGpu();
std::unique_ptr<Place> OnHost();

// Four parameters of 3, 5, 2 and 4 elements, in buckets of 24 bytes, and a buffer.
class ScriptModel {
 public:
  static constexpr int kParameters = 4;

  // `options.ddp.stream` and `options.joins` are not looked at.
  ScriptModel(Place& place, ddp::Communicator& communicator, GpuScriptOptions options);
  absl::Status Start();
  // Gradients of the pass that comes next, which differ by pass, rank and parameter.
  absl::Status Backward(int rank, const std::string& used);
  // Announces what the gradients hold.
  absl::Status Announce(const std::string& used);
  // A whole pass: a broadcast of the buffer, gradients, their averages.
  absl::Status Pass(int rank, const std::string& used);
  void SetGradient(int id, const std::vector<float>& values);
  std::vector<float> Gradient(int id);
  size_t size(int id) const;
  float* weights(int id) const { return weights_[static_cast<size_t>(id)]; }
  float* gradient(int id) const { return gradients_[static_cast<size_t>(id)]; }
  float* buffer() const { return buffer_; }
  ddp::DistributedDataParallel& ddp() { return ddp_; }

 private:
  Place& place_;
  const GpuScriptOptions options_;
  ddp::DistributedDataParallel ddp_;
  std::vector<float*> weights_, gradients_;
  float* const buffer_;  // of one element
  int number_ = 0;
};

// All gradients of this rank behind every synchronised pass, one after the other; in a Join weights
// are the last gradients, and behind it come weights, gradients and buffer. Or what went wrong.
absl::StatusOr<std::vector<float>> RunGpuScript(Place& place, ddp::Communicator& communicator,
                                                const GpuScript& script,
                                                const GpuScriptOptions& options);

// In a rank's process: whether both places have the same bits behind every pass. Says why not.
bool IsSameInBoth(ddp::Communicator& communicator, const GpuScript& script,
                  const GpuScriptOptions& options);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_COMM_NCCL_GPU_SCRIPT_H_
