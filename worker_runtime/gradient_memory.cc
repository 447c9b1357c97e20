#include "worker_runtime/gradient_memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "worker_runtime/gradient_values.h"

namespace ddp::internal {
namespace {

// Memory of a tensor of the model.
struct Extent {
  uintptr_t begin, end;
  bool is_gradient;
  const std::string* name;

  std::string Words() const {
    return absl::StrCat(is_gradient ? "the gradient of '" : "'", *name, "'");
  }
};

Extent ExtentOf(const void* data, size_t bytes, bool is_gradient, const std::string& name) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + bytes, is_gradient, &name};
}

// Parameters may share memory with each other, as tied weights do; a gradient with nothing.
absl::Status CheckApart(std::vector<Extent> extents) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  const Extent* furthest = nullptr;           // of those before
  const Extent* furthest_gradient = nullptr;  // likewise
  for (const Extent& extent : extents) {
    if (extent.begin == extent.end) continue;
    const Extent* before = extent.is_gradient ? furthest : furthest_gradient;
    if (before != nullptr && before->end > extent.begin) {
      return absl::InvalidArgumentError(
          absl::StrCat(extent.Words(), " shares memory with ", before->Words(),
                       ": a gradient of the program's own needs memory that no other tensor has"));
    }
    if (furthest == nullptr || extent.end > furthest->end) furthest = &extent;
    if (!extent.is_gradient) continue;
    if (furthest_gradient == nullptr || extent.end > furthest_gradient->end) {
      furthest_gradient = &extent;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAdopted(const std::vector<ModelTensor>& parameters,
                          const std::vector<ModelTensor>& buffers,
                          const std::vector<Piece>& gradients) {
  DDP_CHECK(parameters.size() == gradients.size());
  std::vector<Extent> extents;
  for (const auto* tensors : {&parameters, &buffers}) {
    for (const ModelTensor& tensor : *tensors) {
      extents.push_back(
          ExtentOf(tensor.data, tensor.count * SizeOf(tensor.dtype), false, tensor.name));
    }
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    const ModelTensor& parameter = parameters[i];
    const Piece& gradient = gradients[i];
    const size_t size = SizeOf(parameter.dtype);
    const auto wrong = [&parameter](const std::string& how) {
      return absl::InvalidArgumentError(
          absl::StrCat("the gradient of '", parameter.name, "' ", how));
    };
    if (gradient.count != parameter.count) {
      return wrong(absl::StrCat("has ", gradient.count, " elements, its parameter has ",
                                parameter.count, ": both have the same shape"));
    }
    if (gradient.count == 0) continue;
    if (gradient.data == nullptr) {
      return wrong("is a null pointer: name memory of your own, or give none of the gradients");
    }
    if (reinterpret_cast<uintptr_t>(gradient.data) % size != 0) {
      return wrong(absl::StrCat("is not aligned to its elements of ", size, " bytes"));
    }
    extents.push_back(ExtentOf(gradient.data, gradient.count * size, true, parameter.name));
  }
  return CheckApart(std::move(extents));
}

absl::StatusOr<std::unique_ptr<GradientMemory>> GradientMemory::Allocate(
    Communicator& communicator, const std::vector<GradientSpec>& gradients, BucketLayout layout) {
  std::unique_ptr<Buffer> arena;
  if (layout.arena_bytes > 0) {
    absl::StatusOr<std::unique_ptr<Buffer>> allocated = communicator.Allocate(layout.arena_bytes);
    if (!allocated.ok()) {
      return absl::Status(allocated.status().code(),
                          absl::StrCat("allocate ", layout.arena_bytes,
                                       " bytes for gradients: ", allocated.status().message()));
    }
    arena = *std::move(allocated);
  }
  return std::unique_ptr<GradientMemory>(
      new GradientMemory(gradients, {}, std::move(arena), std::move(layout)));
}

std::unique_ptr<GradientMemory> GradientMemory::Adopt(const std::vector<GradientSpec>& gradients,
                                                      std::vector<Piece> adopted,
                                                      BucketLayout layout) {
  DDP_CHECK(adopted.size() == gradients.size());
  return std::unique_ptr<GradientMemory>(
      new GradientMemory(gradients, std::move(adopted), nullptr, std::move(layout)));
}

GradientMemory::GradientMemory(const std::vector<GradientSpec>& gradients,
                               std::vector<Piece> adopted, std::unique_ptr<Buffer> arena,
                               BucketLayout layout)
    : gradients_(gradients),
      adopted_(std::move(adopted)),
      arena_(std::move(arena)),
      layout_(std::move(layout)) {
  FindPieces();
}

void GradientMemory::Regroup(const std::vector<int>& order, const BucketLimits& limits) {
  layout_.buckets = FillBuckets(gradients_, limits, order);
  FindPieces();
}

void GradientMemory::FindPieces() {
  pieces_.clear();
  for (Bucket& bucket : layout_.buckets) {
    std::vector<Piece>& pieces = pieces_.emplace_back();
    if (layout_.parts > 1) {  // with the padding behind it
      pieces.push_back({At(bucket.parameters.front()), bucket.count});
      continue;
    }
    if (is_adopted()) {
      for (const int parameter : bucket.parameters) {
        if (adopted_[parameter].count > 0) pieces.push_back(adopted_[parameter]);
      }
    } else {
      char* arena = arena_ == nullptr ? nullptr : static_cast<char*>(arena_->data());
      for (const Run& run : RunsOf(bucket, layout_.gradient_offsets, gradients_)) {
        pieces.push_back({arena == nullptr ? nullptr : arena + run.offset, run.count});
      }
    }
    bucket.count = 0;
    for (const Piece& piece : pieces) bucket.count += piece.count;
    if (pieces.empty()) pieces.push_back({});
  }
}

const std::vector<Piece>& GradientMemory::pieces(int bucket) const {
  return pieces_[static_cast<size_t>(bucket)];
}

void* GradientMemory::At(int parameter) const {
  if (parameter < 0 || parameter >= static_cast<int>(gradients_.size())) return nullptr;
  if (is_adopted()) return adopted_[parameter].data;
  if (arena_ == nullptr) return nullptr;
  return static_cast<char*>(arena_->data()) + layout_.gradient_offsets[parameter];
}

absl::Status GradientMemory::Zero(Communicator& communicator, Stream stream) {
  if (!is_adopted()) return arena_ == nullptr ? absl::OkStatus() : arena_->Zero(stream);
  absl::Status status;
  for (size_t i = 0; status.ok() && i < adopted_.size(); ++i) {
    const GradientValues gradient = {
        .dtype = gradients_[i].dtype, .data = adopted_[i].data, .count = adopted_[i].count};
    status = ArithmeticFor(communicator).SetToZero(gradient, stream);
  }
  return status;
}

}  // namespace ddp::internal
