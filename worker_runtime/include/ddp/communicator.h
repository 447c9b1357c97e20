// Collectives between the ranks of one group.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_COMMUNICATOR_H_
#define DDPRUN_WORKER_RUNTIME_DDP_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/dtype.h"

namespace ddp {

struct Tensor;

namespace internal {
class DeviceTimer;
class GradientArithmetic;
class GraphCapture;
}  // namespace internal

// Where memory is. The CPU backends take only kCpu, `nccl` takes only kCuda. Groups on GPUs have a
// communicator for host memory in addition: Communicator::host().
enum class DeviceType : uint8_t { kCpu, kCuda };

// A CUstream (= cudaStream_t) as an opaque pointer; null for the CPU backends.
using Stream = void*;

// One operation under way. The caller owns it. If the caller drops it, the operation continues.
class Work {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Work() = default;

  // Blocks the host until the operation has ended, at most until its timeout. Errors:
  // - DeadlineExceeded or Unavailable names the ranks that did not arrive.
  // - Aborted after Abort().
  // - InvalidArgument for a call that was refused, or that does not match the other ranks'. If NCCL
  //   completed such calls, a later one ends with DataLoss.
  virtual absl::Status Wait() = 0;
  // Blocks the host for at most `patience`, and returns IsDone(). It is for a caller that has
  // signals or other works to look after. Unlike Wait() it executes nothing. A program's own Work
  // without this function looks once.
  virtual bool WaitFor(std::chrono::milliseconds /*patience*/) const { return IsDone(); }
  // Makes `stream` wait for the operation. The host waits only until the operation was enqueued.
  // Null is the legacy default stream. CPU backends: Wait().
  virtual absl::Status WaitOn(Stream stream) = 0;
  // An operation in a StepGraph is done once a replay with known times is done. Its times are those
  // of the last such replay.
  virtual bool IsDone() const = 0;
  // The call was refused at once, for its arguments or because the group had failed. Wait() has the
  // reason. This asks no device.
  virtual bool was_refused() const { return false; }
  // Why it has not ended: "ranks 1 and 3 did not arrive". Empty if this rank does not know: about
  // ranks on other hosts, for operations on GPUs, and after the end.
  virtual std::string missing() const { return ""; }
  // The rank that sent the message of a Receive(). It is -1 before, and for all other operations.
  virtual int source() const { return -1; }
  // CUDA: when `stream` reached the call, so that the data was ready. It is valid once IsDone().
  // CPU: started_at().
  virtual Clock::time_point issued_at() const;
  // When the operation began and ended on this rank. Valid once IsDone().
  virtual Clock::time_point started_at() const = 0;
  virtual Clock::time_point ended_at() const = 0;
};

// Elements of an AllReduceCoalesced().
struct Piece {
  void* data = nullptr;
  size_t count = 0;
};

// Memory that a communicator can reduce without a copy (shm: shared pages; nccl: registered). The
// destructor frees it. REQUIRES: it is destroyed before its communicator. CUDA: the last 8 streams
// that calls named must exist until then. The destructor waits for what is on them, 5 s at most.
// After that it leaves the memory to the end of the process. REQUIRES (CUDA): what uses the memory
// on other streams, or in a graph, is done before.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
  // Sets all bytes to 0: at once (CPU) or in the order of `stream` (CUDA).
  virtual absl::Status Zero(Stream stream);
  // Copies `bytes` between this memory and other memory of its kind, which must not overlap: at
  // once (CPU) or in the order of `stream` (CUDA).
  virtual absl::Status Copy(void* to, const void* from, size_t bytes, Stream stream);
};

// Casts between float32 and one 16-bit type in a communicator's memory. The CPU does it at once.
// CUDA does it in the order of `stream`, and the host does not wait. The two buffers must not
// overlap.
class HalfCasts {
 public:
  virtual ~HalfCasts() = default;
  // output[i] = round(input[i] / divisor), to nearest even. CUDA multiplies by the reciprocal.
  virtual absl::Status Narrow(const float* input, void* output, size_t count, int divisor,
                              Stream stream) = 0;
  // output[i] = input[i]
  virtual absl::Status Widen(const void* input, float* output, size_t count, Stream stream) = 0;
};

// Hashes of tensors in a communicator's memory on a device, for ReplicaCheck.
class TensorHash {
 public:
  virtual ~TensorHash() = default;
  // Returns a number for each tensor, after all that is on `stream`, and waits for it. Equal bits
  // have equal numbers on all ranks.
  virtual absl::StatusOr<std::vector<int64_t>> Of(std::span<const Tensor> tensors,
                                                  Stream stream) = 0;
};

// A group's collectives. Every rank calls the same operations with the same counts and types in the
// same order. The communicator executes operations in the order of the calls, on a thread (or
// stream) of its own. Each call returns a Work at once. Calls come from one thread at a time. A
// call of `nccl` returns when the operation is on the stream. At the first use of another rank NCCL
// connects to it. The call then also waits until that rank makes it, or until the timeout.
//
// CPU backends combine in one canonical order: ascending global rank, in the accumulator that
// ReduceOp names, rounded once at the end. So `local`, `shm`, `tcp` and their combination give
// equal bits for the same world size.
//
// Counts are elements. 0 is allowed, then also with null pointers. Buffers must stay valid and
// unchanged until the Work is done.
//
// A call with wrong arguments on this rank is refused. Wrong are:
// - elements at a null pointer, more elements than can be addressed, or a rank outside the group;
// - an input and an output that overlap, except in the ways in place that an operation names;
// - memory on the wrong device or, on a GPU, memory that is not aligned.
//
// The Work of a refused call ends with InvalidArgument at once, and the group continues as if the
// call had not been made. The next call meets the one for which the other ranks wait, until their
// timeout. So look at every Work: after a refusal that you missed, calls of one shape meet the
// wrong ones. After any other error, or Abort(), every later call fails with the first error.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // "local", "shm", "tcp" (also for tcp combined with shm), "nccl".
  virtual const char* backend() const = 0;
  virtual DeviceType device_type() const = 0;

  // The communicator of the same ranks for host memory. It is this one, unless this is `nccl`.
  virtual Communicator& host() { return *this; }

  // For StepGraph. Null in host memory: operations there cannot be part of a CUDA graph.
  virtual internal::GraphCapture* graph_capture() { return nullptr; }

  // For StepMetrics. Null if the host does the work itself.
  virtual internal::DeviceTimer* device_timer() { return nullptr; }

  // Bounds every operation called from now on. Until then the group's own timeout does. The time
  // begins with the call. A program may run far ahead of a GPU. There the time begins when the
  // operations before it are done. Ranks may differ.
  virtual void SetTimeout(std::chrono::milliseconds) {}

  // Memory for AllReduce in place without a copy. Collective: every rank asks for the same size in
  // the same order. The memory is zeroed. A size that cannot be addressed is refused like a call.
  // If a rank has no memory, the group ends, so that no other rank waits for it.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;

  // Makes casts for gradients that travel in 16 bits. `type` is float16 or bfloat16. Not
  // collective. Only `nccl` has them. The others return Unimplemented, because host memory needs no
  // device. The communicator must outlive them.
  virtual absl::StatusOr<std::unique_ptr<HalfCasts>> MakeHalfCasts(DType type);

  // Makes a hash for ReplicaCheck. Not collective. Only `nccl` has it. The others return
  // Unimplemented, because there the host hashes. The communicator must outlive it.
  virtual absl::StatusOr<std::unique_ptr<TensorHash>> MakeTensorHash();

  // For ClipGradNorm() and its like. Null if the host computes.
  virtual internal::GradientArithmetic* gradient_arithmetic() { return nullptr; }

  // Reduces the `data` of all ranks, in place. `stream` is the one that produced `data` (null on
  // the CPU).
  virtual std::unique_ptr<Work> AllReduce(void* data, size_t count, DType dtype, ReduceOp op,
                                          Stream stream = nullptr) = 0;
  // The same for several pieces of one type, in place, as one operation, like torch.distributed's
  // all_reduce_coalesced. The CPU joins pieces until they have 64 KiB, so that small ones wait for
  // the other ranks once. NCCL gets them as one group. All ranks have the same number of pieces, of
  // the same counts in the same order.
  virtual std::unique_ptr<Work> AllReduceCoalesced(std::vector<Piece> pieces, DType dtype,
                                                   ReduceOp op, Stream stream = nullptr) = 0;
  // Copies the `data` of `root` to all ranks.
  virtual std::unique_ptr<Work> Broadcast(void* data, size_t count, DType dtype, int root,
                                          Stream stream = nullptr) = 0;
  // Gives all ranks the `input` of all ranks. `output` holds world_size * count elements, rank r's
  // at r * count. In place if `input` is this rank's part of it: output + rank * count.
  virtual std::unique_ptr<Work> AllGather(const void* input, void* output, size_t count,
                                          DType dtype, Stream stream = nullptr) = 0;
  // Gives each rank its slice of the reduced `input` in `output`. `input` holds world_size * count
  // elements. In place if it is this rank's part of the input: input + rank * count. The rest of
  // the input stays as it is.
  virtual std::unique_ptr<Work> ReduceScatter(const void* input, void* output, size_t count,
                                              DType dtype, ReduceOp op,
                                              Stream stream = nullptr) = 0;
  // Gives `root` what an all-reduce would, in its `output`. The other ranks' output is not used,
  // and may be null. In place if it is the input.
  virtual std::unique_ptr<Work> Reduce(const void* input, void* output, size_t count, DType dtype,
                                       ReduceOp op, int root, Stream stream = nullptr) = 0;
  // Gives `root` the `input` of all ranks. Its `output` gets world_size * count elements, rank r's
  // at r * count. The other ranks' output is not used, and may be null. In place on the root if
  // `input` is its part of the output.
  virtual std::unique_ptr<Work> Gather(const void* input, void* output, size_t count, DType dtype,
                                       int root, Stream stream = nullptr) = 0;
  // Gives each rank its part of the `input` of `root`. That holds world_size * count elements, rank
  // r's at r * count. The other ranks' input is not used, and may be null. In place on the root if
  // `output` is its part of the input.
  virtual std::unique_ptr<Work> Scatter(const void* input, void* output, size_t count, DType dtype,
                                        int root, Stream stream = nullptr) = 0;
  // Exchanges equal parts between all ranks. Both hold world_size * count elements. Those at r *
  // count go to rank r, and come from rank r. Not in place. Like torch.distributed's
  // all_to_all_single with equal parts.
  virtual std::unique_ptr<Work> AllToAll(const void* input, void* output, size_t count, DType dtype,
                                         Stream stream = nullptr) = 0;
  // Sends `count` elements to rank `destination` while the same number comes from rank `source`. A
  // -1 means no rank. What a rank sends to itself it receives from itself. Collective: every rank
  // calls it. A rank receives what another one sends to it, with the same count and type. If two
  // ranks disagree, host memory's backends return InvalidArgument on all ranks and name the two.
  // With `nccl` the ranks wait until their timeout. Over `tcp` data for a node further on passes
  // through the nodes between. Messages that share a link go one after the other.
  virtual std::unique_ptr<Work> SendReceive(const void* input, int destination, void* output,
                                            int source, size_t count, DType dtype,
                                            Stream stream = nullptr) = 0;
  // Done when every rank has called it.
  virtual std::unique_ptr<Work> Barrier() = 0;

  // A message to one other rank. It is separate from the collectives, and the other ranks call
  // nothing. It goes to the first Receive() there with the same tag, from this rank or from any
  // (-1). Messages of one tag arrive in the order of the calls. A send is done when the data may be
  // changed, which is not before the receiver has asked for it. Any number may be under way. Any
  // thread.
  //
  // Errors are the message's own, and the group continues: DeadlineExceeded; Unavailable if the
  // other rank is gone; InvalidArgument on both for sizes that differ. The result is null on GPUs:
  // there host() has the messages.
  virtual std::unique_ptr<Work> Send(const void* /*data*/, size_t /*count*/, DType /*dtype*/,
                                     int /*destination*/, uint64_t /*tag*/ = 0) {
    return nullptr;
  }
  virtual std::unique_ptr<Work> Receive(void* /*data*/, size_t /*count*/, DType /*dtype*/,
                                        int /*source*/, uint64_t /*tag*/ = 0) {
    return nullptr;
  }

  // Writes the last operations of this rank as JSON into a new file and returns its path. It is for
  // a program that seems to hang. The file has their times and states, host, process and time of
  // day. `nccl` also writes it when an operation times out. The directory is
  // $DDPRUN_FLIGHT_RECORDER_DIR, else $TMPDIR, else "/tmp". Any thread.
  virtual absl::StatusOr<std::string> DumpOperations() = 0;

  // Ends everything under way with Aborted, on this rank and on all others that can be reached. Any
  // thread, any number of times.
  virtual void Abort(const std::string& reason) = 0;
  // The first error of any operation or peer. Ok before any error.
  virtual absl::Status error() const = 0;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_COMMUNICATOR_H_
