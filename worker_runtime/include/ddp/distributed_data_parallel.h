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
#include "ddp/comm_hook.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"
#include "ddp/step_metrics.h"

namespace ddp {

namespace internal {
class GradientReducer;
class JoinRounds;
struct GradientValues;
struct ModelTensor;
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
  // Parameters may get no gradient in a pass (PyTorch's option of this name). One that no rank has
  // used since the last synchronised pass keeps its gradient, bit for bit; one that some rank has
  // used becomes the average, to which the others contribute what their gradient holds, zeros after
  // ZeroGrad(). What waits for missing gradients is reduced in Finish(), and one more all-reduce
  // of a byte per parameter tells who used what. Costs a copy of the gradients that this rank did
  // not use. On a GPU that takes memory as large as all gradients, and Finish() waits for the other
  // ranks' hosts, though for no device: who used what goes from host to host. A step of a StepGraph
  // cannot do so, and is refused. Equal on all ranks.
  bool find_unused_parameters = false;
  // As find_unused_parameters, and promises that each rank uses the same parameters in every pass
  // (PyTorch's option of this name). The first synchronised pass tells which; from the second on
  // reduction overlaps backward and no more than the gradients is reduced, and a pass that uses
  // another parameter is FailedPrecondition with its name. A parameter may be announced several
  // times in a pass, as when parts of the model run twice: as often as in the first, and the last
  // time counts. On a GPU it takes memory for the gradients that no rank uses, and from the second
  // pass on the host waits for nobody and a step can be captured. Equal on all ranks.
  bool static_graph = false;
  // At the end of the first synchronised pass buckets are filled anew, once, in the order in which
  // rank 0's gradients came, so that none waits for a gradient that always comes late (PyTorch's
  // Reducer does so, and moves them). Gradients stay where they are: a bucket is an
  // AllReduceCoalesced() of those that lie side by side then, and bucket_count() may change. That
  // pass's Finish() broadcasts an integer for each parameter. As in PyTorch not with
  // find_unused_parameters, unless it is a static_graph: InvalidArgument from Finalize(). Not with
  // a communication hook. Equal on all ranks.
  bool rebuild_buckets = false;
  // Whether BroadcastBuffers() does anything. Equal on all ranks.
  bool broadcast_buffers = true;
  // Finish() leaves each rank the averages of its shard of the gradients alone, 1/N of each bucket,
  // and the rest undefined: buckets are reduced by a reduce-scatter. For ZeroRedundancyOptimizer,
  // whose Step() and a ZeroGrad() come before the next pass: a rank that forgets them is told, and
  // the others wait for it until the timeout. Parameters may not share memory (tied weights).
  // ClipGradNorm() and CountNonFinite() are collective then, of the averages of all ranks; there is
  // no hook and no Join, and with rebuild_buckets or gradients in memory of the program's own
  // Finalize() is InvalidArgument. Equal on all ranks.
  bool shard_gradients = false;
  // CUDA: the stream on which the program has written its parameters when it calls Finalize(), and
  // that of all calls that name none. Null is the legacy default stream, which does not wait for
  // non-blocking streams.
  Stream stream = nullptr;
};

// When one bucket was reduced.
struct BucketTimes {
  ReductionTimes::TimePoint ready;  // its last gradient was there
  ReductionTimes::TimePoint started, ended;
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
  // REQUIRES (CUDA): the streams that were passed in exist until this has gone, and graphs with the
  // gradients are done.
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Registers `count` elements at `data`, which stay there. Register in the order in which forward
  // uses them: buckets are filled from the last to the first, the order in which backward delivers.
  // Every registered parameter takes part in every synchronised backward pass, unless options say
  // otherwise. Types may differ in one model, as float32 beside bfloat16: a bucket holds one type,
  // in which its gradients are averaged. In host memory those of two ranks are PyTorch's bit for
  // bit; of more ranks they differ in the last bits, since sums are rounded once here (ReduceOp).
  // Returns the parameter's id, counted from 0. What is wrong with it is the result of
  // Finalize().
  int AddParameter(const std::string& name, void* data, size_t count, DType dtype);

  // The same, with a gradient in memory of the program's own, as a framework's: `count` elements,
  // which outlive this object. They are reduced where they are, and nobody sets them to 0 before
  // the first pass. All parameters on all ranks are registered so, or none. A bucket is an
  // AllReduceCoalesced() of its gradients: a copy of them on the CPU, which the library's memory
  // does without, and a group of all-reduces with NCCL. Errors, from Finalize(): InvalidArgument
  // for a null pointer, another count than the parameter's, and memory that another tensor has, or
  // that is not aligned to its elements.
  int AddParameter(const std::string& name, void* data, size_t count, DType dtype, Piece gradient);

  // Registers state of the model that has no gradient, as the running mean of a batch norm, also
  // before Finalize(). Its name is no parameter's.
  void AddBuffer(const std::string& name, void* data, size_t count, DType dtype);

  // Collective, once, after the last AddParameter: checks that all ranks registered the same names,
  // counts and types in the same order and chose the same options, replaces everybody's parameters
  // and buffers by rank 0's, behind what is on the options' stream, and allocates the gradients,
  // zeroed. All of it is done when this returns, for any stream. Errors: InvalidArgument naming the
  // parameter and the rank; the driver's, the same on all ranks, when a GPU cannot cast what is to
  // be compressed; the communicator's.
  absl::Status Finalize();

  // From the next pass on `hook` reduces the buckets (PyTorch's register_comm_hook). Once, between
  // passes, the same on all ranks. Errors: FailedPrecondition before Finalize(), in a pass, for a
  // second hook, with rebuild_buckets, gradients of the program's own, and `compression`, which is
  // one already; InvalidArgument for an empty one.
  absl::Status RegisterCommHook(CommHook hook);

  // Where the gradient of a parameter lives for ever: `count` elements of its type, at a multiple
  // of 64 bytes, inside the bucket that is reduced, so that nothing is copied, unless it is the
  // program's own. After Finish() it
  // holds the average over the ranks; adding to it without ZeroGrad() between is allowed, as in
  // PyTorch. Null before Finalize() succeeded, and for an id that AddParameter did not return.
  void* GradientPtr(int id) const;

  // The gradient of `id` is complete for this pass and must not be touched until Finish().
  // `stream` is where it was computed, the same for all of a pass; by default the options', and
  // unused on the CPU. Errors, with the parameter's name: FailedPrecondition for one marked ready
  // twice, or when Finish() was forgotten. Gradients that are reduced and were not announced in the
  // pass (find_unused_parameters, NoSync) are read on its stream as well, and in a pass without any
  // gradient on the stream of the last ZeroGrad(), Finish() or GradientReady(): what wrote them on
  // another one comes before it by an event of the program's. This and the other calls of a pass
  // may come from any thread, one after the other; two at the same time are FailedPrecondition for
  // the later one.
  absl::Status GradientReady(int id, std::optional<Stream> stream = std::nullopt);

  // Ends a pass: every gradient is the average when this returns (CPU), or for what comes later on
  // `stream`, the optimizer's, while the host goes on (CUDA), unless it asks other ranks' hosts
  // (find_unused_parameters), which has the communicator's timeout. By default it is the options';
  // where the gradients of the pass came on another one, that is InvalidArgument, and the pass goes
  // on until a Finish() that names a stream. Errors: FailedPrecondition naming the parameters that
  // got no gradient, where all must (this also aborts the communicator, since the other ranks would
  // wait for them in vain); the communicator's; that of the first GradientReady() since the last
  // Finish() which was refused for its parameter or its stream, if there is no other: the pass has
  // ended then, and the next may begin. Does nothing else under NoSync.
  absl::Status Finish(std::optional<Stream> stream = std::nullopt);

  // Collective, before each forward pass of training, when there are buffers: replaces everybody's
  // by rank 0's, behind what is on `stream` and before what comes later on it. As in PyTorch it
  // does nothing when the forward pass before this one was under NoSync, so that buffers are equal
  // once per optimizer step and not at each of its passes. FailedPrecondition between
  // GradientReady() and Finish(); the communicator's errors.
  absl::Status BroadcastBuffers(std::optional<Stream> stream = std::nullopt);

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

  // For ranks with different numbers of batches (PyTorch's Join):
  //
  //   absl::StatusOr<DistributedDataParallel::JoinGuard> join = ddp.Join();
  //   while (there is a batch) { ...; status = ddp.Finish(); optimizer step }
  //   status = join->Wait();
  //
  // A rank without batches takes part in what the others do, with zeros for gradients, until none
  // has any; then all get the parameters and buffers of the last one that had. Averages are over
  // all ranks, or, without `divide_by_initial_world_size`, over those that still have batches
  // (a communication hook makes its own averages). Buffers are those of the highest rank with
  // batches. In the loop ranks call nothing else that is collective, and neither capture nor replay
  // a StepGraph. Costs a small all-gather for each synchronised pass and broadcast of buffers, in
  // host memory: on a GPU the host waits for the other ranks' hosts there, and for no device.
  class JoinGuard {
   public:
    JoinGuard(JoinGuard&& other) noexcept;
    JoinGuard& operator=(JoinGuard&&) = delete;
    // Without a Wait() it aborts the communicator: the other ranks would wait in vain.
    ~JoinGuard();
    // This rank has no batch left. Its gradients are set to 0, and are the others' averages
    // afterwards where there are any. On a GPU all this, and the last rank's model, is in the order
    // of the Join's stream. Once. An error is final for the group: the communicator's, or
    // FailedPrecondition in the middle of a pass.
    absl::Status Wait();

   private:
    friend class DistributedDataParallel;
    explicit JoinGuard(DistributedDataParallel* owner) : owner_(owner) {}
    DistributedDataParallel* owner_;  // null when it was waited for or moved from
  };
  // Called by all ranks with the same choice, between passes; outlived by this object. `stream` is
  // where Wait() works (CUDA), by default the options': name the optimizer's, which has written the
  // parameters and read the gradients. A ZeroGrad() on another stream, with no pass behind it,
  // comes before Wait() only if the program makes this stream wait for it. Errors:
  // FailedPrecondition before Finalize(), in a pass and in another Join; Unimplemented with
  // static_graph and with shard_gradients; InvalidArgument for integers that would have to be
  // scaled; the driver's, the same on all ranks, when a GPU cannot compute what is needed.
  absl::StatusOr<JoinGuard> Join(bool divide_by_initial_world_size = true,
                                 std::optional<Stream> stream = std::nullopt);

  // With find_unused_parameters and static_graph: whether any rank had used the parameter when the
  // last synchronised pass ended, so that its gradient became an average. True otherwise.
  bool WasUsed(int id) const;

  // Sets all gradients to 0: at once (CPU), or in the order of `stream`, by default the options'
  // (CUDA). FailedPrecondition between GradientReady() and Finish().
  absl::Status ZeroGrad(std::optional<Stream> stream = std::nullopt);

  // Scales all gradients so that their norm, as if they were one vector, is at most `max_norm`, and
  // returns the norm they had: torch.nn.utils.clip_grad_norm_. After Finish(), when they are
  // averages, so that all ranks compute the same without a word. `norm_type` is the order of the
  // norm, above 0, also infinity. Where a gradient is NaN or infinite, so is the norm, and scaling
  // by it leaves NaN and zeros, unless `error_if_nonfinite`: FailedPrecondition then, and nothing
  // is scaled. Sums are made in double, torch's in the type of each gradient. CUDA: behind what is
  // on `stream`, by default that of the last Finish() or Wait(). The host waits for the norm,
  // DeadlineExceeded after the group's timeout; the scaling is queued. FailedPrecondition in a step
  // that a StepGraph captures; the driver's error where it cannot compile the kernels.
  absl::StatusOr<double> ClipGradNorm(double max_norm, double norm_type = 2,
                                      bool error_if_nonfinite = false,
                                      std::optional<Stream> stream = std::nullopt);

  // How many elements of all gradients are NaN or infinite: one pass over them. The reduction lets
  // such values pass, and a rank's NaN is everybody's after Finish(); before it the ranks' counts
  // differ. FailedPrecondition between GradientReady() and Finish(), and on a GPU as
  // ClipGradNorm().
  //
  // Loss scaling as torch.amp.GradScaler does it: the loss is multiplied by `scale`, and after
  // Finish() all ranks find the same and need not ask each other whether to skip the step:
  //
  //   if (*ddp.CountNonFinite() > 0) { scale /= 2; good_steps = 0; continue; }
  //   divide the gradients by scale; ClipGradNorm(); optimizer step
  //   if (++good_steps == 2000) { scale *= 2; good_steps = 0; }
  absl::StatusOr<size_t> CountNonFinite(std::optional<Stream> stream = std::nullopt);

  // Times of the last pass that Finish() ended (CPU), or of the last whose times the device has
  // told by now, as a rule the one before; replays of a StepGraph are such passes, too (CUDA). Of a
  // host that is more than 8 passes ahead some are never told.
  ReductionTimes last_reduction() const;
  // The same pass bucket by bucket, in the order of their reductions. Empty before the first.
  std::vector<BucketTimes> last_buckets() const;
  // Buckets, 0 before Finalize().
  int bucket_count() const;
  // Whether bucket `bucket` of the present pass is reduced already: backward and communication
  // overlap. It holds the average, or does from Finish() on when it is compressed. False between
  // passes.
  bool IsReduced(int bucket) const;

 private:
  friend class ZeroRedundancyOptimizer;
  absl::Status CheckModel() const;
  absl::Status CheckOptions() const;
  bool finds_unused_parameters() const {
    return options_.find_unused_parameters || options_.static_graph;
  }
  absl::StatusOr<internal::WireFormat> MakeWireFormat() const;
  absl::Status CheckNoneIsLate() const;
  absl::Status JoinPass();
  void SetJoinDivisor(int active_count);
  absl::Status FollowOthers();
  absl::StatusOr<std::vector<internal::GradientValues>> GradientsFor(const char* call) const;
  // Of sharded gradients.
  absl::Status CheckHasNoAverages() const;
  absl::Status CheckHasAverages(const char* call) const;
  std::vector<internal::GradientValues> ShardOf(
      const std::vector<internal::GradientValues>& gradients) const;
  absl::Status CombineShards(void* number, DType dtype, ReduceOp op) const;

  Communicator& communicator_;
  const DistributedDataParallelOptions options_;
  std::vector<internal::ModelTensor> parameters_;
  std::vector<internal::ModelTensor> buffers_;
  std::vector<std::optional<Piece>> own_gradients_;  // by parameter, up to the last that has one
  std::string late_;                                 // what came after Finalize()
  bool is_broadcast_due_ = true;
  std::unique_ptr<internal::JoinRounds> join_;  // null outside of a Join
  bool join_divides_by_initial_ = true;
  Stream join_stream_ = nullptr;    // CUDA
  bool is_pass_announced_ = false;  // in the Join
  int no_sync_depth_ = 0;
  // What sharded gradients hold: this rank's own; in its shard the averages; nothing after a
  // Step().
  enum class Averages : uint8_t { kNone, kInShard, kSpent };
  Averages averages_ = Averages::kNone;
  // CUDA: on which the averages are, or the parameters that replace them.
  Stream averages_stream_;
  std::unique_ptr<internal::GradientReducer> reducer_;  // null until Finalize() succeeded
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
