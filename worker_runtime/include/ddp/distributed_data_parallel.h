// What DistributedDataParallel is to PyTorch, for C++ programs.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"
#include "ddp/step_metrics.h"

namespace ddp {

namespace internal {
class GradientReducer;
struct WireFormat;
}  // namespace internal

// How float32 gradients travel between ranks (PyTorch's communication hooks fp16_compress_hook and
// bf16_compress_hook): each is divided by the world size, rounded to 16 bits, summed in that type,
// and cast back. Half the bytes, half the gradients' memory more, and sums of 8 (bfloat16) or 11
// (float16) significant bits; beyond 65504 float16 is infinite. Gradients of other types, and those
// of a group of one, are not touched.
enum class GradientCompression : uint8_t { kNone, kFloat16, kBFloat16 };

struct DistributedDataParallelOptions {
  // Gradients are reduced together until a bucket holds this many bytes (PyTorch's bucket_cap_mb).
  // Equal on all ranks.
  size_t bucket_cap_bytes = 25 << 20;
  // The first bucket is smaller, so that communication starts early in backward.
  size_t first_bucket_bytes = 1 << 20;
  // Equal on all ranks.
  GradientCompression compression = GradientCompression::kNone;
  // CUDA: the stream on which the program has written its parameters when it calls Finalize(), and
  // that of all calls that name none. Null is the legacy default stream, which does not wait for
  // non-blocking streams.
  Stream stream = nullptr;
};

// Keeps the replicas of a model on all ranks equal: every rank starts from rank 0's parameters, and
// every backward pass ends with each gradient averaged over the ranks. Reduction runs on the
// communicator's thread while backward goes on, from the first step on.
//
//   DistributedDataParallel ddp(group->communicator(), {});
//   for (Parameter& p : model) p.id = ddp.AddParameter(p.name, p.data, p.count, DType::kFloat32);
//   status = ddp.Finalize();
//   for (Parameter& p : model) p.gradient = static_cast<float*>(ddp.GradientPtr(p.id));
//   each step:
//     status = ddp.ZeroGrad();
//     forward; backward: add each gradient to p.gradient, then status = ddp.GradientReady(p.id);
//     status = ddp.Finish();      // gradients are averages now
//     optimizer step
//
// Knows no framework: parameters are pointer, count and type. One thread at a time calls it.
// Borrows the communicator and the parameters' memory, which both outlive it. Never throws: an
// error that a background thread meets is the result of the next call, and is final.
class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(Communicator& communicator,
                                   DistributedDataParallelOptions options = {});
  // REQUIRES (CUDA): the streams that were passed in are done with the gradients.
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Registers `count` elements at `data`, which stay there. Register in the order in which forward
  // uses them: buckets are filled from the last to the first, the order in which backward delivers.
  // Every registered parameter takes part in every synchronised backward pass. Returns the
  // parameter's id, counted from 0. What is wrong with it is the result of Finalize().
  int AddParameter(const std::string& name, void* data, size_t count, DType dtype);

  // Collective, once, after the last AddParameter: checks that all ranks registered the same names,
  // counts and types in the same order and chose the same options, replaces everybody's parameters
  // by rank 0's, behind what is on the options' stream, and allocates the gradients, zeroed. All of
  // it is done when this returns, for any stream. Errors: InvalidArgument naming the parameter
  // and the rank; the driver's, the same on all ranks, when a GPU cannot cast what is to be
  // compressed; the communicator's.
  absl::Status Finalize();

  // Where the gradient of a parameter lives for ever: `count` elements of its type, at a multiple
  // of 64 bytes, inside the bucket that is reduced, so that nothing is copied. After Finish() it
  // holds the average over the ranks; adding to it without ZeroGrad() between is allowed, as in
  // PyTorch. Null before Finalize() succeeded, and for an id that AddParameter did not return.
  void* GradientPtr(int id) const;

  // The gradient of `id` is complete for this pass and must not be touched until Finish().
  // `stream` is where it was computed, the same for all of a pass; by default the options', and
  // unused on the CPU. Errors, with the parameter's name: FailedPrecondition for one marked ready
  // twice, or when Finish() was forgotten. This and the next two calls may come from any thread,
  // one after the other; two at the same time are FailedPrecondition for the later one.
  absl::Status GradientReady(int id, std::optional<Stream> stream = std::nullopt);

  // Ends a pass: every gradient is the average when this returns (CPU), or for what comes later on
  // `stream`, the optimizer's, while the host goes on (CUDA). By default it is the options'; where
  // the gradients of the pass came on another one, that is InvalidArgument, and the pass goes on
  // until a Finish() that names a stream. Errors: FailedPrecondition naming the parameters that got
  // no gradient (this also aborts the communicator, since the other ranks would wait for them in
  // vain); the communicator's. Does nothing under NoSync.
  absl::Status Finish(std::optional<Stream> stream = std::nullopt);

  // While one of these lives, backward passes are local: gradients add up, and the next pass
  // without it reduces the sums. Nothing is divided by the number of passes: scale the loss.
  // Take it before forward; `is_active` = false makes one without effect.
  class NoSyncGuard {
   public:
    NoSyncGuard(NoSyncGuard&& other) noexcept;
    NoSyncGuard& operator=(NoSyncGuard&&) = delete;
    ~NoSyncGuard();

   private:
    friend class DistributedDataParallel;
    explicit NoSyncGuard(int* depth);
    int* depth_;  // null when without effect or moved from
  };
  [[nodiscard]] NoSyncGuard NoSync(bool is_active = true);

  // Sets all gradients to 0: at once (CPU), or in the order of `stream`, by default the options'
  // (CUDA). FailedPrecondition between GradientReady() and Finish().
  absl::Status ZeroGrad(std::optional<Stream> stream = std::nullopt);

  // Times of the last pass that Finish() ended (CPU), or of the last whose times the device has
  // told by now, as a rule the one before; replays of a StepGraph are such passes, too (CUDA).
  ReductionTimes last_reduction() const;
  // Buckets, 0 before Finalize().
  int bucket_count() const;
  // Whether bucket `bucket` of the present pass is reduced already: backward and communication
  // overlap. It holds the average, or does from Finish() on when it is compressed. False between
  // passes.
  bool IsReduced(int bucket) const;

 private:
  struct Parameter {
    std::string name;
    void* data;
    size_t count;
    DType dtype;
  };
  absl::Status CheckRegistered() const;
  absl::Status BroadcastParameters();
  absl::StatusOr<internal::WireFormat> MakeWireFormat() const;

  Communicator& communicator_;
  const DistributedDataParallelOptions options_;
  std::vector<Parameter> parameters_;
  bool is_late_parameter_ = false;  // one came after Finalize()
  int no_sync_depth_ = 0;
  std::atomic<bool> is_called_{false};                  // a thread is in one of the calls of a pass
  std::unique_ptr<internal::GradientReducer> reducer_;  // null until Finalize() succeeded
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
