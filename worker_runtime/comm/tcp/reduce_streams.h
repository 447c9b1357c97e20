// The arithmetic between the streams of a sum: what may move when, and what is added where.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_REDUCE_STREAMS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_REDUCE_STREAMS_H_

#include <cstddef>
#include <vector>

#include "ddp/dtype.h"
#include "worker_runtime/comm/kernels.h"
#include "worker_runtime/comm/tcp/stream.h"

namespace ddp::internal {

// What one node has and gets of a reduction.
struct ReduceJob {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  size_t count = 0;
  int divisor = 1;
  std::vector<const void*> inputs;  // of this node's ranks, ascending
  std::vector<void*> outputs;       // every one gets the result
};

// Cuts the sum into pieces. The first node makes partial sums, each next one adds its ranks' inputs
// to those it receives, the last one rounds; the results come back the other way. Memory beyond the
// caller's is a ring of kSlots pieces.
class ReduceStreams {
 public:
  static constexpr size_t kPieceBytes = 128 << 10;  // of accumulators: fits the caches

  // `ring` is kept by the caller from one operation to the next.
  ReduceStreams(const Kernels& kernels, const ReduceJob& job, bool is_first, bool is_last,
                std::vector<char>& ring);

  // Does what the bytes that have come allow and raises limits. Call after every movement.
  void Process();

  Stream partials_in, partials_out, results_in, results_out;

 private:
  static constexpr size_t kSlots = 8;

  size_t PieceCount() const { return (job_.count + piece_ - 1) / piece_; }
  size_t EndOf(size_t pieces, size_t size) const {
    return std::min(pieces * piece_, job_.count) * size;
  }
  void AddPiece(bool is_loading, bool is_storing);

  const Kernels& kernels_;
  const ReduceJob& job_;
  const bool is_first_;
  const bool is_last_;
  const size_t size_;   // of an element
  const size_t wide_;   // of an accumulator
  const size_t piece_;  // elements
  char* const ring_;
  bool is_direct_ = false;  // the caller's memory is the partial sum
  size_t processed_ = 0;    // pieces
  size_t copied_ = 0;       // bytes of results_in that are in all outputs
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_REDUCE_STREAMS_H_
