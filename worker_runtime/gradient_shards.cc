#include "worker_runtime/gradient_shards.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddp::internal {

std::unique_ptr<Work> ReduceBucket(Communicator& communicator, int parts, void* data, size_t count,
                                   DType dtype, ReduceOp op, Stream stream) {
  if (parts == 1) return communicator.AllReduce(data, count, dtype, op, stream);
  const size_t each = count / static_cast<size_t>(parts);
  const size_t begin = static_cast<size_t>(communicator.rank()) * each * SizeOf(dtype);
  void* own = data == nullptr ? nullptr : static_cast<char*>(data) + begin;
  return communicator.ReduceScatter(data, own, each, dtype, op, stream);
}

size_t PlaceInBucket(const BucketLayout& layout, const Bucket& bucket, int parameter) {
  const size_t begin = layout.gradient_offsets[static_cast<size_t>(bucket.parameters.front())];
  return (layout.gradient_offsets[static_cast<size_t>(parameter)] - begin) / SizeOf(bucket.dtype);
}

std::vector<ShardPiece> ShardPiecesOf(const BucketLayout& layout, const std::vector<size_t>& counts,
                                      int rank) {
  std::vector<ShardPiece> pieces;
  for (size_t i = 0; i < layout.buckets.size(); ++i) {
    const Bucket& bucket = layout.buckets[i];
    const size_t each = bucket.count / static_cast<size_t>(layout.parts);
    const size_t part_begin = static_cast<size_t>(rank) * each;
    for (const int parameter : bucket.parameters) {
      const size_t place = PlaceInBucket(layout, bucket, parameter);
      const size_t end = place + counts[static_cast<size_t>(parameter)];
      const size_t from = std::max(place, part_begin);
      const size_t to = std::min(end, part_begin + each);
      if (from >= to) continue;
      pieces.push_back({.bucket = static_cast<int>(i),
                        .parameter = parameter,
                        .begin = from - place,
                        .count = to - from,
                        .place = from - part_begin});
    }
  }
  return pieces;
}

absl::Status CheckNotTied(const std::vector<ModelTensor>& parameters) {
  std::vector<const ModelTensor*> by_place;
  for (const ModelTensor& parameter : parameters) {
    if (parameter.count > 0) by_place.push_back(&parameter);
  }
  const auto begin = [](const ModelTensor* tensor) {
    return static_cast<const char*>(tensor->data);
  };
  std::sort(by_place.begin(), by_place.end(),
            [&](const auto* a, const auto* b) { return begin(a) < begin(b); });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const ModelTensor& before = *by_place[i - 1];
    if (begin(&before) + before.count * SizeOf(before.dtype) <= begin(by_place[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "shard_gradients: parameters '", before.name, "' and '", by_place[i]->name,
        "' share memory, and would be updated by different ranks; register tied weights once"));
  }
  return absl::OkStatus();
}

}  // namespace ddp::internal
