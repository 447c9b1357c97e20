// Each rank's part of the gradients, where they are sharded.
#ifndef DDPRUN_WORKER_RUNTIME_GRADIENT_SHARDS_H_
#define DDPRUN_WORKER_RUNTIME_GRADIENT_SHARDS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "ddp/communicator.h"
#include "worker_runtime/bucketizer.h"
#include "worker_runtime/model_tensors.h"

namespace ddp::internal {

// Starts the reduction of the whole bucket at `data`, of `count` elements: by an all-reduce, or, in
// more than one part, by a reduce-scatter in place, which leaves this rank the result of its part
// alone.
std::unique_ptr<Work> ReduceBucket(Communicator& communicator, int parts, void* data, size_t count,
                                   DType dtype, ReduceOp op, Stream stream);

// Elements of one parameter that lie in one rank's part of a bucket.
struct ShardPiece {
  int bucket = 0;
  int parameter = 0;
  size_t begin = 0;  // in the parameter
  size_t count = 0;  // not 0
  size_t place = 0;  // of the first, in the rank's part of the bucket
};

// All pieces of `rank`, bucket by bucket. `counts` are the parameters' elements.
std::vector<ShardPiece> ShardPiecesOf(const BucketLayout& layout, const std::vector<size_t>& counts,
                                      int rank);

// Where parameter `parameter` begins in its bucket, in elements.
size_t PlaceInBucket(const BucketLayout& layout, const Bucket& bucket, int parameter);

// InvalidArgument for parameters that share memory, as tied weights do: each would be updated by
// the rank that has its shard, and one of the updates be lost.
absl::Status CheckNotTied(const std::vector<ModelTensor>& parameters);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GRADIENT_SHARDS_H_
