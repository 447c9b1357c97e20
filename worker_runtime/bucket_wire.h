// Buckets of float32 gradients that travel in 16 bits.
#ifndef DDPRUN_WORKER_RUNTIME_BUCKET_WIRE_H_
#define DDPRUN_WORKER_RUNTIME_BUCKET_WIRE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/bucketizer.h"

namespace ddp::internal {

// What travels in place of a float32 bucket: its elements, divided by the world size and rounded to
// `type`, to be summed. Dividing first keeps the sum within the range of float16. Half as large as
// the gradients, and beside them. Buckets of other types travel as they are.
//
// On a GPU nothing waits for the host: Narrow() comes in the order of the stream that computes, so
// that the bucket's all-reduce, which waits for that stream, starts behind it; Widen() comes in the
// order of a stream that waits for the all-reduce.
class BucketWire {
 public:
  // Collective: allocates. Borrows the communicator and the layout.
  static absl::StatusOr<std::unique_ptr<BucketWire>> Create(Communicator& communicator,
                                                            const BucketLayout& layout, DType type,
                                                            std::unique_ptr<HalfCasts> casts);

  // For another layout. This wire is of no use behind it.
  std::unique_ptr<HalfCasts> TakeCasts() { return std::move(casts_); }

  DType type() const { return type_; }
  bool Carries(int bucket) const;
  // REQUIRES: Carries(bucket), for all of these; `gradients` are the bucket's pieces, which go one
  // behind the other.
  void* data(int bucket) const;
  absl::Status Narrow(int bucket, const std::vector<Piece>& gradients, Stream stream);
  absl::Status Widen(int bucket, const std::vector<Piece>& gradients, Stream stream);

 private:
  BucketWire(const BucketLayout& layout, DType type, int world_size,
             std::unique_ptr<HalfCasts> casts)
      : layout_(layout), type_(type), world_size_(world_size), casts_(std::move(casts)) {}

  const BucketLayout& layout_;
  const DType type_;
  const int world_size_;
  std::unique_ptr<HalfCasts> casts_;
  std::vector<size_t> offsets_;     // by bucket
  std::unique_ptr<Buffer> buffer_;  // null when it carries no bucket
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_BUCKET_WIRE_H_
