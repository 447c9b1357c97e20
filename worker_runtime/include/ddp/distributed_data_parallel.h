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
// bf16_compress_hook). Each is divided by the world size, rounded to 16 bits, summed in that type,
// and cast back. That halves the bytes, and takes half the gradients' memory in addition. Sums have
// 8 (bfloat16) or 11 (float16) significant bits, and float16 is infinite beyond 65504. Gradients of
// other types, and those of a group of one, stay as they are.
enum class GradientCompression : uint8_t { kNone, kFloat16, kBFloat16 };

struct DistributedDataParallelOptions {
  // Gradients are reduced together until a bucket holds this many bytes (PyTorch's bucket_cap_mb).
  // Equal on all ranks.
  size_t bucket_cap_bytes = 25 << 20;
  // The first bucket is smaller, so that communication starts early in backward.
  size_t first_bucket_bytes = 1 << 20;
  // Equal on all ranks.
  GradientCompression compression = GradientCompression::kNone;
  // Parameters may get no gradient in a pass (PyTorch's option of this name). A parameter that no
  // rank has used since the last synchronised pass keeps its gradient, bit for bit. The gradient of
  // a parameter that some rank has used becomes the average. The other ranks contribute what their
  // gradient holds: zeros after ZeroGrad().
  //
  // Buckets with missing gradients are reduced in Finish(). One more all-reduce, of a byte per
  // parameter, exchanges who used what. The option costs a copy of the gradients that this rank did
  // not use. On a GPU that takes as much memory as all gradients. There Finish() waits for the
  // other ranks' hosts, which exchange this, and for no device. A step of a StepGraph cannot do so,
  // and is refused. Equal on all ranks.
  bool find_unused_parameters = false;
  // As find_unused_parameters, with a promise: each rank uses the same parameters in every pass
  // (PyTorch's option of this name). The first synchronised pass finds out which. From the second
  // on, reduction overlaps backward, and only the gradients are reduced. A pass that uses another
  // parameter is FailedPrecondition with its name.
  //
  // A parameter may be announced several times in a pass, for example if parts of the model run
  // twice. It must be announced as often as in the first pass, and the last time counts. On a GPU
  // the option takes memory for the gradients that no rank uses. From the second pass on the host
  // waits for no other rank, and a step can be captured. Equal on all ranks.
  bool static_graph = false;
  // Fills the buckets again, once, at the end of the first synchronised pass. They are filled in
  // the order in which rank 0's gradients came, so that no bucket waits for a gradient that always
  // comes late. PyTorch's Reducer does so too, and moves the gradients. Here gradients stay where
  // they are: a bucket is then an AllReduceCoalesced() of runs of adjacent gradients.
  // bucket_count() may change. That pass's Finish() broadcasts an integer for each parameter.
  //
  // Finalize() is InvalidArgument with find_unused_parameters, as in PyTorch, unless static_graph
  // is set. The option excludes a communication hook. Equal on all ranks.
  bool rebuild_buckets = false;
  // Whether BroadcastBuffers() does anything. Equal on all ranks.
  bool broadcast_buffers = true;
  // Finish() leaves each rank only the averages of its shard of the gradients, 1/N of each bucket,
  // and the rest undefined. Buckets are reduced by a reduce-scatter. This is for
  // ZeroRedundancyOptimizer: its Step() and a ZeroGrad() come before the next pass. A rank that
  // forgets them gets an error, and the others wait for it until the timeout.
  //
  // Parameters must not share memory (tied weights). ClipGradNorm() and CountNonFinite() are
  // collective then, over the averages of all ranks. Neither a hook nor Join works. Finalize() is
  // InvalidArgument with rebuild_buckets or gradients in memory of the program's own. Equal on all
  // ranks.
  bool shard_gradients = false;
  // CUDA: the stream on which the program has written its parameters before Finalize(). It is also
  // the stream of all calls that name none. Null is the legacy default stream, which does not wait
  // for non-blocking streams.
  Stream stream = nullptr;
};

// When one bucket was reduced.
struct BucketTimes {
  ReductionTimes::TimePoint ready;  // its last gradient was there
  ReductionTimes::TimePoint started, ended;
};

// Keeps the replicas of a model on all ranks equal. Every rank starts from rank 0's parameters, and
// every backward pass ends with each gradient averaged over the ranks. From the first step on,
// reduction runs on the communicator's thread during backward.
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
// The class depends on no framework: parameters are pointer, count and type. One thread at a time
// calls it. It borrows the communicator and the parameters' memory, which both must outlive it. It
// never throws. An error on a background thread is the result of the next call, and is final.
class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(Communicator& communicator,
                                   DistributedDataParallelOptions options = {});
  // REQUIRES (CUDA): the streams that were passed in still exist, and graphs with the gradients are
  // done.
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Registers `count` elements at `data`, which stay there. Returns the parameter's id, counted
  // from 0. Register parameters in the order in which forward uses them. Buckets are filled from
  // the last to the first, the order in which backward delivers gradients. Every registered
  // parameter takes part in every synchronised backward pass, unless options say otherwise.
  //
  // Types may differ in one model, for example float32 and bfloat16. A bucket holds one type, in
  // which its gradients are averaged. In host memory the averages of two ranks are PyTorch's bit
  // for bit. Those of more ranks differ in the last bits, because sums are rounded once here
  // (ReduceOp). If the parameter is wrong, Finalize() fails with the reason.
  int AddParameter(const std::string& name, void* data, size_t count, DType dtype);

  // As above, with a gradient in memory of the program's own or of a framework: `count` elements,
  // which must outlive this object. They are reduced where they are. The library does not set them
  // to 0 before the first pass. Register all parameters on all ranks so, or none. A bucket is an
  // AllReduceCoalesced() of its gradients. On the CPU that copies them, which the library's memory
  // avoids. With NCCL it is a group of all-reduces. Finalize() is InvalidArgument for a null
  // pointer and for another count than the parameter's. It also is for memory of another tensor,
  // and for memory that is not aligned to its elements.
  int AddParameter(const std::string& name, void* data, size_t count, DType dtype, Piece gradient);

  // Registers state of the model that has no gradient, such as the running mean of a batch norm,
  // before Finalize(). Its name must differ from those of parameters.
  void AddBuffer(const std::string& name, void* data, size_t count, DType dtype);

  // Makes the replicas equal and allocates the gradients. Collective, once, after the last
  // AddParameter. It checks that all ranks registered the same names, counts and types in the same
  // order and chose the same options. It replaces all ranks' parameters and buffers by rank 0's,
  // after what is on the options' stream. It allocates the gradients, zeroed. When it returns, all
  // of this is done, for any stream. Errors:
  // - InvalidArgument names the parameter and the rank.
  // - The driver's error, the same on all ranks, if a GPU cannot cast what is to be compressed.
  // - The communicator's errors.
  absl::Status Finalize();

  // Makes `hook` reduce the buckets from the next pass on (PyTorch's register_comm_hook). Call it
  // once, between passes, the same on all ranks. Errors:
  // - FailedPrecondition before Finalize(), in a pass, and for a second hook.
  // - FailedPrecondition with rebuild_buckets, gradients of the program's own, and `compression`,
  //   which is a hook already.
  // - InvalidArgument for an empty hook.
  absl::Status RegisterCommHook(CommHook hook);

  // The address of a parameter's gradient, which never changes: `count` elements of its type, at a
  // multiple of 64 bytes. It is inside the bucket that is reduced, so nothing is copied, unless it
  // is the program's own memory. After Finish() it holds the average over the ranks. You may add to
  // it without a ZeroGrad() between, as in PyTorch. Null before Finalize() succeeded, and for an id
  // that AddParameter did not return.
  void* GradientPtr(int id) const;

  // Announces that the gradient of `id` is complete for this pass. It must not be changed until
  // Finish(). `stream` is the one that computed it, the same for all of a pass. The default is the
  // options' stream, and the CPU ignores it. This and the other calls of a pass may come from any
  // thread, one after the other. If two come at the same time, the later one is FailedPrecondition.
  // FailedPrecondition also, with the parameter's name, for a gradient marked ready twice, or if
  // Finish() was forgotten.
  //
  // Gradients that are reduced without an announcement in the pass (find_unused_parameters, NoSync)
  // are read on its stream, too. A pass without any gradient reads them on the stream of the last
  // ZeroGrad(), Finish() or GradientReady(). If another stream wrote them, the program must order
  // it before this stream by an event.
  absl::Status GradientReady(int id, std::optional<Stream> stream = std::nullopt);

  // Ends a pass. On the CPU every gradient is the average when this returns. On CUDA it is for what
  // comes later on `stream`, the optimizer's, and the host does not wait. With
  // find_unused_parameters the host waits for other ranks' hosts, at most the communicator's
  // timeout. Under NoSync the call does nothing else.
  //
  // `stream` is by default the options'. If the gradients of the pass came on another stream, the
  // default is InvalidArgument. The pass then continues until a Finish() that names a stream. Other
  // errors:
  // - FailedPrecondition names the parameters that got no gradient, if all must. It also aborts the
  //   communicator, since the other ranks would wait in vain.
  // - The communicator's errors.
  // - If there is no other error: that of the first GradientReady() since the last Finish() that
  //   was refused for its parameter or its stream. The pass has ended then, and the next may begin.
  absl::Status Finish(std::optional<Stream> stream = std::nullopt);

  // Replaces all ranks' buffers by rank 0's. Collective, before each forward pass of training, if
  // there are buffers. It works after what is on `stream` and before what comes later on it. As in
  // PyTorch, it does nothing if the forward pass before this one was under NoSync. So buffers
  // become equal once per optimizer step and not at each of its passes. Errors: FailedPrecondition
  // between GradientReady() and Finish(), and the communicator's.
  absl::Status BroadcastBuffers(std::optional<Stream> stream = std::nullopt);

  // While a NoSyncGuard lives, backward passes are local: gradients add up. The next pass without
  // it reduces the sums. Nothing is divided by the number of passes, so scale the loss. Take it
  // before forward. With `is_active` = false it has no effect.
  class NoSyncGuard {
   public:
    NoSyncGuard(NoSyncGuard&& other) noexcept;
    NoSyncGuard& operator=(NoSyncGuard&&) = delete;
    ~NoSyncGuard();

   private:
    friend class DistributedDataParallel;
    explicit NoSyncGuard(int* depth);
    int* depth_;  // null without effect or after a move
  };
  [[nodiscard]] NoSyncGuard NoSync(bool is_active = true);

  // For ranks with different numbers of batches (PyTorch's Join):
  //
  //   absl::StatusOr<DistributedDataParallel::JoinGuard> join = ddp.Join();
  //   while (there is a batch) { ...; status = ddp.Finish(); optimizer step }
  //   status = join->Wait();
  //
  // A rank without batches takes part in what the others do, with zeros for gradients, until no
  // rank has a batch. Then all get the parameters and buffers of the last rank that had one.
  // Averages are over all ranks. Without `divide_by_initial_world_size` they are over the ranks
  // that still have batches. A communication hook makes its own averages. Buffers are those of the
  // highest rank with batches.
  //
  // In the loop, ranks call no other collective, and neither capture nor replay a StepGraph. Join
  // costs a small all-gather in host memory for each synchronised pass and each broadcast of
  // buffers. On a GPU the host waits for the other ranks' hosts there, and for no device.
  class JoinGuard {
   public:
    JoinGuard(JoinGuard&& other) noexcept;
    JoinGuard& operator=(JoinGuard&&) = delete;
    // Without a Wait() it aborts the communicator, since the other ranks would wait in vain.
    ~JoinGuard();
    // Takes part in the others' passes, because this rank has no batch left. Its gradients are set
    // to 0. Afterwards they are the others' averages, if there are any. On a GPU all this, and the
    // last rank's model, is in the order of the Join's stream. Call it once. An error is final for
    // the group: the communicator's, or FailedPrecondition in the middle of a pass.
    absl::Status Wait();

   private:
    friend class DistributedDataParallel;
    explicit JoinGuard(DistributedDataParallel* owner) : owner_(owner) {}
    DistributedDataParallel* owner_;  // null after Wait() or a move
  };
  // Begins a Join. All ranks call it with the same choice, between passes. This object must outlive
  // the guard. On CUDA Wait() works on `stream`, by default the options'. Name the optimizer's
  // stream, which has written the parameters and read the gradients. If a ZeroGrad() was on another
  // stream, without a pass after it, the program must make this stream wait for it. Errors:
  // - FailedPrecondition before Finalize(), in a pass and in another Join.
  // - Unimplemented with static_graph and with shard_gradients.
  // - InvalidArgument for integers that would have to be scaled.
  // - The driver's error, the same on all ranks, if a GPU cannot compute what is needed.
  absl::StatusOr<JoinGuard> Join(bool divide_by_initial_world_size = true,
                                 std::optional<Stream> stream = std::nullopt);

  // With find_unused_parameters or static_graph: whether any rank had used the parameter when the
  // last synchronised pass ended, so that its gradient became an average. Otherwise true.
  bool WasUsed(int id) const;

  // Sets all gradients to 0: at once (CPU), or in the order of `stream`, by default the options'
  // (CUDA). FailedPrecondition between GradientReady() and Finish().
  absl::Status ZeroGrad(std::optional<Stream> stream = std::nullopt);

  // Scales all gradients so that their norm, as if they were one vector, is at most `max_norm`.
  // Returns the norm that they had, as torch.nn.utils.clip_grad_norm_. Call it after Finish():
  // gradients are averages then, so all ranks compute the same without communication. `norm_type`
  // is the order of the norm: above 0, also infinity. Sums are made in double, torch's in the type
  // of each gradient.
  //
  // If a gradient is NaN or infinite, so is the norm, and scaling by it leaves NaN and zeros. With
  // `error_if_nonfinite` that is FailedPrecondition instead, and nothing is scaled. On CUDA it
  // works after what is on `stream`, by default that of the last Finish() or Wait(). The host waits
  // for the norm, until DeadlineExceeded after the group's timeout. The scaling is queued. It fails
  // with FailedPrecondition in a step that a StepGraph captures, and with the driver's error if
  // that cannot compile the kernels.
  absl::StatusOr<double> ClipGradNorm(double max_norm, double norm_type = 2,
                                      bool error_if_nonfinite = false,
                                      std::optional<Stream> stream = std::nullopt);

  // Counts the NaN and infinite elements of all gradients, in one pass over them. The reduction
  // lets such values pass, so after Finish() a rank's NaN is every rank's. Before Finish() the
  // ranks' counts differ. FailedPrecondition between GradientReady() and Finish(), and on a GPU as
  // ClipGradNorm().
  //
  // Use it to scale the loss as torch.amp.GradScaler does. The loss is multiplied by `scale`. After
  // Finish() all ranks find the same count and need no communication to decide whether to skip the
  // step:
  //
  //   if (*ddp.CountNonFinite() > 0) { scale /= 2; good_steps = 0; continue; }
  //   divide the gradients by scale; ClipGradNorm(); optimizer step
  //   if (++good_steps == 2000) { scale *= 2; good_steps = 0; }
  absl::StatusOr<size_t> CountNonFinite(std::optional<Stream> stream = std::nullopt);

  // Times of the last pass that Finish() ended (CPU). On CUDA: of the last pass with times that the
  // device has reported by now, usually the one before. Replays of a StepGraph are such passes,
  // too. If a host is more than 8 passes ahead, the times of some are lost.
  ReductionTimes last_reduction() const;
  // Times of the same pass, bucket by bucket, in the order of the reductions. Empty before the
  // first.
  std::vector<BucketTimes> last_buckets() const;
  // The number of buckets, 0 before Finalize().
  int bucket_count() const;
  // Whether bucket `bucket` of the present pass is reduced already, so that backward and
  // communication overlap. It then holds the average. A compressed bucket holds it only from
  // Finish() on. False between passes.
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
  // For sharded gradients.
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
  // What sharded gradients hold: this rank's own values, the averages in its shard, or nothing
  // after a Step().
  enum class Averages : uint8_t { kNone, kInShard, kSpent };
  Averages averages_ = Averages::kNone;
  // CUDA: the stream of the averages, or of the parameters that replace them.
  Stream averages_stream_;
  std::unique_ptr<internal::GradientReducer> reducer_;  // null until Finalize() succeeded
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DISTRIBUTED_DATA_PARALLEL_H_
