#include <doctest/doctest.h>

#include "ddp/checkpoint.h"
#include "tests/support/expect.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

TEST_CASE("device hash: a timeout that the group gets later bounds it, and the next call works") {
  CHECK(RunOnDouble(1, DoubleEnv(), [](int) {
          const auto group = GpuGroup();
          ddp::Communicator& communicator = group->communicator();
          const auto hash = communicator.MakeTensorHash();
          EXPECT(hash.ok());
          const DeviceArray values({1, 2, 3});
          const ddp::Tensor tensor = {"p", values.data(), values.size(), ddp::DType::kFloat32};
          const ddp::Stream stream = NewStream();
          const auto before = (*hash)->Of({&tensor, 1}, stream);
          EXPECT(before.ok());
          const int hold = HoldStream(stream);
          // lower bound: the stream is held
          communicator.SetTimeout(std::chrono::milliseconds(300));
          EXPECT((*hash)->Of({&tensor, 1}, stream).status() ==
                 absl::DeadlineExceededError("hash parameters: the GPU has not ended what is on "
                                             "the stream within 300 ms"));
          communicator.SetTimeout(std::chrono::seconds(60));
          ReleaseStream(hold);
          const auto after = (*hash)->Of({&tensor, 1}, stream);
          EXPECT(after.ok());
          EXPECT(*after == *before);
          return 0;
        }) == "0");
}

}  // namespace
}  // namespace ddprun::testing
