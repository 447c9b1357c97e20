#include "worker_runtime/model_tensors.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

// Tensors whose broadcasts are under way at the same time: hides latency, bounds the queue.
constexpr size_t kBroadcastsInFlight = 64;

// More cannot be addressed; an eighth of it leaves room for alignment.
constexpr size_t kMostBytes = std::numeric_limits<ptrdiff_t>::max() / 8;

absl::Status CheckKind(const char* kind, const std::vector<ModelTensor>& tensors,
                       std::set<std::string>& names) {
  size_t bytes = 0;
  for (const ModelTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(kind, " '", tensor.name, "' was registered twice"));
    }
    if (tensor.data == nullptr && tensor.count > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(kind, " '", tensor.name, "' of ", tensor.count, " elements has no memory"));
    }
    const size_t size = SizeOf(tensor.dtype);
    if (size == 0 || tensor.count > (kMostBytes - bytes) / size) {
      return absl::InvalidArgumentError(absl::StrCat(
          kind, " '", tensor.name, "' of ", tensor.count, " elements ",
          size == 0 ? "has a type that does not exist" : "is larger than memory can be"));
    }
    bytes += tensor.count * size;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTensors(const std::vector<ModelTensor>& parameters,
                          const std::vector<ModelTensor>& buffers) {
  std::set<std::string> names;
  absl::Status status = CheckKind("parameter", parameters, names);
  if (status.ok()) status = CheckKind("buffer", buffers, names);
  return status;
}

absl::Status BroadcastTensors(Communicator& communicator, const std::vector<ModelTensor>& tensors,
                              const char* what, const BroadcastOptions& options) {
  absl::Status first;
  std::vector<std::unique_ptr<Work>> works;
  const auto drain = [&] {
    for (const std::unique_ptr<Work>& work : works) {
      first.Update(options.stream_waits ? work->WaitOn(options.stream) : work->Wait());
    }
    works.clear();
  };
  for (const ModelTensor& tensor : tensors) {
    works.push_back(communicator.Broadcast(tensor.data, tensor.count, tensor.dtype, options.root,
                                           options.stream));
    // One that is done at once may have been refused: what comes next would meet the others' call.
    if (works.size() == kBroadcastsInFlight || works.back()->IsDone()) drain();
    if (!first.ok()) break;
  }
  drain();
  if (first.ok()) return first;
  // The others wait for a call that was refused on this rank.
  if (communicator.error().ok()) {
    communicator.Abort(absl::StrCat("rank ", communicator.rank(), ": ", first.message()));
  }
  return absl::Status(first.code(), absl::StrCat("broadcast rank ", options.root, "'s ", what, ": ",
                                                 first.message()));
}

}  // namespace ddp::internal
