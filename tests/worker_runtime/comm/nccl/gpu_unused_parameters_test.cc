// Parameters without a gradient on GPUs, on the double of CUDA and NCCL: what they do in host
// memory, and what a device adds.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "ddp/step_graph.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/contains.h"
#include "tests/support/expect.h"
#include "tests/support/json.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_script.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;
using Kind = GpuScriptStep::Kind;

const ddp::DistributedDataParallelOptions kFindUnused{.find_unused_parameters = true};
const ddp::DistributedDataParallelOptions kStatic{.static_graph = true};

std::string Zeros(int world_size) {
  std::string codes = "0";
  for (int rank = 1; rank < world_size; ++rank) codes += " 0";
  return codes;
}

void CheckIsSameInBoth(const GpuScript& script, const GpuScriptOptions& options) {
  for (const int world_size : {1, 2, 3}) {
    CHECK(OnRanks(world_size, [&](ddp::Communicator& communicator) {
            return IsSameInBoth(communicator, script, options) ? 0 : 1;
          }) == Zeros(world_size));
  }
}

// All used; some on one rank; some nowhere, behind zeros and behind what is left of an earlier
// pass; used in NoSync alone; nothing on one rank; nothing at all.
const GpuScript kScript = {
    {Kind::kPass, {"3210", "3210", "3210"}}, {Kind::kZeroGrad, {}},
    {Kind::kPass, {"310", "0", "0"}},        {Kind::kPass, {"21", "12", "1"}},
    {Kind::kPass, {"0", "3", ""}},           {Kind::kZeroGrad, {}},
    {Kind::kNoSyncPass, {"2", "02", "0"}},   {Kind::kNoSyncPass, {"0", "0", "0"}},
    {Kind::kPass, {"1", "", "1"}},           {Kind::kZeroGrad, {}},
    {Kind::kPass, {"", "3", "2"}},           {Kind::kPass, {"", "", ""}},
    {Kind::kPass, {"3210", "0123", "0123"}},
};

TEST_CASE("gpu unused parameters: every gradient is as in host memory, bit for bit") {
  CheckIsSameInBoth(kScript, {.ddp = kFindUnused});
}

TEST_CASE("gpu unused parameters: also with a hook, and in memory of the program's own") {
  CheckIsSameInBoth(kScript, {.ddp = kFindUnused, .has_hook = true});
  GpuScript own;
  for (const GpuScriptStep& step : kScript) {
    if (step.kind != Kind::kZeroGrad) own.push_back(step);
  }
  CheckIsSameInBoth(own, {.ddp = kFindUnused, .owns_gradients = true});
}

// 2 is used nowhere; rank 0's 1 has two gradients a pass, rank 2 uses nothing.
TEST_CASE("gpu static graph: every gradient is as in host memory, bit for bit") {
  const GpuScriptStep pass{Kind::kPass, {"101", "30", ""}}, zero{Kind::kZeroGrad, {}};
  const GpuScriptStep local{Kind::kNoSyncPass, {"10", "30", ""}};
  const GpuScript script = {pass, pass, zero, pass, pass, local, local, pass, zero, pass};
  CheckIsSameInBoth(script, {.ddp = kStatic});
  CheckIsSameInBoth(script, {.ddp = kStatic, .has_hook = true});
  CheckIsSameInBoth(script, {.ddp = {.static_graph = true, .rebuild_buckets = true}});
}

// Averages would change them: each rank has its own, and -0, a NaN's payload and the largest number
// do not survive a sum.
TEST_CASE("gpu unused parameters: what no rank uses keeps every bit") {
  for (const auto& options : {kFindUnused, kStatic}) {
    CHECK(OnRanks(2, [&options](ddp::Communicator& communicator) {
            const int rank = communicator.rank();
            const auto place = OnGpu();
            ScriptModel model(*place, communicator, {.ddp = options});
            EXPECT(model.Start().ok());
            Floats values = {-0.0f, std::numeric_limits<float>::max(), 1, 0, 0};
            values[2] += static_cast<float>(rank);
            values[3] = std::numeric_limits<float>::signaling_NaN();
            model.SetGradient(1, values);
            for (int pass = 0; pass < 3; ++pass) {
              EXPECT(model.Pass(rank, rank == 0 ? "30" : "0").ok());
              const Floats kept = model.Gradient(1);
              EXPECT(std::memcmp(kept.data(), values.data(), sizeof(float) * kept.size()) == 0);
            }
            return 0;
          }) == "0 0");
  }
}

// Whatever Finish() waited for would hang, since rank 1 begins its pass when rank 0's is over.
TEST_CASE("gpu static graph: from the second pass on the host waits for nobody") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          const int rank = communicator.rank();
          const auto place = OnGpu();
          ScriptModel model(*place, communicator, {.ddp = kStatic});
          EXPECT(model.Start().ok());
          EXPECT(model.Pass(rank, rank == 0 ? "10" : "30").ok());
          for (int pass = 0; pass < 2; ++pass) {
            if (rank == 1) EXPECT(communicator.host().Barrier()->Wait().ok());
            EXPECT(model.Pass(rank, rank == 0 ? "10" : "30").ok());
            if (rank == 0) EXPECT(communicator.host().Barrier()->Wait().ok());
          }
          return 0;
        }) == "0 0");
}

// The last bucket is complete before the gradient of the first is computed.
TEST_CASE("gpu static graph: from the second pass on buckets are reduced during backward") {
  CHECK(OnRanks(2, [](ddp::Communicator& communicator) {
          const auto place = OnGpu();
          ScriptModel model(*place, communicator, {.ddp = kStatic});
          EXPECT(model.Start().ok());
          EXPECT(model.Pass(communicator.rank(), "320").ok());
          EXPECT(model.Backward(communicator.rank(), "32").ok());
          const TimePoint deadline = SteadyNow() + 20s;
          while (!model.ddp().IsReduced(0) && SteadyNow() < deadline) {
          }
          EXPECT(model.ddp().IsReduced(0));
          EXPECT(model.Backward(communicator.rank(), "0").ok());
          EXPECT(model.ddp().Finish(place->optimizer()).ok());
          return 0;
        }) == "0 0");
}

TEST_CASE("gpu static graph: a pass that differs from the first is told with the parameter") {
  CHECK(RunOnDouble(1, DoubleEnv(), [](int) {
          const auto group = GpuGroup();
          const auto place = OnGpu();
          ScriptModel model(*place, group->communicator(), {.ddp = kStatic});
          EXPECT(model.Start().ok());
          EXPECT(model.Pass(0, "30").ok());
          EXPECT(model.Backward(0, "1").message().find(
                     "parameter 'weights.1' got a gradient and had none") == 0);
          return 0;
        }) == "0");
}

// Whether this process has put so many operations on a stream.
bool HasEnqueued(int count) {
  const std::string mine = "pid=" + std::to_string(getpid()) + " ";
  std::istringstream log(ReadFile(std::getenv("DDPRUN_DOUBLE_LOG")));
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with(mine) && line.find(" enqueue ") != std::string::npos) --count;
  }
  return count <= 0;
}

// What rank 0's pass ends with, in which the ranks tell each other what they used, while rank 1 is
// at `before` it. It is the second pass, or the first of a static graph.
struct Ends {
  std::string words;
  int code = -1;
  int left_peer = -1;  // in the note for the agent; -1: there is none
};

Ends RunFault(const ddp::DistributedDataParallelOptions& options, const std::string& fault,
              const std::function<void(ddp::Communicator&)>& before) {
  const TempDir temp;
  std::map<std::string, std::string> env = {{"DDPRUN_FLIGHT_RECORDER_DIR", temp.path()},
                                            {"DDPRUN_DOUBLE_DIR", temp.path()},
                                            {"DDPRUN_DOUBLE_LOG", temp.File("log")},
                                            {"DDPRUN_DOUBLE_FAULT", fault}};
  RankProcesses ranks({.world_size = 2,
                       .env = DoubleEnv(std::move(env)),
                       .env_of_rank =
                           [&](int rank) {
                             return std::map<std::string, std::string>{
                                 {"TORCHELASTIC_ERROR_FILE", temp.File(std::to_string(rank))}};
                           }},
                      [&](int rank) {
                        const auto group = GpuGroup();
                        const auto place = OnGpu();
                        ddp::Communicator& communicator = group->communicator();
                        ScriptModel model(*place, communicator, {.ddp = options});
                        EXPECT(model.Start().ok());
                        if (!options.static_graph) EXPECT(model.Pass(rank, "3210").ok());
                        model.Gradient(0);
                        communicator.SetTimeout(3s);
                        if (rank == 1) before(communicator);
                        // The device comes to it once the host has launched all of it.
                        place->Hold(place->backward());
                        std::thread letting_go([&] {
                          Eventually([&] {
                            return options.static_graph || HasEnqueued(10) ||
                                   !communicator.error().ok();
                          });
                          place->LetGo();
                        });
                        absl::Status status = model.Backward(rank, "320");
                        if (status.ok()) status = model.ddp().Finish(place->optimizer());
                        letting_go.join();
                        RankProcesses::Say(status.ToString());
                        // Final, and the group's end has the same cause.
                        EXPECT(model.ddp().Finish(place->optimizer()) == status);
                        EXPECT(Eventually([&] { return !communicator.error().ok(); }));
                        EXPECT(communicator.error().code() == status.code());
                        return status.ok() ? 1 : 0;
                      });
  Ends ends;
  ends.words = ranks.Hear(0);
  ends.code = ranks.Await(0);
  if (const auto error = ParseJson(ReadFile(temp.File("0"))); error.has_value()) {
    ends.left_peer = error->get<int>("message.extraInfo.left_peer");
  }
  return ends;
}

TEST_CASE("gpu unused parameters: a rank that dies before it has said what it used is named") {
  const Ends ends = RunFault(kFindUnused, "", [](ddp::Communicator&) { raise(SIGKILL); });
  CAPTURE(ends.words);
  CHECK(ends.words.find("UNAVAILABLE: ") == 0);
  CHECK(ends.words == Contains("rank 1"));
  CHECK(ends.left_peer == 1);
  CHECK(ends.code == 0);
}

// The ninth operation is the first bucket of that pass, behind four parameters, two broadcasts of
// the buffer and two buckets.
TEST_CASE("gpu unused parameters: a fault of the device ends the wait for the other ranks") {
  const Ends ends = RunFault(kFindUnused, "async_error=9@0", [](ddp::Communicator& communicator) {
    Eventually([&] { return !communicator.error().ok(); });
  });
  CAPTURE(ends.words);
  CHECK(ends.words.find("UNAVAILABLE: rank 0: all-reduce #9") == 0);
  CHECK(ends.words == Contains("unhandled system error"));
  CHECK(ends.code == 0);
}

// A replay would neither ask the other ranks nor remember what was used.
int CaptureDynamic(ddp::Communicator& communicator) {
  const int rank = communicator.rank();
  const auto place = OnGpu();
  ScriptModel model(*place, communicator, {.ddp = kFindUnused});
  EXPECT(model.Start().ok());
  const auto graph = ddp::StepGraph::Create(communicator, place->backward());
  EXPECT(graph.ok());
  const auto step = [&](bool is_synchronised, const std::string& used) {
    return [&model, rank, used, is_synchronised, &place] {
      const auto guard = model.ddp().NoSync(!is_synchronised);
      absl::Status status = model.Announce(used);
      if (status.ok()) status = model.ddp().Finish(place->backward());
      return status;
    };
  };
  for (int i = 0; i < ddp::StepGraph::kUncapturedSteps; ++i) {
    EXPECT((*graph)->Run(step(true, "3210")).ok());
  }
  for (const std::string used : {"320", ""}) {
    for (const bool is_synchronised : {true, false}) {
      if (used.empty() && !is_synchronised) continue;  // nothing is done
      const absl::Status status = (*graph)->Capture(step(is_synchronised, used));
      EXPECT(absl::IsFailedPrecondition(status));
      EXPECT(status.message().find("capture a step: rank 0: ") == 0);
      EXPECT(status.message().find("a captured step with find_unused_parameters") !=
             std::string::npos);
    }
  }
  // And nothing is left of it.
  EXPECT(model.Pass(rank, rank == 0 ? "320" : "310").ok());
  EXPECT(IsSameInBoth(communicator, kScript, {.ddp = kFindUnused}));
  return 0;
}

TEST_CASE("gpu unused parameters: a captured step is refused on all ranks, and they go on") {
  CHECK(OnRanks(2, CaptureDynamic) == "0 0");
}

int CaptureStatic(ddp::Communicator& communicator) {
  const int rank = communicator.rank();
  const auto place = OnGpu();
  ScriptModel model(*place, communicator, {.ddp = kStatic});
  EXPECT(model.Start().ok());
  const auto graph = ddp::StepGraph::Create(communicator, place->backward());
  EXPECT(graph.ok());
  const auto nothing = [] { return absl::OkStatus(); };
  const auto step = [&] {
    absl::Status status = model.Announce(rank == 0 ? "30" : "3");
    if (status.ok()) status = model.ddp().Finish(place->backward());
    return status;
  };
  for (int i = 0; i < ddp::StepGraph::kUncapturedSteps; ++i) EXPECT((*graph)->Run(nothing).ok());
  const absl::Status early = (*graph)->Capture(step);
  EXPECT(early.message().find("run a pass before the capture") != std::string::npos);
  EXPECT(step().ok());
  EXPECT((*graph)->Capture(step).ok());
  for (int replay = 1; replay < 4; ++replay) {
    const auto value = static_cast<float>(4 * replay + 2 * rank);
    for (const int id : {3, 2, 1, 0}) model.SetGradient(id, Floats(model.size(id), value));
    EXPECT((*graph)->Replay().ok());
    place->LetOptimizerFollow();
    const auto mean = static_cast<float>(4 * replay + 1);
    for (const int id : {3, 0}) EXPECT(model.Gradient(id) == Floats(model.size(id), mean));
    for (const int id : {2, 1}) EXPECT(model.Gradient(id) == Floats(model.size(id), value));
    place->EndPass();
  }
  return 0;
}

TEST_CASE("gpu static graph: a step is captured once a pass has settled who uses what") {
  CHECK(OnRanks(2, CaptureStatic) == "0 0");
}

// In a static graph nothing is on the device by then.
TEST_CASE("gpu unused parameters: a rank that does not come is named at the timeout") {
  for (const auto& options : {kFindUnused, kStatic}) {
    const Ends ends = RunFault(options, "", [](ddp::Communicator&) { raise(SIGSTOP); });
    CAPTURE(ends.words);
    CHECK(ends.words.find("DEADLINE_EXCEEDED: ") == 0);
    CHECK(ends.words == Contains("rank 1 did not arrive"));
    CHECK(ends.code == 0);
  }
}

}  // namespace
}  // namespace ddprun::testing
