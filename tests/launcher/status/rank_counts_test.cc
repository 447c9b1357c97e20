#include "launcher/status/rank_counts.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{seconds(1000)};

int64_t Ns(TimePoint at) { return at.time_since_epoch().count(); }

// A worker that takes steps of half a second, of which a fifth is spent waiting, with 8 samples.
RankCounts AtStep(uint64_t steps) {
  RankCounts counts;
  counts.phase = static_cast<uint64_t>(ProgramPhase::kTrain);
  counts.phase_since_ns = Ns(kStart);
  counts.steps = steps;
  counts.step = static_cast<int64_t>(steps) + 100;
  const auto taken = static_cast<int64_t>(steps);
  counts.step_at_ns = Ns(kStart + taken * milliseconds(500));
  counts.first_step_at_ns = Ns(kStart + seconds(3));
  counts.longest_step_ns = 700'000'000;
  counts.samples = 8 * taken;
  counts.step_time_ns = 500'000'000 * taken;
  counts.waited_ns = 100'000'000 * taken;
  return counts;
}

GroupCounts Group(uint64_t called, uint64_t done) {
  GroupCounts group;
  group.key = 77;
  group.rank = 3;
  group.size = 8;
  group.called = called;
  group.done = done;
  group.name = "world";
  group.op = 4;
  return group;
}

RankView ViewAt(const RankHistory& history, TimePoint now) {
  RankView view;
  history.Fill(now, view);
  return view;
}

TEST_CASE("rank counts: a worker that says nothing is shown as unknown") {
  RankHistory history;
  history.Reset(kStart);
  CHECK(ViewAt(history, kStart + seconds(5)) == RankView{});
  history.Look(kStart + seconds(5), RankCounts{});
  CHECK(ViewAt(history, kStart + seconds(5)) == RankView{});
}

TEST_CASE("rank counts: one step has a number and an age, and two have rates") {
  RankHistory history;
  history.Reset(kStart);
  history.Look(kStart + seconds(4), AtStep(8));
  const RankView one = ViewAt(history, kStart + seconds(5));
  CHECK(one.step == 108);
  CHECK(one.step_age_s == doctest::Approx(1));
  CHECK(one.phase == ProgramPhase::kTrain);
  CHECK(one.phase_s == doctest::Approx(5));
  CHECK(one.first_step_s == doctest::Approx(3));
  CHECK(one.longest_step_s == doctest::Approx(0.7));
  CHECK(!one.step_s);
  CHECK(!one.samples_per_s);

  history.Look(kStart + seconds(5), AtStep(10));
  const RankView two = ViewAt(history, kStart + seconds(5));
  CHECK(two.step_s == doctest::Approx(0.5));
  CHECK(two.samples_per_s == doctest::Approx(16));
  // Steps that ended long ago have no speed.
  const RankView later = ViewAt(history, kStart + seconds(30));
  CHECK(later.step == 110);
  CHECK(!later.step_s);
  CHECK(!later.samples_per_s);
  // Without a group nobody waits in it, whatever the sum says.
  CHECK(!two.self_s);
  CHECK(!two.exposed_share);
}

TEST_CASE("rank counts: progress goes to the last step, and without steps to now") {
  RankHistory history;
  const TimePoint now = kStart + seconds(60);
  CHECK(history.Progress(now, AtStep(10)).time == Duration{0});  // It was not started.
  history.Reset(kStart);
  CHECK(history.Progress(now, AtStep(10)).step == 110);
  CHECK(history.Progress(now, AtStep(10)).time == seconds(5));
  CHECK(!history.Progress(now, {}).step);
  CHECK(history.Progress(now, {}).time == seconds(60));
  // What a worker has made up is believed as far as it can be.
  RankCounts counts = AtStep(10);
  for (const int64_t at : {Ns(kStart) - 1, Ns(now) + 1, std::numeric_limits<int64_t>::min()}) {
    counts.step_at_ns = at;
    CHECK(history.Progress(now, counts).time == seconds(60));
  }
  counts.step = -1;
  CHECK(!history.Progress(now, counts).step);
}

TEST_CASE("rank counts: the time of evaluations is all of them, and no part of the steps' speed") {
  RankHistory history;
  history.Reset(kStart);
  RankCounts counts = AtStep(8);
  history.Look(kStart + seconds(4), counts);
  CHECK(ViewAt(history, kStart + seconds(4)).evaluation_s == 0);
  counts = AtStep(10);
  counts.step_at_ns += 2'000'000'000;
  counts.phase = static_cast<uint64_t>(ProgramPhase::kEvaluation);
  counts.phase_since_ns = Ns(kStart + seconds(7));
  counts.evaluation_ns = 2'000'000'000;
  counts.checkpoint_ns = 250'000'000;
  history.Look(kStart + seconds(7), counts);
  const RankView view = ViewAt(history, kStart + milliseconds(7500));
  CHECK(view.evaluation_s == doctest::Approx(2.5));
  CHECK(view.checkpoint_s == doctest::Approx(0.25));
  CHECK(view.samples_per_s == doctest::Approx(16));
}

TEST_CASE("rank counts: what a step waits is the callers', or what StepMetrics measures") {
  RankHistory history;
  history.Reset(kStart);
  for (uint64_t steps : {8, 10}) {
    RankCounts counts = AtStep(steps);
    counts.groups = {Group(5, 5)};
    history.Look(kStart + milliseconds(500 * steps), counts);
  }
  CHECK(ViewAt(history, kStart + seconds(5)).self_s == doctest::Approx(0.4));
  CHECK(ViewAt(history, kStart + seconds(5)).exposed_share == doctest::Approx(0.2));
  history.Reset(kStart);
  for (uint64_t steps : {8, 10}) {
    RankCounts counts = AtStep(steps);
    counts.exposed_ns = 250'000'000 * static_cast<int64_t>(steps);
    history.Look(kStart + milliseconds(500 * steps), counts);
  }
  CHECK(ViewAt(history, kStart + seconds(5)).exposed_share == doctest::Approx(0.5));
}

TEST_CASE("rank counts: rates are of the last 10 s, or of the last step where that is longer") {
  RankHistory history;
  history.Reset(kStart);
  // Slow for long, then twice as fast for longer than the window.
  int64_t step_time = 0;
  const auto look = [&](uint64_t steps, int at_s, int64_t each_ns) {
    step_time += each_ns;
    RankCounts counts = AtStep(steps);
    counts.step_time_ns = step_time;
    counts.step_at_ns = Ns(kStart + seconds(at_s));
    history.Look(kStart + seconds(at_s), counts);
  };
  for (int i = 1; i <= 60; ++i) look(static_cast<uint64_t>(i), i, 1'000'000'000);
  for (int i = 61; i <= 80; ++i) look(static_cast<uint64_t>(i), i, 250'000'000);
  CHECK(ViewAt(history, kStart + seconds(80)).step_s == doctest::Approx(0.25));
  // One step of 100 s.
  look(81, 180, 100'000'000'000);
  CHECK(ViewAt(history, kStart + seconds(180)).step_s == doctest::Approx(100));
  // Looks at which no step had ended change nothing.
  for (int i = 181; i < 300; ++i) {
    RankCounts counts = AtStep(81);
    counts.step_at_ns = Ns(kStart + seconds(180));
    history.Look(kStart + seconds(i), counts);
  }
  CHECK(ViewAt(history, kStart + seconds(300)).step_s == doctest::Approx(100));
}

TEST_CASE("rank counts: a worker that starts anew, or another writer, does not mix with the last") {
  RankHistory history;
  history.Reset(kStart);
  history.Look(kStart + seconds(4), AtStep(80));
  history.Look(kStart + seconds(5), AtStep(90));
  history.Look(kStart + seconds(6), AtStep(2));
  CHECK(!ViewAt(history, kStart + seconds(6)).step_s);
  CHECK(ViewAt(history, kStart + seconds(6)).step == 102);
  history.Reset(kStart + seconds(7));
  CHECK(ViewAt(history, kStart + seconds(8)) == RankView{});
}

TEST_CASE("rank counts: a group's operations, and how long the oldest has been under way") {
  RankHistory history;
  history.Reset(kStart);
  RankCounts counts;
  GroupCounts waiting = Group(6, 4);
  waiting.called_at_ns = Ns(kStart + seconds(2));
  waiting.done_at_ns = Ns(kStart + seconds(1));
  waiting.busy_since_ns = Ns(kStart + milliseconds(1500));
  counts.groups = {waiting, Group(0, 0)};
  history.Look(kStart + seconds(4), counts);
  const RankView view = ViewAt(history, kStart + seconds(4));
  REQUIRE(view.groups.size() == 2);
  CHECK(view.groups[0] == GroupView{.key = 77,
                                    .name = "world",
                                    .rank = 3,
                                    .size = 8,
                                    .called = 6,
                                    .done = 4,
                                    .op = "barrier",
                                    .waiting_s = 2.5,
                                    .quiet_s = 2});
  CHECK(view.groups[1].op == "");
  CHECK(view.groups[1].waiting_s == 0);
}

TEST_CASE("rank counts: an end that was written before its call was read counts as a call") {
  RankHistory history;
  RankCounts counts;
  counts.groups = {Group(4, 6)};
  history.Look(kStart, counts);
  CHECK(ViewAt(history, kStart).groups[0].called == 6);
}

RankCounts WithBuckets(uint32_t buckets, std::vector<BucketCounts> words) {
  RankCounts counts;
  counts.buckets = buckets;
  counts.backward_ns = 60'000'000;
  counts.bucket_words = std::move(words);
  return counts;
}

TEST_CASE("rank counts: the buckets of a pass, also before the first step is told") {
  RankHistory history;
  history.Reset(kStart);
  history.Look(kStart + seconds(5), WithBuckets(2, {{10'000, 20'000}, {55'000, 70'001}}));
  RankView view = ViewAt(history, kStart + seconds(5));
  CHECK(view.backward_s == doctest::Approx(0.06));
  REQUIRE(view.buckets.size() == 2);
  CHECK(view.buckets[1].count == 1);
  CHECK(view.buckets[1].start_s == doctest::Approx(0.055));
  CHECK(view.buckets[1].end_s == doctest::Approx(0.070001));
  // Of 16, two share a word; of 17, so do all but the last.
  history.Look(kStart + seconds(6), WithBuckets(17, std::vector<BucketCounts>(9)));
  view = ViewAt(history, kStart + seconds(6));
  REQUIRE(view.buckets.size() == 9);
  CHECK(view.buckets[0].count == 2);
  CHECK(view.buckets[8].count == 1);
}

TEST_CASE("rank counts: buckets that contradict themselves are none") {
  std::vector<RankCounts> wrong = {
      WithBuckets(2, {{10'000, 20'000}, {55'001, 55'000}}),     // the end before the start
      WithBuckets(2, {{10'000, 20'000}, {55'000, 5'000'001}}),  // longer than it has lived
      WithBuckets(2, {}),                                       // half written
      WithBuckets(1'000'000'000, std::vector<BucketCounts>(14))};
  wrong.push_back(WithBuckets(1, {{1, 2}}));
  wrong.back().backward_ns = -1;
  wrong.push_back(WithBuckets(1, {{1, 2}}));
  wrong.back().backward_ns = std::numeric_limits<int64_t>::max();
  for (const RankCounts& counts : wrong) {
    RankHistory history;
    history.Reset(kStart);
    history.Look(kStart + seconds(5), counts);
    CHECK(ViewAt(history, kStart + seconds(5)) == RankView{});
  }
}

TEST_CASE("rank counts: moments that are not of this machine's time are unknown") {
  RankHistory history;
  history.Reset(kStart);
  RankCounts counts = AtStep(8);
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  counts.phase_since_ns = counts.step_at_ns = counts.first_step_at_ns = kNever;
  counts.longest_step_ns = kNever;
  counts.phase = 99;
  history.Look(kStart + seconds(4), counts);
  RankView view = ViewAt(history, kStart + seconds(4));
  CHECK(view.phase == ProgramPhase::kUnknown);
  CHECK(view.step_age_s == 0);
  CHECK(!view.first_step_s);
  CHECK(!view.longest_step_s);
  counts.phase_since_ns = counts.step_at_ns = counts.first_step_at_ns =
      std::numeric_limits<int64_t>::min();
  history.Look(kStart + seconds(5), counts);
  view = ViewAt(history, kStart + seconds(5));
  CHECK(view.step_age_s == 0);
  CHECK(!view.first_step_s);
}

// Any word of the page: mostly one of those at which sums overflow.
uint64_t AnyWord(std::mt19937_64& random) {
  switch (random() % 6) {
    case 0:
      return 0;
    case 1:
      return random() % 4;
    case 2:
      return static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - random() % 3;
    case 3:
      return static_cast<uint64_t>(std::numeric_limits<int64_t>::min()) + random() % 3;
    case 4:
      return static_cast<uint64_t>(Ns(kStart)) + random() % 5'000'000'000;
    default:
      return random();
  }
}

RankCounts AnyCounts(std::mt19937_64& random) {
  RankCounts counts;
  counts.phase = AnyWord(random);
  counts.steps = AnyWord(random);
  for (int64_t* word :
       {&counts.phase_since_ns, &counts.step, &counts.step_at_ns, &counts.samples,
        &counts.first_step_at_ns, &counts.longest_step_ns, &counts.step_time_ns, &counts.waited_ns,
        &counts.exposed_ns, &counts.evaluation_ns, &counts.checkpoint_ns}) {
    *word = static_cast<int64_t>(AnyWord(random));
  }
  counts.buckets = static_cast<uint32_t>(AnyWord(random));
  counts.backward_ns = static_cast<int64_t>(AnyWord(random));
  for (uint64_t i = random() % 15; i > 0; --i) {
    counts.bucket_words.push_back(
        {static_cast<uint32_t>(AnyWord(random)), static_cast<uint32_t>(AnyWord(random))});
  }
  for (uint64_t i = random() % 40; i > 0; --i) {
    GroupCounts group;
    group.key = AnyWord(random);
    group.rank = static_cast<uint32_t>(AnyWord(random));
    group.size = static_cast<uint32_t>(AnyWord(random));
    group.called = AnyWord(random);
    group.done = AnyWord(random);
    group.called_at_ns = static_cast<int64_t>(AnyWord(random));
    group.done_at_ns = static_cast<int64_t>(AnyWord(random));
    group.busy_since_ns = static_cast<int64_t>(AnyWord(random));
    group.op = AnyWord(random);
    for (int byte = 0; byte < 63; ++byte) group.name += static_cast<char>(random());
    counts.groups.push_back(std::move(group));
  }
  return counts;
}

TEST_CASE("rank counts: whatever a worker writes, what is shown is finite, clean and bounded") {
  std::mt19937_64 random(1);
  for (int run = 0; run < 60; ++run) {
    RankHistory history;
    history.Reset(kStart);
    TimePoint now = kStart;
    for (int look = 0; look < 60; ++look) {
      now += milliseconds(random() % 2000);
      history.Look(now, AnyCounts(random));
      const RankView view = ViewAt(history, now);
      const double lived = std::chrono::duration<double>(now - kStart).count();
      for (const std::optional<double> value : {view.step_s, view.self_s, view.samples_per_s}) {
        CHECK((!value || (std::isfinite(*value) && *value >= 0)));
      }
      for (const std::optional<double> value : {view.first_step_s, view.longest_step_s}) {
        CHECK((!value || (*value >= 0 && *value <= lived)));
      }
      CHECK((!view.exposed_share || (*view.exposed_share >= 0 && *view.exposed_share <= 1)));
      CHECK(view.phase <= ProgramPhase::kCheckpoint);
      CHECK(view.buckets.size() <= 14);
      CHECK((!view.backward_s || (*view.backward_s >= 0 && *view.backward_s <= lived)));
      for (const BucketView& bucket : view.buckets) {
        CHECK((0 <= bucket.start_s && bucket.start_s <= bucket.end_s && bucket.end_s <= lived));
      }
      CHECK(view.groups.size() <= 16);
      for (const GroupView& group : view.groups) {
        CHECK(group.size >= 1);
        CHECK((0 <= group.rank && group.rank < group.size));
        CHECK(group.called >= group.done);
        CHECK(group.waiting_s >= 0);
        CHECK(group.quiet_s >= 0);
        CHECK(EscapeControl(group.name) == group.name);
      }
    }
  }
}

}  // namespace
}  // namespace ddprun::launcher
