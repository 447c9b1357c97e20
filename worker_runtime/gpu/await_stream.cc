#include "worker_runtime/gpu/await_stream.h"

#include <thread>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

// As the driver's own wait it spins first: a step is shorter than a sleep and a wake-up are exact.
constexpr std::chrono::milliseconds kSpin(5);
constexpr std::chrono::microseconds kLook(50);

}  // namespace

absl::Status AwaitStream(const Gpu& gpu, const char* what, Stream stream,
                         std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  while (gpu.IsBusy(stream)) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited < kSpin) continue;
    if (waited >= timeout) {
      return absl::DeadlineExceededError(absl::StrCat(
          what, ": the GPU has not ended what is on the stream within ", timeout.count(), " ms"));
    }
    std::this_thread::sleep_for(kLook);
  }
  return gpu.Synchronize(what, stream);
}

}  // namespace ddp::internal
