#include "worker_runtime/bucket_wire.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"

namespace ddp::internal {

absl::StatusOr<std::unique_ptr<BucketWire>> BucketWire::Create(Communicator& communicator,
                                                               const BucketLayout& layout,
                                                               DType type,
                                                               std::unique_ptr<HalfCasts> casts) {
  DDP_CHECK(casts != nullptr && SizeOf(type) == 2);
  std::unique_ptr<BucketWire> wire(
      new BucketWire(layout, type, communicator.world_size(), std::move(casts)));
  size_t bytes = 0;
  for (size_t i = 0; i < layout.buckets.size(); ++i) {
    wire->offsets_.push_back(bytes);
    if (!wire->Carries(static_cast<int>(i))) continue;
    const size_t size = layout.buckets[i].count * SizeOf(type);
    bytes += (size + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
  }
  if (bytes == 0) return wire;
  absl::StatusOr<std::unique_ptr<Buffer>> allocated = communicator.Allocate(bytes);
  if (!allocated.ok()) {
    return absl::Status(allocated.status().code(),
                        absl::StrCat("allocate ", bytes, " bytes for gradients as ", Name(type),
                                     ": ", allocated.status().message()));
  }
  wire->buffer_ = *std::move(allocated);
  return wire;
}

bool BucketWire::Carries(int bucket) const {
  return layout_.buckets[static_cast<size_t>(bucket)].dtype == DType::kFloat32;
}

void* BucketWire::data(int bucket) const {
  if (buffer_ == nullptr) return nullptr;  // empty buckets
  return static_cast<char*>(buffer_->data()) + offsets_[static_cast<size_t>(bucket)];
}

absl::Status BucketWire::Narrow(int bucket, const std::vector<Piece>& gradients, Stream stream) {
  DDP_CHECK(Carries(bucket));
  auto* place = static_cast<uint16_t*>(data(bucket));
  for (const Piece& piece : gradients) {
    absl::Status status = casts_->Narrow(static_cast<const float*>(piece.data), place, piece.count,
                                         world_size_, stream);
    if (!status.ok()) return status;
    place += piece.count;
  }
  return absl::OkStatus();
}

absl::Status BucketWire::Widen(int bucket, const std::vector<Piece>& gradients, Stream stream) {
  DDP_CHECK(Carries(bucket));
  const auto* place = static_cast<const uint16_t*>(data(bucket));
  for (const Piece& piece : gradients) {
    absl::Status status =
        casts_->Widen(place, static_cast<float*>(piece.data), piece.count, stream);
    if (!status.ok()) return status;
    place += piece.count;
  }
  return absl::OkStatus();
}

}  // namespace ddp::internal
