// Buckets in the order in which gradients come, against those in the order of registration.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/torch_ddp.h"
#include "worker_runtime/bucketizer.h"

namespace ddp {
namespace {

using internal::Bucket;
using internal::GradientSpec;
using testing::RunScript;
using testing::ScriptStep;
using Kind = ScriptStep::Kind;

TEST_CASE("rebuild: buckets are filled in the order of arrival, gradients stay where they are") {
  const std::vector<GradientSpec> gradients(4, {.count = 20});
  const internal::BucketLimits limits{.first_bytes = 160, .cap_bytes = 160};
  const internal::BucketLayout layout = LayOutBuckets(gradients, limits);
  const std::vector<Bucket> buckets = FillBuckets(gradients, limits, {0, 3, 2, 1});
  REQUIRE(buckets.size() == 2);
  CHECK(buckets[0].parameters == std::vector<int>{0, 3});
  CHECK(buckets[1].parameters == std::vector<int>{2, 1});
  // 3 and 2, then 1 and 0, each pair 128 bytes apart.
  const auto runs = RunsOf(buckets[0], layout.gradient_offsets, gradients);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].offset == internal::kBucketAlignment + 128);
  CHECK(runs[0].count == 20);
  CHECK(runs[1].offset == 0);
  CHECK(runs[1].count == 20);
  // In the order of registration a bucket is one run, with the padding between two gradients.
  const auto whole = RunsOf(layout.buckets[0], layout.gradient_offsets, gradients);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].count == 32 + 20);
}

const std::vector<ScriptStep> kScript = {
    {Kind::kNoSyncPass, {"13", "0"}},
    {Kind::kPass, {"0213", "3120"}},
    {Kind::kZeroGrad, {}},
    {Kind::kPass, {"0213", "0213"}},
    {Kind::kPass, {"3210", "1032"}},
    {Kind::kNoSyncPass, {"2", "3"}},
    {Kind::kPass, {"3102", "0213"}},
};

TEST_CASE("rebuild: gradients are torch's and what they are without, bit for bit") {
  const ScriptStep fixed{Kind::kPass, {"10", "03"}};
  const std::vector<ScriptStep> is_static = {fixed, fixed, {Kind::kZeroGrad, {}}, fixed, fixed};
  std::vector<ScriptStep> joined = kScript;
  joined[0] = {Kind::kJoinInitial, {}};
  joined.push_back({Kind::kPass, {"-", "3102"}});
  using Case = std::pair<const std::vector<ScriptStep>*, DistributedDataParallelOptions>;
  for (const bool owns_gradients : {false, true}) {
    for (const auto& [script, options] :
         {Case{&kScript, DistributedDataParallelOptions{}},
          Case{&joined, DistributedDataParallelOptions{}},
          Case{&is_static, DistributedDataParallelOptions{.static_graph = true}}}) {
      DistributedDataParallelOptions rebuilding = options;
      rebuilding.rebuild_buckets = true;
      const auto with = RunScript(*script, rebuilding, {}, owns_gradients);
      const auto without = RunScript(*script, options);
      for (const int rank : {0, 1}) {
        REQUIRE_MESSAGE(with[rank].ok(), with[rank].status().message());
        REQUIRE_MESSAGE(without[rank].ok(), without[rank].status().message());
        CHECK(*with[rank] == *without[rank]);
      }
    }
  }
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  testing::CheckAsTorch(kScript, "", {.rebuild_buckets = true});
}

// A rank that has joined before the first pass has no order of its own; rank 0's counts all the
// same.
TEST_CASE("rebuild: a rank 0 that joins without a pass has the order of registration") {
  const std::vector<ScriptStep> script = {
      {Kind::kJoinInitial, {}}, {Kind::kPass, {"-", "0213"}}, {Kind::kPass, {"-", "0213"}}};
  const auto with = RunScript(script, {.rebuild_buckets = true}), without = RunScript(script, {});
  for (const int rank : {0, 1}) {
    REQUIRE_MESSAGE(with[rank].ok(), with[rank].status().message());
    REQUIRE_MESSAGE(without[rank].ok(), without[rank].status().message());
    CHECK(*with[rank] == *without[rank]);
  }
}

// Four parameters in two buckets. What came first on rank 0 is reduced while the rest is missing,
// on a rank with another order as well.
TEST_CASE("rebuild: the first bucket holds what came first on rank 0, on every rank") {
  ddprun::testing::ThreadGroup group(2);
  bool was_reduced[2] = {}, is_reduced[2] = {}, stayed[2] = {};
  group.Run([&](Communicator& communicator) {
    const int rank = communicator.rank();
    float weights[4] = {};
    DistributedDataParallel ddp(
        communicator, {.bucket_cap_bytes = 8, .first_bucket_bytes = 8, .rebuild_buckets = true});
    for (int i = 0; i < 4; ++i) {
      ddp.AddParameter(std::to_string(i), &weights[i], 1, DType::kFloat32);
    }
    if (!ddp.Finalize().ok()) return;
    std::vector<void*> pointers;
    for (int i = 0; i < 4; ++i) pointers.push_back(ddp.GradientPtr(i));
    const auto mark = [&ddp](const std::vector<int>& ids) {
      for (const int id : ids) {
        if (!ddp.GradientReady(id).ok()) return false;
      }
      return true;
    };
    // In both passes 0 and 3 are there, and then 2 and 1.
    if (!mark(rank == 0 ? std::vector{0, 3} : std::vector{2, 0})) return;
    was_reduced[rank] = ddp.IsReduced(0);
    if (!mark(rank == 0 ? std::vector{2, 1} : std::vector{1, 3}) || !ddp.Finish().ok()) return;
    if (!mark({3, 0})) return;
    is_reduced[rank] = ddprun::testing::Eventually([&ddp] { return ddp.IsReduced(0); });
    if (!mark({1, 2}) || !ddp.Finish().ok()) return;
    stayed[rank] = true;
    for (int i = 0; i < 4; ++i) stayed[rank] &= pointers[i] == ddp.GradientPtr(i);
  });
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    CHECK_FALSE(was_reduced[rank]);
    CHECK(is_reduced[rank]);
    CHECK(stayed[rank]);
  }
}

TEST_CASE("rebuild: with options that it does not go with it is refused") {
  ddprun::testing::ThreadGroup group(1);
  float weight = 0;
  {
    DistributedDataParallel ddp(group.communicator(0),
                                {.find_unused_parameters = true, .rebuild_buckets = true});
    ddp.AddParameter("w", &weight, 1, DType::kFloat32);
    CHECK(ddp.Finalize().message().find("rebuild_buckets with find_unused_parameters") == 0);
  }
  DistributedDataParallel ddp(group.communicator(0), {.rebuild_buckets = true});
  ddp.AddParameter("w", &weight, 1, DType::kFloat32);
  REQUIRE(ddp.Finalize().ok());
  const absl::Status status =
      ddp.RegisterCommHook([](const GradientBucket&, Communicator&) { return nullptr; });
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == Contains("with rebuild_buckets"));
}

}  // namespace
}  // namespace ddp
