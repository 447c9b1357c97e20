#include "worker_runtime/gpu/await_stream.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/emulated_cuda.h"

namespace ddp::internal {
namespace {

using ddprun::testing::EmulatedCuda;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kLong(60);

// A driver whose stream is busy when it is asked so many times, and then answers as `after`.
class BusyCuda {
 public:
  explicit BusyCuda(int questions, CudaResult after = kCudaSuccess) {
    left = questions;
    then = after;
    api = cuda.api();
    api.cuStreamQuery = [](CudaStream) { return left-- > 0 ? kCudaErrorNotReady : then; };
    if (after != kCudaSuccess) cuda.Fail("cuStreamSynchronize", after);
  }
  absl::Status Await(milliseconds timeout) { return AwaitStream(Gpu(api), "sum", &cuda, timeout); }
  // Such a call has no deadline.
  int waits() const { return cuda.Count("cuStreamSynchronize"); }

  static inline int left = 0;

 private:
  static inline CudaResult then = kCudaSuccess;
  EmulatedCuda cuda{{}};
  CudaApi api{};
};

TEST_CASE("await stream: it ends when the stream does, at once where that is done") {
  for (const int questions : {0, 1, 1000}) {
    CAPTURE(questions);
    BusyCuda cuda(questions);
    CHECK(cuda.Await(kLong).ok());
    CHECK(cuda.left == -1);
    CHECK(cuda.waits() == 1);
  }
}

TEST_CASE("await stream: a stream that goes on is an error, and the driver waits for nothing") {
  for (const int timeout_ms : {0, 1, 20}) {
    BusyCuda cuda(1'000'000'000);
    CHECK(cuda.Await(milliseconds(timeout_ms)) ==
          absl::DeadlineExceededError("sum: the GPU has not ended what is on the stream within " +
                                      std::to_string(timeout_ms) + " ms"));
    CHECK(cuda.waits() == 0);
  }
}

TEST_CASE("await stream: an error of the device ends it, in the driver's words") {
  for (const int questions : {0, 3}) {
    BusyCuda cuda(questions, kCudaErrorInvalidContext);
    const absl::Status status = cuda.Await(kLong);
    CHECK_MESSAGE(std::string(status.message()).starts_with("sum: cuStreamSynchronize: "),
                  status.ToString());
    CHECK(cuda.left == -1);
  }
}

}  // namespace
}  // namespace ddp::internal
