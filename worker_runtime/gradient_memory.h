// Where gradients live, and which pieces of memory a bucket is.
#ifndef DDPRUN_WORKER_RUNTIME_GRADIENT_MEMORY_H_
#define DDPRUN_WORKER_RUNTIME_GRADIENT_MEMORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/bucketizer.h"
#include "worker_runtime/model_tensors.h"

namespace ddp::internal {

// InvalidArgument where gradients in the program's own memory, by parameter, are null, not as large
// as their parameter, not aligned to their elements, or share memory with another tensor.
absl::Status CheckAdopted(const std::vector<ModelTensor>& parameters,
                          const std::vector<ModelTensor>& buffers,
                          const std::vector<Piece>& gradients);

// The gradients of all parameters: in one arena of the communicator's, bucket after bucket, or,
// adopted, in memory of the program's own. They never move.
class GradientMemory {
 public:
  // Collective: allocates the arena, zeroed, for buckets that LayOutBuckets laid out.
  static absl::StatusOr<std::unique_ptr<GradientMemory>> Allocate(
      Communicator& communicator, const std::vector<GradientSpec>& gradients, BucketLayout layout);
  // The gradients are where the program says, by parameter.
  static std::unique_ptr<GradientMemory> Adopt(const std::vector<GradientSpec>& gradients,
                                               std::vector<Piece> adopted, BucketLayout layout);

  // From now on the buckets are filled in this order of parameters.
  void Regroup(const std::vector<int>& order, const BucketLimits& limits);

  // The `count` of a bucket is that of its pieces.
  const BucketLayout& layout() const { return layout_; }
  const std::vector<GradientSpec>& gradients() const { return gradients_; }
  // What is reduced together, equal on all ranks: in the arena what lies side by side is one piece,
  // padding included; each adopted gradient is its own.
  const std::vector<Piece>& pieces(int bucket) const;
  // Null for a number that is no parameter's.
  void* At(int parameter) const;
  // Null when the gradients are adopted, or have no elements.
  Buffer* arena() const { return arena_.get(); }
  bool is_adopted() const { return !adopted_.empty(); }
  // At once (CPU) or in the order of `stream` (CUDA), in the memory of `communicator`.
  absl::Status Zero(Communicator& communicator, Stream stream);

 private:
  GradientMemory(const std::vector<GradientSpec>& gradients, std::vector<Piece> adopted,
                 std::unique_ptr<Buffer> arena, BucketLayout layout);
  void FindPieces();

  const std::vector<GradientSpec> gradients_;
  const std::vector<Piece> adopted_;     // by parameter; empty when they are in the arena
  const std::unique_ptr<Buffer> arena_;  // null when there is nothing to hold
  BucketLayout layout_;
  std::vector<std::vector<Piece>> pieces_;  // by bucket
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GRADIENT_MEMORY_H_
