#include "worker_runtime/comm/tcp/reduce_streams.h"

#include <cstring>

namespace ddp::internal {
namespace {

char* Grow(std::vector<char>& ring, size_t bytes) {
  if (ring.size() < bytes) ring.resize(bytes);
  return ring.data();
}

}  // namespace

ReduceStreams::ReduceStreams(const Kernels& kernels, const ReduceJob& job, bool is_first,
                             bool is_last, std::vector<char>& ring)
    : kernels_(kernels),
      job_(job),
      is_first_(is_first),
      is_last_(is_last),
      size_(SizeOf(job.dtype)),
      wide_(AccumulatorSize(job.dtype)),
      piece_(kPieceBytes / wide_),
      ring_(Grow(ring, kPieceBytes * kSlots)) {
  for (Stream* partials : {&partials_in, &partials_out}) {
    partials->base = ring_;
    partials->ring = kPieceBytes * kSlots;
    partials->total = job.count * wide_;
  }
  for (Stream* results : {&results_in, &results_out}) {
    results->base = static_cast<char*>(job.outputs[0]);
    results->total = job.count * size_;
  }
  results_in.limit = results_in.total;
  is_direct_ = is_first && job.inputs.size() == 1 && size_ == wide_;
  if (is_direct_) {
    partials_out.base = const_cast<char*>(static_cast<const char*>(job.inputs[0]));
    partials_out.ring = 0;
    partials_out.limit = partials_out.total;
    processed_ = PieceCount();
  }
}

void ReduceStreams::AddPiece(bool is_loading, bool is_storing) {
  const size_t begin = processed_ * piece_;
  const size_t count = std::min(piece_, job_.count - begin);
  char* partial = ring_ + (processed_ % kSlots) * kPieceBytes;
  if (is_storing && !is_loading && job_.inputs.size() == 1 && size_ == wide_) {
    // One pass over memory instead of two, for the same bits.
    const void* inputs[] = {partial, static_cast<const char*>(job_.inputs[0]) + begin * size_};
    void* output = static_cast<char*>(job_.outputs[0]) + begin * size_;
    kernels_.reduce(job_.op, job_.dtype, inputs, 2, &output, 1, count, job_.divisor);
    ++processed_;
    return;
  }
  for (size_t i = 0; i < job_.inputs.size(); ++i) {
    const char* input = static_cast<const char*>(job_.inputs[i]) + begin * size_;
    if (is_loading && i == 0) {
      kernels_.load(job_.dtype, input, partial, count);
    } else {
      kernels_.combine(job_.op, job_.dtype, input, partial, count);
    }
  }
  if (is_storing) {
    char* first = static_cast<char*>(job_.outputs[0]) + begin * size_;
    kernels_.store(job_.dtype, partial, first, count, job_.divisor);
    for (size_t i = 1; i < job_.outputs.size(); ++i) {
      std::memcpy(static_cast<char*>(job_.outputs[i]) + begin * size_, first, count * size_);
    }
  }
  ++processed_;
}

void ReduceStreams::Process() {
  // A slot is free again once its piece has gone on; the last node is done with it at once.
  const auto freed = [this] { return is_last_ ? processed_ : partials_out.done / kPieceBytes; };
  while (processed_ < PieceCount()) {
    const bool has_input = is_first_ ? processed_ < freed() + kSlots
                                     : partials_in.done >= EndOf(processed_ + 1, wide_);
    if (!has_input) break;
    AddPiece(is_first_, is_last_);
  }
  if (!is_first_) partials_in.limit = EndOf(freed() + kSlots, wide_);
  if (!is_direct_) partials_out.limit = EndOf(processed_, wide_);
  if (is_last_) {
    results_out.limit = EndOf(processed_, size_);
    return;
  }
  for (size_t i = 1; i < job_.outputs.size(); ++i) {
    std::memcpy(static_cast<char*>(job_.outputs[i]) + copied_,
                static_cast<char*>(job_.outputs[0]) + copied_, results_in.done - copied_);
  }
  copied_ = results_in.done;
  results_out.limit = results_in.done;
}

}  // namespace ddp::internal
