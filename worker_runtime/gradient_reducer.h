// Reduces gradients bucket by bucket while backward still runs.
#ifndef DDPRUN_WORKER_RUNTIME_GRADIENT_REDUCER_H_
#define DDPRUN_WORKER_RUNTIME_GRADIENT_REDUCER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/comm_hook.h"
#include "ddp/communicator.h"
#include "worker_runtime/bucket_wire.h"
#include "worker_runtime/gradient_memory.h"
#include "worker_runtime/pass_times.h"
#include "worker_runtime/reducer_core.h"
#include "worker_runtime/unused_parameters.h"

namespace ddp::internal {

// How float32 gradients travel between ranks.
struct WireFormat {
  DType type = DType::kFloat32;
  std::unique_ptr<HalfCasts> casts;  // null: as they are
};

// Owns the memory of all gradients, or knows the program's, and drives a ReducerCore: as soon as a
// bucket and all before it are ready, its average over the ranks starts on the communicator's own
// thread or stream. Used by one thread at a time; borrows the communicator. The first failure of a
// reduction is final: every later call returns it.
//
// On a GPU the host waits for no device: Finish() lets the caller's stream wait, and the times of a
// pass are read when they are asked for later. Where parameters may be unused it waits for the
// other ranks' hosts, in a static graph in the first pass alone. With a 16-bit wire format a bucket
// is cast before its reduction, in the order of the stream that computes, and back in Finish(). A
// pass in a capture has times with each replay, and never was if the capture is discarded.
class GradientReducer {
 public:
  using Now = std::function<Work::Clock::time_point()>;

  // Collective: allocates the gradients' arena, zeroed, unless they are `adopted`. That, `names`
  // and `gradients` by parameter; all but the adopted memory equal on all ranks, as are the limits
  // and the wire's type. Errors: the communicator's.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(
      Communicator& communicator, std::vector<std::string> names,
      const std::vector<GradientSpec>& gradients, const BucketLimits& limits, WireFormat wire = {},
      std::vector<Piece> adopted = {}, Now now = &Work::Clock::now);
  // In the middle of a pass this aborts the communicator: the other ranks would wait in vain.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // From now on a parameter may be without a gradient; in a static graph those that are without one
  // in the first pass are so for ever. Collective, before the first pass. Errors: the
  // communicator's.
  absl::Status FindUnusedParameters(bool is_static);

  // At the end of the first pass that is in no graph, collectively, buckets are filled anew in the
  // order in which rank 0's gradients have come. They stay where they are. Before the first pass.
  void RebuildBuckets(const BucketLimits& limits) { rebuild_limits_ = limits; }

  // FailedPrecondition in a pass, when there is a hook, and where a bucket may be several pieces.
  // REQUIRES: gradients travel as they are.
  absl::Status SetHook(CommHook hook);

  // The owner's: whether a thread is in one of the calls of a pass.
  std::atomic<bool>& is_called() { return is_called_; }

  // Null for a number that is no parameter's.
  void* GradientPtr(int parameter) const { return memory_->At(parameter); }
  // Whether the last pass made its gradient an average.
  bool WasUsed(int parameter) const { return unused_ == nullptr || unused_->WasUsed(parameter); }
  const BucketLayout& layout() const { return memory_->layout(); }
  // Null when no gradient has elements.
  Buffer* arena() const { return memory_->arena(); }

  // InvalidArgument when one pass announces gradients on several streams of a GPU: a bucket's
  // reduction waits for one.
  absl::Status MarkReady(int parameter, Stream stream);
  absl::Status MarkUnsynchronized(int parameter, Stream stream = nullptr);
  // CUDA: the stream of the present pass's gradients. None between passes and on the CPU.
  std::optional<Stream> PassStream();
  // Ends the pass: every bucket holds the average, once this returns (CPU) or for what comes later
  // on `stream` (CUDA). A parameter without a gradient aborts the communicator, because this rank
  // will never take part in that bucket's all-reduce, unless such parameters are to be found.
  // Where a mark was refused since the last pass, its error is the result of a pass that has ended
  // well.
  absl::Status Finish(Stream stream = nullptr);
  // That error, once.
  absl::Status TakeRefusal();
  // Whether `call` may be made now: the failure, if there is one; FailedPrecondition in the middle
  // of a pass.
  absl::Status CheckBetweenPasses(const char* call);
  // A whole pass in which this rank's gradients are zeros, for the others' sake: in the order of
  // `stream` (CUDA).
  absl::Status ReduceZeros(Stream stream = nullptr);
  // Sums of later passes are divided by this instead of the world size, before they are made,
  // unless a hook reduces them; 0: by the world size. Floating-point types.
  void SetDivisor(int divisor) { divisor_ = divisor; }
  // At once (CPU) or in the order of `stream` (CUDA). FailedPrecondition in the middle of a pass.
  absl::Status ZeroGradients(Stream stream = nullptr);

  // The last pass whose times are known.
  const PassRecord& record() { return times_.Latest(); }
  // Whether the reduction of bucket `bucket` of the present pass was launched and is done.
  bool IsReduced(int bucket) const;

 private:
  GradientReducer(Communicator& communicator, std::vector<std::string> names,
                  std::unique_ptr<GradientMemory> memory, Now now);
  absl::Status Launch(LaunchRange range, Stream stream);
  absl::Status LaunchRest();
  absl::Status LaunchBucket(int index, Stream stream);
  absl::Status CallHook(const GradientBucket& bucket);
  bool IsOnWire(int index) const { return wire_ != nullptr && wire_->Carries(index); }
  absl::Status FailWorks(absl::Status status);
  absl::Status FailPass(absl::Status status);
  absl::Status Fail(absl::Status status);
  absl::Status WaitForLaunched();
  absl::Status WaitOnLaunched(Stream stream);
  absl::Status Refuse(absl::Status status);
  absl::Status EndPass(Stream stream);
  absl::Status FinishOnStream(Stream stream);
  absl::Status Rebuild();
  void AwaitTimes();
  absl::Status CheckCapture();
  absl::Status BeginPass(Stream stream);
  void ForgetDiscardedPass();

  Communicator& communicator_;
  const std::unique_ptr<GradientMemory> memory_;
  std::unique_ptr<BucketWire> wire_;            // null when gradients travel as they are
  std::unique_ptr<BucketWire> wire_of_graph_;   // the one before Rebuild(), which replays still use
  std::unique_ptr<UnusedParameters> unused_;    // null when every parameter is used in every pass
  std::optional<BucketLimits> rebuild_limits_;  // none when buckets stay as they are
  bool is_rebuilt_ = false;
  CommHook hook_;  // empty: buckets are averaged
  int divisor_ = 0;
  // CUDA: where gradients were last zeroed, announced without synchronisation, or finished.
  std::optional<Stream> last_stream_;
  const Now now_;
  ReducerCore core_;
  absl::Status failure_;
  std::atomic<bool> is_called_{false};

  // The present pass.
  std::vector<std::unique_ptr<Work>> works_;  // by bucket, as far as launched; null: nothing to do
  PassRecord pass_;
  // CUDA: of its first gradient; of a pass without any `last_stream_`, if there is one.
  Stream stream_ = nullptr;
  bool is_captured_ = false;
  bool may_be_in_graph_ = false;  // some pass until now
  absl::Status refusal_;          // the first, of marks since the last pass

  // Last: the device is out of the gradients before their memory goes.
  PassTimes times_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GRADIENT_REDUCER_H_
