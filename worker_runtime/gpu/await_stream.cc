#include "worker_runtime/gpu/await_stream.h"

#include <thread>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

constexpr std::chrono::microseconds kLook(50);

}  // namespace

absl::Status AwaitStream(const Gpu& gpu, const char* what, Stream stream,
                         std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (gpu.IsBusy(stream)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          what, ": the GPU has not ended what is on the stream within ", timeout.count(), " ms"));
    }
    std::this_thread::sleep_for(kLook);
  }
  return gpu.Synchronize(what, stream);
}

}  // namespace ddp::internal
