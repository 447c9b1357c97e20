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

// Where memory lives. The CPU backends take kCpu only; `nccl` takes kCuda only. Groups on GPUs have
// a communicator for host memory as well: Communicator::host().
enum class DeviceType : uint8_t { kCpu, kCuda };

// A CUstream (= cudaStream_t) as an opaque pointer; null for the CPU backends.
using Stream = void*;

// One operation under way. Owned by the caller; may be dropped, the operation goes on.
class Work {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Work() = default;

  // Blocks the host until the operation ended, at most until its timeout. Errors: DeadlineExceeded
  // or Unavailable naming the ranks that did not arrive, Aborted after Abort(), InvalidArgument for
  // a call that was refused, or that does not match the other ranks'; where NCCL completed such
  // calls, DataLoss from a later one.
  virtual absl::Status Wait() = 0;
  // Blocks the host for at most `patience`, and returns IsDone(). For a caller that has signals or
  // other works to look after: unlike Wait() it executes nothing itself. A Work of a program's own
  // that does not have it looks once.
  virtual bool WaitFor(std::chrono::milliseconds /*patience*/) const { return IsDone(); }
  // Makes `stream` wait for the operation; the host waits no longer than until it was enqueued.
  // Null is the legacy default stream. CPU backends: Wait().
  virtual absl::Status WaitOn(Stream stream) = 0;
  // An operation in a StepGraph is done once a replay was whose times are known: those of the last
  // such replay are its own.
  virtual bool IsDone() const = 0;
  // The call was turned down at once, for its arguments or as the group had failed, and Wait() says
  // why. Asks no device.
  virtual bool was_refused() const { return false; }
  // Why it has not ended: "ranks 1 and 3 did not arrive". Empty where this rank does not know: of
  // ranks on other hosts, of operations on GPUs, and where it has ended.
  virtual std::string missing() const { return ""; }
  // The rank from which a Receive() has its message; -1 before, and for all other operations.
  virtual int source() const { return -1; }
  // CUDA: when `stream` came to the call, so that the data was ready; valid once IsDone(). CPU:
  // started_at().
  virtual Clock::time_point issued_at() const;
  // When the operation began and ended on this rank; valid once IsDone().
  virtual Clock::time_point started_at() const = 0;
  virtual Clock::time_point ended_at() const = 0;
};

// Elements of an AllReduceCoalesced().
struct Piece {
  void* data = nullptr;
  size_t count = 0;
};

// Memory that a communicator can reduce without a copy (shm: shared pages; nccl: registered).
// Freed by the destructor. REQUIRES: destroyed before its communicator. CUDA: the last 8 streams
// that calls named exist until then. The destructor waits for what is on them, 5 s at most;
// otherwise it leaves the memory to the end of the process. REQUIRES (CUDA): what uses the memory
// on other streams, or in a graph, is done before.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
  // Sets all bytes to 0: at once (CPU) or in the order of `stream` (CUDA).
  virtual absl::Status Zero(Stream stream);
  // Copies `bytes` between this memory and other memory of its kind, which do not overlap: at once
  // (CPU) or in the order of `stream` (CUDA).
  virtual absl::Status Copy(void* to, const void* from, size_t bytes, Stream stream);
};

// Casts between float32 and one 16-bit type in a communicator's memory: at once (CPU), or in the
// order of `stream` while the host goes on (CUDA). The two buffers do not overlap.
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
  // A number for each tensor, behind all that is on `stream`, which it waits for. Equal bits have
  // equal numbers on all ranks.
  virtual absl::StatusOr<std::vector<int64_t>> Of(std::span<const Tensor> tensors,
                                                  Stream stream) = 0;
};

// A group's collectives. Every rank calls the same operations with the same counts and types in
// the same order. Operations are executed in the order of the calls on a thread (or stream) of the
// communicator's own; each returns a Work at once. Calls come from one thread at a time. A call of
// `nccl` returns when the operation is on the stream: at the first use of another rank NCCL
// connects to it, so that the call waits for that rank to make it as well, until the timeout.
//
// CPU backends combine in one canonical order - ascending global rank, in the accumulator that
// ReduceOp names, rounded once at the end - so that `local`, `shm`, `tcp` and their combination
// give equal bits for the same world size.
//
// Counts are elements, and 0 is allowed, then with null pointers too. Buffers stay valid and
// untouched until the Work is done.
//
// A call whose arguments are wrong on this rank is refused: elements at a null pointer, more of
// them than can be addressed, a rank outside the group, an input and an output that overlap (but
// for the ways in place that an operation names), memory on the wrong device or, on a GPU, not
// aligned. Its Work ends with InvalidArgument at once, and the group goes on as if it had not been
// made: the next call is the one that meets the other ranks', which wait for it, until their
// timeout. So look at every Work: behind a refusal that nobody saw, calls of one shape meet the
// wrong ones. After any other error, or Abort(), every later call fails with the first error.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // "local", "shm", "tcp" (also where tcp and shm are combined), "nccl".
  virtual const char* backend() const = 0;
  virtual DeviceType device_type() const = 0;

  // The communicator of the same ranks for host memory: this one, unless it is `nccl`.
  virtual Communicator& host() { return *this; }

  // For StepGraph. Null where operations cannot be part of a CUDA graph: in host memory.
  virtual internal::GraphCapture* graph_capture() { return nullptr; }

  // For StepMetrics. Null where the host does the work itself.
  virtual internal::DeviceTimer* device_timer() { return nullptr; }

  // Bounds every operation called from now on; the group's own timeout until then. Its time begins
  // with the call; on a GPU, where a program may run far ahead, when the operations before it are
  // done. Ranks may differ.
  virtual void SetTimeout(std::chrono::milliseconds) {}

  // Memory for AllReduce in place without a copy. Collective: every rank asks for the same size in
  // the same order. The memory is zeroed. A size that cannot be addressed is refused as a call is;
  // one for which a rank has no memory ends the group, so that no other waits for that rank.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;

  // For gradients that travel in 16 bits; `type` is float16 or bfloat16. Not collective. `nccl`
  // only; Unimplemented elsewhere, where host memory needs no device. The communicator outlives it.
  virtual absl::StatusOr<std::unique_ptr<HalfCasts>> MakeHalfCasts(DType type);

  // For ReplicaCheck. Not collective. `nccl` only; Unimplemented elsewhere, where the host hashes.
  // The communicator outlives it.
  virtual absl::StatusOr<std::unique_ptr<TensorHash>> MakeTensorHash();

  // For ClipGradNorm() and its like. Null where the host computes.
  virtual internal::GradientArithmetic* gradient_arithmetic() { return nullptr; }

  // In place; `stream` is where `data` was produced (null on the CPU).
  virtual std::unique_ptr<Work> AllReduce(void* data, size_t count, DType dtype, ReduceOp op,
                                          Stream stream = nullptr) = 0;
  // The same for several pieces of one type, in place, as one operation: on the CPU pieces go
  // together until they have 64 KiB, so that small ones wait for the others once; NCCL gets them as
  // one group. All ranks have as many pieces, of the same counts in the same order. As
  // torch.distributed's all_reduce_coalesced.
  virtual std::unique_ptr<Work> AllReduceCoalesced(std::vector<Piece> pieces, DType dtype,
                                                   ReduceOp op, Stream stream = nullptr) = 0;
  // `data` of `root` replaces everybody's.
  virtual std::unique_ptr<Work> Broadcast(void* data, size_t count, DType dtype, int root,
                                          Stream stream = nullptr) = 0;
  // `output` holds world_size * count elements, rank r's at r * count. In place where `input` is
  // this rank's part of it: output + rank * count.
  virtual std::unique_ptr<Work> AllGather(const void* input, void* output, size_t count,
                                          DType dtype, Stream stream = nullptr) = 0;
  // `input` holds world_size * count elements; `output` gets the reduced slice of this rank. In
  // place where it is this rank's part of the input: input + rank * count; the rest of the input
  // stays as it is.
  virtual std::unique_ptr<Work> ReduceScatter(const void* input, void* output, size_t count,
                                              DType dtype, ReduceOp op,
                                              Stream stream = nullptr) = 0;
  // `output` of `root` gets what an all-reduce would; the others' is not looked at, and may be
  // null. In place where it is the input.
  virtual std::unique_ptr<Work> Reduce(const void* input, void* output, size_t count, DType dtype,
                                       ReduceOp op, int root, Stream stream = nullptr) = 0;
  // `output` of `root` gets world_size * count elements, rank r's at r * count; the others' is not
  // looked at, and may be null. In place on the root where `input` is its part of the output.
  virtual std::unique_ptr<Work> Gather(const void* input, void* output, size_t count, DType dtype,
                                       int root, Stream stream = nullptr) = 0;
  // `input` of `root` holds world_size * count elements, of which rank r gets those at r * count;
  // the others' is not looked at, and may be null. In place on the root where `output` is its part
  // of the input.
  virtual std::unique_ptr<Work> Scatter(const void* input, void* output, size_t count, DType dtype,
                                        int root, Stream stream = nullptr) = 0;
  // Both hold world_size * count elements: those at r * count go to rank r, and come from rank r.
  // Not in place. As torch.distributed's all_to_all_single with equal parts.
  virtual std::unique_ptr<Work> AllToAll(const void* input, void* output, size_t count, DType dtype,
                                         Stream stream = nullptr) = 0;
  // Sends `count` elements to rank `destination` while as many come from rank `source`; -1 is
  // nobody, and what a rank sends to itself it receives from itself. Collective: every rank calls
  // it, and what one sends to another is received there, with the same count and type. Where it is
  // not, host memory's backends tell all ranks with InvalidArgument which two disagree; with `nccl`
  // they wait until their timeout. Over `tcp` what goes past a node passes through it, and messages
  // that share a link go one after the other.
  virtual std::unique_ptr<Work> SendReceive(const void* input, int destination, void* output,
                                            int source, size_t count, DType dtype,
                                            Stream stream = nullptr) = 0;
  // Done when every rank has called it.
  virtual std::unique_ptr<Work> Barrier() = 0;

  // A message to one other rank, apart from the collectives and beside them: nobody else calls. It
  // goes to the first Receive() there from this rank, or from any (-1), with the same tag; messages
  // of one tag arrive in the order of the calls. A send is done when the data may be changed, which
  // is not before they have been asked for. Any number may be under way; any thread calls.
  //
  // Errors are the message's own, and the group goes on: DeadlineExceeded, Unavailable when the
  // other is gone, InvalidArgument on both for sizes that differ. Null on GPUs: messages are
  // host()'s.
  virtual std::unique_ptr<Work> Send(const void* /*data*/, size_t /*count*/, DType /*dtype*/,
                                     int /*destination*/, uint64_t /*tag*/ = 0) {
    return nullptr;
  }
  virtual std::unique_ptr<Work> Receive(void* /*data*/, size_t /*count*/, DType /*dtype*/,
                                        int /*source*/, uint64_t /*tag*/ = 0) {
    return nullptr;
  }

  // Writes the last operations of this rank, with their times and states, host, process and time of
  // day as JSON into a new file and returns its path: for a program that looks stuck. `nccl` also
  // does it when an operation times out. The file's directory:
  // $DDPRUN_FLIGHT_RECORDER_DIR, else $TMPDIR, else "/tmp". Any thread.
  virtual absl::StatusOr<std::string> DumpOperations() = 0;

  // Ends everything under way with Aborted, on this rank and, as far as they can be reached, on
  // the others. Safe from any thread, any number of times.
  virtual void Abort(const std::string& reason) = 0;
  // The first error, from whichever operation or peer; Ok while there is none.
  virtual absl::Status error() const = 0;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_COMMUNICATOR_H_
