// Parameters without a gradient, against PyTorch's find_unused_parameters.
#include "worker_runtime/unused_parameters.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/torch_ddp.h"

namespace ddp {
namespace {

using testing::RunScript;
using testing::ScriptStep;
using Kind = ScriptStep::Kind;

const DistributedDataParallelOptions kFindUnused{.find_unused_parameters = true};

// All used; some on one rank; some nowhere, behind zeros and behind what is left of an earlier
// pass; used in NoSync alone; nothing but leftovers.
const std::vector<ScriptStep> kScript = {
    {Kind::kPass, {"3210", "3210"}},  {Kind::kZeroGrad, {}},           {Kind::kPass, {"310", "0"}},
    {Kind::kPass, {"21", "12"}},      {Kind::kPass, {"0", "3"}},       {Kind::kZeroGrad, {}},
    {Kind::kNoSyncPass, {"2", "02"}}, {Kind::kNoSyncPass, {"0", "0"}}, {Kind::kPass, {"1", "1"}},
    {Kind::kPass, {"1", "1"}},        {Kind::kNoSyncPass, {"3", "1"}}, {Kind::kPass, {"1", "1"}},
    {Kind::kPass, {"3210", "0123"}},
};

TEST_CASE("unused parameters: every gradient is torch's, bit for bit") {
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  testing::CheckAsTorch(kScript, "find_unused_parameters=1", kFindUnused);
}

TEST_CASE("unused parameters: without the option a missing gradient stays an error") {
  for (const auto& result : RunScript({{Kind::kPass, {"321", "321"}}}, {})) {
    CHECK(result.status().code() != absl::StatusCode::kOk);
  }
}

// Rank 0 uses the first, rank 1 the second, nobody the third; then nobody but rank 1's second. In a
// static graph that is the first pass's.
TEST_CASE("unused parameters: WasUsed says which gradients became averages") {
  for (const bool is_static : {false, true}) {
    CAPTURE(is_static);
    ddprun::testing::ThreadGroup group(2);
    group.Run([is_static](Communicator& communicator) {
      float weights[3] = {};
      DistributedDataParallel ddp(
          communicator, {.find_unused_parameters = !is_static, .static_graph = is_static});
      for (float& weight : weights) {
        ddp.AddParameter(absl::StrCat("w", &weight - weights), &weight, 1, DType::kFloat32);
      }
      CHECK(ddp.WasUsed(0));  // nothing is known yet
      CHECK(ddp.Finalize().ok());
      const int mine = communicator.rank();
      CHECK(ddp.GradientReady(mine).ok());
      CHECK(ddp.Finish().ok());
      CHECK((ddp.WasUsed(0) && ddp.WasUsed(1) && !ddp.WasUsed(2)));
      if (mine == 1 || is_static) CHECK(ddp.GradientReady(mine).ok());
      CHECK(ddp.Finish().ok());
      CHECK((ddp.WasUsed(0) == is_static && ddp.WasUsed(1) && !ddp.WasUsed(2)));
    });
  }
}

TEST_CASE("unused parameters: an option that one rank lacks is an error on both") {
  for (const auto& [name, option] :
       {std::pair{"find_unused_parameters",
                  &DistributedDataParallelOptions::find_unused_parameters},
        std::pair{"broadcast_buffers", &DistributedDataParallelOptions::broadcast_buffers},
        std::pair{"static_graph", &DistributedDataParallelOptions::static_graph},
        std::pair{"rebuild_buckets", &DistributedDataParallelOptions::rebuild_buckets}}) {
    ddprun::testing::ThreadGroup group(2);
    absl::Status statuses[2];
    group.Run([&statuses, option](Communicator& communicator) {
      float weight = 0;
      DistributedDataParallelOptions options;
      options.*option = communicator.rank() == 0;
      DistributedDataParallel ddp(communicator, options);
      ddp.AddParameter("w", &weight, 1, DType::kFloat32);
      statuses[communicator.rank()] = ddp.Finalize();
    });
    for (const absl::Status& status : statuses) {
      CHECK(status.message() == absl::StrCat("options are not the same on all ranks: ", name,
                                             " is true on rank 0 and false on rank 1"));
    }
  }
}

const DistributedDataParallelOptions kStatic{.static_graph = true};

// Rank 0 never uses 3 and rank 1 never 1; 2 is used nowhere. Nothing is zeroed in between.
TEST_CASE("static graph: every gradient is torch's, bit for bit") {
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  const ScriptStep pass{Kind::kPass, {"10", "30"}};
  const ScriptStep local{Kind::kNoSyncPass, {"10", "30"}};
  const std::vector<ScriptStep> script = {pass,  pass, {Kind::kZeroGrad, {}}, pass, pass, local,
                                          local, pass};
  testing::CheckAsTorch(script, "static_graph=1", kStatic);
}

// Rank 0's 1 has two gradients a pass, its 2 three; rank 1's other ones.
TEST_CASE("static graph: a gradient that comes several times in a pass is torch's, bit for bit") {
  const ScriptStep pass{Kind::kPass, {"1012322", "33210"}};
  const std::vector<ScriptStep> script = {pass, pass, {Kind::kZeroGrad, {}}, pass, pass};
  const auto rebuilt = RunScript(script, {.static_graph = true, .rebuild_buckets = true});
  const auto plain = RunScript(script, kStatic);
  for (const int rank : {0, 1}) {
    REQUIRE_MESSAGE(rebuilt[rank].ok(), rebuilt[rank].status().message());
    REQUIRE_MESSAGE(plain[rank].ok(), plain[rank].status().message());
    CHECK(*rebuilt[rank] == *plain[rank]);
  }
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  testing::CheckAsTorch(script, "static_graph=1", kStatic);
}

TEST_CASE("static graph: a gradient that comes more or less often than in the first pass is told") {
  const ScriptStep first{Kind::kPass, {"3100", "3100"}};
  const auto more = RunScript({first, {Kind::kPass, {"3000", "3100"}}}, kStatic);
  CHECK(more[0].status().message() ==
        Contains("gradient of 'weights.0' was marked ready 3 times in one backward pass, and 2 "
                 "times in the first, which with static_graph counts for all"));
  const auto fewer = RunScript({first, {Kind::kPass, {"310", "3100"}}}, kStatic);
  CHECK(fewer[0].status().message() ==
        Contains("1 of 3 parameters got no gradient: 'weights.0' (1 of 2 times)"));
}

TEST_CASE("static graph: a pass that differs from the first is told with the parameter") {
  for (const Kind kind : {Kind::kPass, Kind::kNoSyncPass}) {
    const auto more = RunScript({{Kind::kPass, {"310", "210"}}, {kind, {"310", "3210"}}}, kStatic);
    CHECK(more[1].status().message().find("parameter 'weights.3' got a gradient and had none") ==
          0);
  }
  const auto fewer =
      RunScript({{Kind::kPass, {"310", "210"}}, {Kind::kPass, {"310", "20"}}}, kStatic);
  CHECK(fewer[1].status().message() ==
        Contains("1 of 3 parameters got no gradient: 'weights.1'; with "
                 "static_graph"));
}

TEST_CASE("static graph: a rank that uses nothing takes part in every pass") {
  const std::vector<ScriptStep> script(3, {Kind::kPass, {"", "01"}});
  const auto results = RunScript(script, kStatic), found = RunScript(script, kFindUnused);
  for (int rank : {0, 1}) {
    REQUIRE_MESSAGE(results[rank].ok(), results[rank].status().message());
    REQUIRE_MESSAGE(found[rank].ok(), found[rank].status().message());
    CHECK(*results[rank] == *found[rank]);
  }
}

// Buckets that wait for no gradient must not be held back until Finish, nor the bitmap come again.
TEST_CASE("static graph: from the second pass on buckets are reduced during backward") {
  ddprun::testing::ThreadGroup group(2);
  bool overlaps[2] = {};
  group.Run([&overlaps](Communicator& communicator) {
    float weights[3] = {};
    DistributedDataParallel ddp(communicator, {.bucket_cap_bytes = 4, .static_graph = true});
    for (const char* name : {"last", "used", "unused"}) {
      ddp.AddParameter(name, weights, 1, DType::kFloat32);
    }
    if (!ddp.Finalize().ok()) return;
    const auto pass = [&ddp] {
      bool is_reduced = false;
      if (!ddp.GradientReady(1).ok()) return false;
      is_reduced = ddprun::testing::Eventually([&ddp] { return ddp.IsReduced(1); });
      return ddp.GradientReady(0).ok() && ddp.Finish().ok() && is_reduced;
    };
    if (!ddp.GradientReady(1).ok() || !ddp.GradientReady(0).ok() || !ddp.Finish().ok()) return;
    overlaps[communicator.rank()] = pass() && pass();
  });
  CHECK(overlaps[0]);
  CHECK(overlaps[1]);
}

// torch cannot run backward where nothing is used.
TEST_CASE("unused parameters: a rank without any gradient contributes what its gradients hold") {
  const auto results =
      RunScript({{Kind::kPass, {"", "0123"}}, {Kind::kPass, {"", ""}}}, kFindUnused);
  REQUIRE(results[0].ok());
  REQUIRE(results[1].ok());
  using Values = std::vector<float>;
  const Values &mine = *results[0], &theirs = *results[1];
  const auto gradients = [](const Values& all, size_t pass) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(pass * testing::kScriptPassSize);
    return Values(begin + 2, begin + testing::kScriptPassSize);
  };
  CHECK(gradients(mine, 0) == gradients(theirs, 0));
  CHECK(gradients(mine, 0)[0] == (0.5f + 2) / 2);
  CHECK(gradients(mine, 1) == gradients(mine, 0));
}

// Averages would change them: each rank has its own, and -0, a NaN's payload and the largest number
// do not survive a sum.
void CheckKeepsEveryBit(const DistributedDataParallelOptions& options) {
  ddprun::testing::ThreadGroup group(2);
  bool is_kept[2] = {};
  group.Run([&](Communicator& communicator) {
    float weights[4] = {};
    DistributedDataParallel ddp(communicator, options);
    ddp.AddParameter("used", weights, 1, DType::kFloat32);
    ddp.AddParameter("unused", weights, 4, DType::kFloat32);
    ddp.AddParameter("empty", weights, 0, DType::kFloat32);
    if (!ddp.Finalize().ok()) return;
    const float rank = static_cast<float>(communicator.rank());
    const float values[] = {-0.0f, std::numeric_limits<float>::max(), 1 + rank,
                            std::numeric_limits<float>::signaling_NaN()};
    std::memcpy(ddp.GradientPtr(1), values, sizeof(values));
    for (int pass = 0; pass < 3; ++pass) {
      if (!ddp.GradientReady(0).ok() || !ddp.Finish().ok()) return;
    }
    is_kept[communicator.rank()] = std::memcmp(ddp.GradientPtr(1), values, sizeof(values)) == 0;
  });
  CHECK(is_kept[0]);
  CHECK(is_kept[1]);
}

TEST_CASE("unused parameters: what no rank uses keeps every bit") {
  CheckKeepsEveryBit(kFindUnused);
  CheckKeepsEveryBit(kStatic);
}

}  // namespace
}  // namespace ddp
