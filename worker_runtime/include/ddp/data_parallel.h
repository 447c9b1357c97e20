// What DataParallel is to PyTorch: one process, one thread for each device. It is the baseline for
// DistributedDataParallel's measurements, and not for serious training.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DATA_PARALLEL_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DATA_PARALLEL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp {

namespace internal {
class DeviceThread;
class ReplicaDevice;
struct ModelTensor;
}  // namespace internal

inline constexpr int kMaxReplicas = 1024;

struct DataParallelOptions {
  // With kCpu a device is a share of the CPUs that this process may use. With kCuda it is a GPU, in
  // CUDA's order.
  DeviceType device_type = DeviceType::kCpu;
  int replicas = 1;  // devices, at most kMaxReplicas
};

// A part of the batch: samples `begin` to `end` - 1.
struct Chunk {
  int64_t begin = 0, end = 0;
};

// What a pass cost in addition to computing. No replica computes meanwhile: all of it is exposed.
struct DataParallelTimes {
  std::chrono::nanoseconds scatter{0}, replicate{0}, gather{0}, reduce{0};
  uint64_t bytes_moved = 0;  // between devices, and from the host's memory to GPUs
};

// Trains one model, which lives on device 0, on all devices of this process. Each pass splits the
// batch, copies the model to every device, collects the outputs on device 0 and sums the gradients
// there. So device 0 holds more and does more than the others, and the model travels twice a step.
//
//   DataParallel dp({.replicas = 4});
//   for (Parameter& p : model) p.id = dp.AddParameter(p.name, p.data, p.count, DType::kFloat32);
//   status = dp.Finalize();
//   each step, with `status` looked at each time:
//     status = dp.ZeroGrad();
//     chunks = dp.Scatter(batch);              // replica r takes chunks[r]
//     status = dp.ScatterRows(...);            // on GPUs: the samples themselves
//     status = dp.Replicate();
//     status = dp.ParallelApply([&](int r) {   // on the thread of device r
//       forward of chunks[r] with dp.ParameterPtr(id, r); write its outputs to outputs[r] });
//     status = dp.Gather(outputs, row_bytes, all_outputs);
//     the loss and its gradient on device 0: divide by the batch, not by a chunk
//     status = dp.ParallelApply([&](int r) {
//       backward: add each gradient to dp.GradientPtr(id, r), then dp.GradientReady(id, r) });
//     status = dp.Finish();                    // GradientPtr(id, 0) is the gradient of the batch
//     optimizer step on device 0
//
// There is no AddBuffer(). The program copies to the replicas what a network keeps in addition to
// its parameters, such as running averages. Torch keeps only those of device 0.
//
// One thread calls it. A body may call ParameterPtr, GradientPtr, GradientReady and DeviceStream
// for its replica. The class borrows the parameters' memory, which must outlive it. It never
// throws. An exception that leaves a body ends the program, like one that leaves a thread.
//
// On GPUs all memory that is given or returned is the devices', except ScatterRows' input. A body
// finds its GPU's primary context current and puts its work on DeviceStream(r), which does not wait
// for the legacy stream. Every call ends when its devices have done its work, so its times are
// true. If a kernel of a body hangs, the call hangs. Torch's calls queue, and save some ten
// microseconds each. What the program itself put on other streams must end before a call that uses
// it. If a call of the driver fails, its error is the result of the call that made it. After an
// error of a device all further calls fail.
class DataParallel {
 public:
  explicit DataParallel(DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Registers `count` elements at `data`, on device 0, which stay there. Returns the parameter's
  // id, counted from 0. If the parameter is wrong, Finalize() fails with the reason. For a
  // parameter that comes after Finalize(), Replicate() is FailedPrecondition.
  int AddParameter(const std::string& name, void* data, size_t count, DType dtype);

  // Allocates the replicas' parameters and all gradients, zeroed, and starts a thread for each
  // device. Call it once, after the last AddParameter. If this process may use at least as many
  // CPUs as there are replicas, each thread is bound to a share of them. Errors:
  // - InvalidArgument names the parameter.
  // - ResourceExhausted: there is not enough memory, or no more threads.
  // - NotFound: there is no CUDA driver.
  // - FailedPrecondition: CUDA shows fewer GPUs than replicas, or cannot work.
  absl::Status Finalize();

  // Begins a pass over `batch` samples. Returns the chunks of the replicas that take part, by
  // torch.chunk's rule: equal chunks of ceil(batch / replicas) samples. The last may be smaller,
  // and there may be fewer than replicas. There is no chunk for a batch of 0 or less. A pass that
  // was not finished is dropped, but what it added to device 0's gradients stays.
  std::vector<Chunk> Scatter(int64_t batch);

  // Copies the samples of each chunk to outputs[r] on device r, `row_bytes` for each sample.
  // `input` holds the batch, in the host's memory or on device 0. InvalidArgument if there are not
  // as many outputs as chunks, or memory is missing.
  absl::Status ScatterRows(const void* input, size_t row_bytes, std::span<void* const> outputs);

  // Copies the parameters of device 0 to the other replicas of this pass and sets their gradients
  // to 0. FailedPrecondition before Finalize() and Scatter().
  absl::Status Replicate();

  // Runs body(r) for each replica r of this pass, on the thread of its device, and waits for all of
  // them. Returns the error of the first replica with one, in their order, after "replica 2: ".
  // FailedPrecondition before Replicate(), and for a body that calls this, Replicate() or Finish().
  absl::Status ParallelApply(const std::function<absl::Status(int replica)>& body);

  // A parameter and its gradient: device 0's own, or a replica's copy. They are `count` elements at
  // a multiple of 64 bytes. Device 0's parameters are where the caller has them. Null before
  // Finalize() succeeded, for an id that AddParameter did not return, and for an unknown replica.
  void* ParameterPtr(int id, int replica) const;
  void* GradientPtr(int id, int replica) const;

  // The CUstream of a replica's device. Null on the CPU, before Finalize() succeeded, and for an
  // unknown replica.
  Stream DeviceStream(int replica) const;

  // Announces that the gradient of `id` is complete on `replica`. InvalidArgument for an unknown id
  // or replica. FailedPrecondition for a gradient that is marked twice in a pass or by a replica
  // that takes no part.
  absl::Status GradientReady(int id, int replica);

  // Copies the replicas' outputs to `output` on device 0, in the order of the batch, `row_bytes`
  // for each sample. inputs[r] holds those of chunk r. InvalidArgument if there are not as many
  // inputs as chunks, or memory is missing.
  absl::Status Gather(std::span<const void* const> inputs, size_t row_bytes, void* output);

  // Ends a pass: adds the other replicas' gradients to device 0's, in the order of the replicas.
  // FailedPrecondition naming the parameter and the replica without a gradient. Then nothing was
  // added.
  absl::Status Finish();

  // Sets device 0's gradients to 0. The others begin each pass with 0.
  absl::Status ZeroGrad();

  // Times of the last pass that Finish() ended.
  DataParallelTimes last_step() const { return last_step_; }
  // Bytes of parameters and gradients on a device. 0 before Finalize() succeeded.
  size_t bytes_on(int replica) const;

 private:
  struct Replica {
    std::unique_ptr<internal::ReplicaDevice> device;
    void* parameters = nullptr;  // none on device 0
    void* gradients = nullptr;
    std::vector<char> is_ready;  // by parameter; not bool: each replica's thread writes its own
    std::unique_ptr<internal::DeviceThread> thread;
  };
  // Parameters of one type with adjacent gradients, gaps included.
  struct Run {
    DType dtype;
    size_t offset, count;
  };
  void LayOut();
  absl::Status MakeReplica(std::unique_ptr<internal::ReplicaDevice> device);
  absl::Status CheckParameterMemory() const;
  absl::Status RunOnDevices(int count, const std::function<absl::Status(int replica)>& body);
  absl::Status CheckRows(const char* call, size_t parts, const char* part) const;
  absl::Status CheckAllReady() const;
  absl::Status CheckNotRunning() const;
  bool IsKnown(int id, int replica) const;
  size_t BytesOfAll() const;
  int active() const { return static_cast<int>(chunks_.size()); }

  const DataParallelOptions options_;
  std::vector<internal::ModelTensor> parameters_;
  std::vector<size_t> offsets_;  // by parameter, in each replica's memory
  std::vector<Run> runs_;
  size_t bytes_ = 0;                // of a replica's parameters, and of its gradients
  std::vector<Replica> replicas_;   // empty until Finalize() succeeded
  bool is_late_parameter_ = false;  // one came after Finalize()
  std::vector<Chunk> chunks_;       // of this pass; empty between passes
  bool is_replicated_ = false;
  bool is_running_ = false;  // bodies run on the threads of the devices
  DataParallelTimes this_step_, last_step_;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DATA_PARALLEL_H_
