#include "worker_runtime/reducer_core.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

Bucket Of(std::vector<int> parameters) { return {.parameters = std::move(parameters)}; }

// Four parameters in two buckets, as reverse registration gives them.
ReducerCore Core() { return ReducerCore({"a", "b", "c", "d"}, {Of({3, 2}), Of({1, 0})}); }

// The buckets that marking `parameter` launches.
std::vector<int> Mark(ReducerCore& core, int parameter) {
  const absl::StatusOr<LaunchRange> range = core.MarkReady(parameter);
  REQUIRE_MESSAGE(range.ok(), std::string(range.status().message()));
  std::vector<int> launched;
  for (int i = range->begin; i < range->end; ++i) launched.push_back(i);
  return launched;
}

using List = std::vector<int>;

TEST_CASE("reducer: a bucket is launched when its last gradient is ready") {
  ReducerCore core = Core();
  CHECK(Mark(core, 3) == List{});
  CHECK(Mark(core, 2) == List{0});
  CHECK(Mark(core, 1) == List{});
  CHECK(Mark(core, 0) == List{1});
  CHECK(core.Finish().ok());
}

TEST_CASE("reducer: a later bucket that is complete first waits for those before it") {
  ReducerCore core = Core();
  CHECK(Mark(core, 0) == List{});
  CHECK(Mark(core, 1) == List{});
  CHECK(Mark(core, 2) == List{});
  CHECK(Mark(core, 3) == List{0, 1});
}

TEST_CASE("reducer: any order launches every bucket once, in index order") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Bucket> buckets;
    std::vector<std::string> names;
    while (names.size() < 40) {
      Bucket bucket;
      for (uint32_t i = 0; i < 1 + random() % 5; ++i) {
        bucket.parameters.push_back(static_cast<int>(names.size()));
        names.push_back(std::to_string(names.size()));
      }
      buckets.push_back(bucket);
    }
    ReducerCore core(names, buckets);
    List order(names.size()), launched;
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    for (int pass = 0; pass < 2; ++pass) {
      std::shuffle(order.begin(), order.end(), random);
      launched.clear();
      for (const int parameter : order) {
        for (const int bucket : Mark(core, parameter)) launched.push_back(bucket);
      }
      REQUIRE(launched.size() == buckets.size());
      REQUIRE(std::is_sorted(launched.begin(), launched.end()));
      REQUIRE(core.Finish().ok());
    }
  }
}

TEST_CASE("reducer: a gradient marked ready twice is an error that names it and what is missing") {
  ReducerCore core = Core();
  Mark(core, 1);
  const absl::Status status = core.MarkReady(1).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() ==
        "Expected to mark a parameter ready only once: gradient of 'b' was marked ready twice in "
        "one backward pass; still missing: 'a', 'c', 'd'");
  CHECK(Mark(core, 0) == List{});  // nothing has changed
}

TEST_CASE("reducer: a pass that begins before Finish is an error") {
  ReducerCore core = Core();
  for (const int parameter : {3, 2, 1, 0}) Mark(core, parameter);
  const absl::Status status = core.MarkReady(3).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message().find("Expected to have finished reduction in the prior iteration before "
                              "starting a new one: gradient of 'd'") == 0);
  CHECK(core.MarkUnsynchronized(3).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(core.Finish().ok());
  CHECK(Mark(core, 3) == List{});
}

TEST_CASE("reducer: Finish names the parameters without a gradient, and the next pass is whole") {
  ReducerCore core = Core();
  Mark(core, 3);
  Mark(core, 1);
  const absl::Status status = core.Finish();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() ==
        "Expected to have finished reduction in the prior iteration before starting a new one: 2 "
        "of 4 parameters got no gradient: 'a', 'c'; every registered parameter must be marked "
        "ready in every synchronised backward pass, or set find_unused_parameters");
  for (const int parameter : {3, 2, 1}) Mark(core, parameter);
  CHECK(Mark(core, 0) == List{1});
  CHECK(core.Finish().ok());
}

TEST_CASE("reducer: an error lists ten names and no more") {
  std::vector<std::string> names;
  Bucket bucket;
  for (int i = 0; i < 1000; ++i) {
    names.push_back("p" + std::to_string(i));
    bucket.parameters.push_back(i);
  }
  ReducerCore core(names, {bucket});
  const std::string message(core.Finish().message());
  CHECK(message == Contains("1000 of 1000 parameters got no gradient: 'p0', 'p1',"));
  CHECK(message == Contains("'p9', ...; every"));
  CHECK(message != Contains("'p10'"));
}

TEST_CASE("reducer: passes without synchronisation leave no trace") {
  ReducerCore core = Core();
  for (int pass = 0; pass < 3; ++pass) {
    for (const int parameter : {3, 2, 1, 0}) CHECK(core.MarkUnsynchronized(parameter).ok());
  }
  CHECK_FALSE(core.is_in_pass());
  CHECK(Mark(core, 3) == List{});
  CHECK(Mark(core, 2) == List{0});
}

TEST_CASE("reducer: NoSync in the middle of a synchronised pass is an error") {
  ReducerCore core = Core();
  Mark(core, 3);
  const absl::Status status = core.MarkUnsynchronized(2);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == Contains("gradient of 'c'"));
}

TEST_CASE(
    "reducer: marking the rest launches every bucket that was not, and ends in a whole pass") {
  ReducerCore core = Core();
  Mark(core, 3);
  Mark(core, 2);
  Mark(core, 0);
  const LaunchRange rest = core.MarkRestReady();
  CHECK(rest.begin == 1);
  CHECK(rest.end == 2);
  CHECK_FALSE(core.MarkReady(1).ok());
  CHECK(core.Finish().ok());
  const LaunchRange all = core.MarkRestReady();
  CHECK(all.begin == 0);
  CHECK(all.end == 2);
  CHECK(core.Finish().ok());
  CHECK(Mark(core, 3) == List{});
}

TEST_CASE("reducer: nothing waits for a parameter that is left out, and it may not come") {
  ReducerCore core({"a", "b", "c", "d", "e"}, {Of({4}), Of({3, 2}), Of({1, 0})});
  core.LeaveOut({false, true, false, true, true});
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(Mark(core, 2) == List{0, 1});
    CHECK(core.MarkReady(4).status().message().find("parameter 'e' got a gradient") == 0);
    CHECK(core.Finish().message() ==
          Contains("1 of 2 parameters got no gradient: 'a'; with static"));
    CHECK(Mark(core, 0) == List{0});
    CHECK(Mark(core, 2) == List{1, 2});
    CHECK(core.is_complete());
    CHECK(core.Finish().ok());
  }
  CHECK(core.MarkUnsynchronized(1).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("reducer: an abandoned pass leaves nothing behind") {
  ReducerCore core = Core();
  Mark(core, 3);
  Mark(core, 2);
  core.Abandon();
  CHECK_FALSE(core.is_in_pass());
  CHECK(Mark(core, 3) == List{});
  CHECK(Mark(core, 2) == List{0});
}

TEST_CASE("reducer: an unknown parameter is refused") {
  ReducerCore core = Core();
  for (const int parameter : {-1, 4, 1000}) {
    CHECK(core.MarkReady(parameter).status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(core.MarkUnsynchronized(parameter).code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("reducer: a model without parameters has nothing to finish") {
  ReducerCore core({}, {});
  CHECK(core.Finish().ok());
  CHECK_FALSE(core.is_in_pass());
}

TEST_CASE("reducer: marks that are counted in the first pass are awaited in every later one") {
  ReducerCore core({"a", "b"}, {{.parameters = {1}}, {.parameters = {0}}});
  core.CountMarks();
  for (const int parameter : {1, 0, 1}) {
    const auto range = core.MarkReady(parameter);
    REQUIRE(range.ok());
    CHECK(range->begin == range->end);
  }
  CHECK(core.ArrivalOrder() == std::vector<int>{0, 1});
  CHECK(core.MarkRestReady().end == 2);
  REQUIRE(core.Finish().ok());
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(core.MarkReady(1)->end == 0);
    CHECK(core.is_in_pass());
    CHECK(core.MarkReady(1)->end == 1);
    CHECK(core.MarkReady(1).status().message() == Contains("was marked ready 3 times"));
    CHECK(core.MarkReady(0)->end == 2);
    REQUIRE(core.Finish().ok());
  }
  CHECK(core.ArrivalOrder() == std::vector<int>{1, 0});
  REQUIRE(core.MarkReady(1).ok());
  CHECK(core.Finish().message() ==
        Contains("2 of 2 parameters got no gradient: 'a', 'b' (1 of 2 times)"));
}

}  // namespace
}  // namespace ddp::internal
