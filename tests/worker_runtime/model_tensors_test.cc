// Buffers: rank 0's for all, when PyTorch broadcasts them.
#include "worker_runtime/model_tensors.h"

#include <doctest/doctest.h>

#include <functional>

#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/torch_ddp.h"

namespace ddp {
namespace {

using testing::RunScript;
using testing::ScriptStep;
using Kind = ScriptStep::Kind;

ScriptStep Pass() { return {Kind::kPass, {"0123", "0123"}}; }
ScriptStep NoSyncPass() { return {Kind::kNoSyncPass, {"0123", "0123"}}; }

TEST_CASE("buffers: before each forward pass they are what torch's are, also around NoSync") {
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  const std::vector<ScriptStep> script = {Pass(),       Pass(),       NoSyncPass(), NoSyncPass(),
                                          Pass(),       Pass(),       NoSyncPass(), Pass(),
                                          NoSyncPass(), NoSyncPass(), NoSyncPass(), Pass()};
  testing::CheckAsTorch(script, "", {});
  testing::CheckAsTorch(script, "broadcast_buffers=0", {.broadcast_buffers = false});
}

TEST_CASE("buffers: Finalize gives rank 0's to all, whatever the option says") {
  ddprun::testing::ThreadGroup group(2);
  int64_t counts[2] = {7, 9};
  group.Run([&counts](Communicator& communicator) {
    DistributedDataParallel ddp(communicator, {.broadcast_buffers = false});
    ddp.AddBuffer("steps", &counts[communicator.rank()], 1, DType::kInt64);
    CHECK(ddp.BroadcastBuffers().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(ddp.Finalize().ok());
    CHECK(ddp.BroadcastBuffers().ok());
  });
  CHECK(counts[0] == 7);
  CHECK(counts[1] == 7);
}

TEST_CASE("buffers: a pass that is not finished is no time for them") {
  ddprun::testing::ThreadGroup group(1);
  float values[3] = {};
  DistributedDataParallel ddp(group.communicator(0));
  ddp.AddParameter("a", values, 1, DType::kFloat32);
  ddp.AddParameter("b", values + 1, 1, DType::kFloat32);
  ddp.AddBuffer("c", values + 2, 1, DType::kFloat32);
  REQUIRE(ddp.Finalize().ok());
  CHECK(ddp.GradientReady(1).ok());
  CHECK(ddp.BroadcastBuffers().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ddp.GradientReady(0).ok());
  CHECK(ddp.Finish().ok());
  CHECK(ddp.BroadcastBuffers().ok());
}

TEST_CASE("buffers: one that cannot be right fails at Finalize, a late one at Finish") {
  const auto finalize = [](const std::function<void(DistributedDataParallel&)>& add) {
    ddprun::testing::ThreadGroup group(1);
    DistributedDataParallel ddp(group.communicator(0));
    add(ddp);
    const absl::Status status = ddp.Finalize();
    if (!status.ok()) return std::string(status.message());
    ddp.AddBuffer("late", nullptr, 0, DType::kFloat32);
    return std::string(ddp.Finish().message());
  };
  float value = 0;
  CHECK(finalize([&value](DistributedDataParallel& ddp) {
          ddp.AddParameter("w", &value, 1, DType::kFloat32);
          ddp.AddBuffer("w", &value, 1, DType::kFloat32);
        }) == "buffer 'w' was registered twice");
  CHECK(finalize([](DistributedDataParallel& ddp) {
          ddp.AddBuffer("w", nullptr, 1, DType::kFloat32);
        }) == "buffer 'w' of 1 elements has no memory");
  CHECK(finalize([](DistributedDataParallel&) {}) ==
        "buffer 'late' was registered after Finalize()");
}

TEST_CASE("buffers: one that another rank lacks is named on every rank") {
  ddprun::testing::ThreadGroup group(2);
  std::string messages[2];
  group.Run([&messages](Communicator& communicator) {
    float values[4] = {};
    DistributedDataParallel ddp(communicator);
    ddp.AddParameter("w", values, 1, DType::kFloat32);
    ddp.AddBuffer("mean", values, communicator.rank() == 0 ? 3 : 4, DType::kFloat32);
    messages[communicator.rank()] = std::string(ddp.Finalize().message());
  });
  for (const std::string& message : messages) {
    CHECK(message ==
          "parameter 1 is not the same on all ranks: rank 0 has 'buffer mean', 3 x float32, "
          "rank 1 has 'buffer mean', 4 x float32");
  }
}

}  // namespace
}  // namespace ddp
