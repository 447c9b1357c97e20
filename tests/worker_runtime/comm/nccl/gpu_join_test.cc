// Uneven inputs on GPUs, on the double of CUDA and NCCL.
#include <signal.h>

#include <map>
#include <string>

#include <doctest/doctest.h>

#include "ddp/step_graph.h"
#include "tests/support/contains.h"
#include "tests/support/expect.h"
#include "tests/support/json.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_script.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using Kind = GpuScriptStep::Kind;

void CheckIsSameInBoth(const GpuScript& script, GpuScriptOptions options) {
  options.joins = true;
  for (const int world_size : {1, 2, 3}) {
    std::string zeros = "0";
    for (int rank = 1; rank < world_size; ++rank) zeros += " 0";
    CHECK(RunOnDouble(world_size, DoubleEnv(), [&](int) {
            const auto group = GpuGroup();
            EXPECT(IsSameInBoth(group->communicator(), script, options));
            EXPECT(group->Shutdown().ok());
            return 0;
          }) == zeros);
  }
}

// Of three ranks the last has no batch at all, and the first one more than the second.
const GpuScriptStep kZero{Kind::kZeroGrad, {}};
const GpuScript kUneven = {
    {Kind::kPass, {"3210", "0123", "-"}}, kZero, {Kind::kPass, {"3210", "3210", "-"}}, kZero,
    {Kind::kPass, {"0123", "-", "-"}},
};

TEST_CASE("gpu join: gradients, weights and buffers are as in host memory, bit for bit") {
  CheckIsSameInBoth(kUneven, {});
  CheckIsSameInBoth(kUneven, {.owns_gradients = true});
  CheckIsSameInBoth(kUneven, {.has_hook = true});
  CheckIsSameInBoth(kUneven, {.ddp = {.rebuild_buckets = true}});
}

TEST_CASE("gpu join: averages over the ranks with batches are as in host memory, bit for bit") {
  CheckIsSameInBoth(kUneven, {.divides_by_initial = false});
  CheckIsSameInBoth(kUneven, {.owns_gradients = true, .divides_by_initial = false});
}

TEST_CASE("gpu join: with unused parameters they are, too") {
  const GpuScript script = {{Kind::kPass, {"01", "12", "-"}},
                            kZero,
                            {Kind::kNoSyncPass, {"3", "-", "-"}},
                            {Kind::kPass, {"02", "-", "-"}},
                            {Kind::kPass, {"1", "-", "-"}}};
  CheckIsSameInBoth(script, {.ddp = {.find_unused_parameters = true}});
}

TEST_CASE("gpu join: a rank that dies is named by those who have joined") {
  const TempDir temp;
  RankProcesses ranks({.world_size = 2,
                       .env = DoubleEnv({{"DDPRUN_DOUBLE_DIR", temp.path()}}),
                       .env_of_rank =
                           [&](int rank) {
                             return std::map<std::string, std::string>{
                                 {"TORCHELASTIC_ERROR_FILE", temp.File(std::to_string(rank))}};
                           }},
                      [&](int rank) {
                        const auto group = GpuGroup();
                        const auto place = OnGpu();
                        ScriptModel model(*place, group->communicator(), {});
                        EXPECT(model.Start().ok());
                        auto join = model.ddp().Join(true, place->optimizer());
                        EXPECT(join.ok());
                        EXPECT(model.Pass(rank, "3210").ok());
                        if (rank == 1) raise(SIGKILL);
                        RankProcesses::Say(join->Wait().ToString());
                        EXPECT(Eventually([&] { return !group->communicator().error().ok(); }));
                        RankProcesses::Say(group->communicator().error().ToString());
                        return 0;
                      });
  const std::string words = ranks.Hear(0), end = ranks.Hear(0);
  CAPTURE(words);
  CAPTURE(end);
  CHECK(ranks.Await(0) == 0);
  CHECK(words.find("UNAVAILABLE: ") == 0);
  CHECK(words == Contains("rank 1"));
  CHECK(end.find("UNAVAILABLE: ") == 0);
  const auto error = ParseJson(ReadFile(temp.File("0")));
  REQUIRE(error.has_value());
  CHECK(error->get<int>("message.extraInfo.left_peer") == 1);
}

TEST_CASE("gpu join: active ranks that do different things are told so, on the device as well") {
  RankProcesses ranks({.world_size = 2, .env = DoubleEnv(), .env_of_rank = {}}, [](int rank) {
    const auto group = GpuGroup();
    const auto place = OnGpu();
    ScriptModel model(*place, group->communicator(), {});
    EXPECT(model.Start().ok());
    auto join = model.ddp().Join(true, place->optimizer());
    EXPECT(join.ok());
    const absl::Status status = rank == 0 ? model.Announce("3") : model.ddp().BroadcastBuffers();
    RankProcesses::Say(status.ToString());
    EXPECT(Eventually([&] { return !group->communicator().error().ok(); }));
    return 0;
  });
  for (const int rank : {0, 1}) {
    const std::string words = ranks.Hear(rank);
    CAPTURE(words);
    CHECK(words ==
          Contains("rank 0 begins a backward pass while rank 1 begins a broadcast of buffers"));
    CHECK(ranks.Await(rank) == 0);
  }
}

TEST_CASE("gpu join: a captured step in it is refused on all ranks, and they go on") {
  CHECK(RunOnDouble(2, DoubleEnv(), [](int rank) {
          const auto group = GpuGroup();
          const auto place = OnGpu();
          {
            ScriptModel model(*place, group->communicator(), {});
            EXPECT(model.Start().ok());
            const auto graph = ddp::StepGraph::Create(group->communicator(), place->backward());
            EXPECT(graph.ok());
            for (int i = 0; i < ddp::StepGraph::kUncapturedSteps; ++i) {
              EXPECT((*graph)->Run([] { return absl::OkStatus(); }).ok());
            }
            auto join = model.ddp().Join();
            EXPECT(join.ok());
            const absl::Status status = (*graph)->Capture([&] { return model.Announce("3210"); });
            EXPECT(absl::IsFailedPrecondition(status));
            EXPECT(status.message().find("a captured step with a backward pass in a Join") !=
                   std::string::npos);
            if (rank == 0) EXPECT(model.Pass(rank, "3210").ok());
            EXPECT(join->Wait().ok());
          }
          EXPECT(group->Shutdown().ok());
          return 0;
        }) == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
