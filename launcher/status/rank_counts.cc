#include "launcher/status/rank_counts.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "rendezvous/base/plain_text.h"
#include "worker_runtime/counters_page.h"

namespace ddprun::launcher {
namespace {

// More than a program has; what lies beyond them is not shown.
constexpr size_t kMaxGroups = 16;
constexpr size_t kMaxMarks = 32;
constexpr uint32_t kMaxBuckets = 1 << 20;

// Beyond this and five steps without one more the speed is not known.
constexpr double kStale_s = 2;

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// How long ago `at_ns` was. Never negative: a worker may have written between two readings.
double Age(TimePoint now, int64_t at_ns) {
  const int64_t now_ns = now.time_since_epoch().count();
  return at_ns <= 0 || at_ns > now_ns ? 0 : Seconds(now_ns - at_ns);
}

// The growth of a sum, nothing where a worker has written what cannot be.
std::optional<int64_t> Growth(int64_t before, int64_t after) {
  if (before < 0 || after < before) return std::nullopt;
  return after - before;
}

GroupView ViewOf(TimePoint now, const GroupCounts& counts) {
  GroupView view;
  view.key = counts.key;
  view.name = EscapeControl(counts.name);
  view.size = static_cast<int>(std::clamp<uint32_t>(counts.size, 1, 1u << 30));
  view.rank =
      static_cast<int>(std::min<uint32_t>(counts.rank, static_cast<uint32_t>(view.size) - 1));
  view.called = std::max(counts.called, counts.done);
  view.done = counts.done;
  const size_t op = counts.op < std::size(ddp::internal::kCounterOpNames) ? counts.op : 0;
  if (view.called > 0) view.op = ddp::internal::kCounterOpNames[op];
  if (view.called > view.done) view.waiting_s = Age(now, counts.busy_since_ns);
  view.quiet_s = Age(now, std::max(counts.called_at_ns, counts.done_at_ns));
  return view;
}

}  // namespace

void RankHistory::Reset(TimePoint started_at) {
  started_at_ = started_at;
  last_ = {};
  marks_.clear();
}

void RankHistory::Look(TimePoint now, RankCounts counts) {
  last_ = std::move(counts);
  if (last_.steps == 0) return;
  // Another process of the worker has begun to write, or one that writes anything.
  if (!marks_.empty() && last_.steps < marks_.back().steps) marks_.clear();
  if (!marks_.empty() && last_.steps == marks_.back().steps) return;
  marks_.push_back({.at = now,
                    .steps = last_.steps,
                    .samples = last_.samples,
                    .step_time_ns = last_.step_time_ns,
                    .waited_ns = last_.waited_ns,
                    .exposed_ns = last_.exposed_ns});
  const auto is_old = [now](const Mark& mark) { return mark.at + kWindow < now; };
  while (marks_.size() > kMaxMarks || (marks_.size() > 2 && is_old(marks_[1]))) marks_.pop_front();
}

RankProgress RankHistory::Progress(TimePoint now, const RankCounts& counts) const {
  RankProgress progress;
  TimePoint until = now;
  if (counts.steps > 0 && counts.step >= 0) {
    progress.step = counts.step;
    // A worker may have written anything.
    const TimePoint at{std::chrono::nanoseconds(counts.step_at_ns)};
    if (at >= started_at_ && at <= now) until = at;
  }
  if (started_at_ != TimePoint{}) progress.time = std::max(Duration{0}, until - started_at_);
  return progress;
}

void RankHistory::Fill(TimePoint now, RankView& view) const {
  for (const GroupCounts& group : last_.groups) {
    if (view.groups.size() == kMaxGroups) break;
    view.groups.push_back(ViewOf(now, group));
  }
  const int64_t began = started_at_.time_since_epoch().count();
  const int64_t lived = now.time_since_epoch().count() - began;
  FillPhase(now, lived, view);
  FillBuckets(lived, view);
  if (last_.steps == 0) return;
  view.step = last_.step;
  view.step_age_s = Age(now, last_.step_at_ns);
  if (last_.longest_step_ns > 0 && last_.longest_step_ns <= lived) {
    view.longest_step_s = Seconds(last_.longest_step_ns);
  }
  if (last_.first_step_at_ns >= began && last_.first_step_at_ns - began <= lived) {
    view.first_step_s = Seconds(last_.first_step_at_ns - began);
  }
  FillRates(view);
}

void RankHistory::FillPhase(TimePoint now, int64_t lived_ns, RankView& view) const {
  if (last_.phase <= static_cast<uint64_t>(ProgramPhase::kCheckpoint)) {
    view.phase = static_cast<ProgramPhase>(last_.phase);
    if (last_.phase != 0) view.phase_s = Age(now, last_.phase_since_ns);
  }
  const auto all = [&](ProgramPhase phase, int64_t ended_ns) {
    const double all_s =
        Seconds(std::max<int64_t>(ended_ns, 0)) + (view.phase == phase ? view.phase_s : 0);
    return all_s <= Seconds(lived_ns) ? all_s : 0;
  };
  view.evaluation_s = all(ProgramPhase::kEvaluation, last_.evaluation_ns);
  view.checkpoint_s = all(ProgramPhase::kCheckpoint, last_.checkpoint_ns);
}

// All or nothing: a part of a pass would look like a pass.
void RankHistory::FillBuckets(int64_t lived_ns, RankView& view) const {
  if (last_.bucket_words.empty() || last_.buckets > kMaxBuckets) return;
  if (last_.backward_ns < 0 || last_.backward_ns > lived_ns) return;
  const size_t of_word = ddp::internal::BucketsOfWord(last_.buckets);
  std::vector<BucketView> buckets;
  size_t rest = last_.buckets;
  for (const BucketCounts& word : last_.bucket_words) {
    const int64_t start = int64_t{word.start_us} * 1000, end = int64_t{word.end_us} * 1000;
    if (end < start || end > lived_ns) return;
    const size_t count = std::min(of_word, rest);
    rest -= count;
    buckets.push_back(
        {.count = static_cast<int>(count), .start_s = Seconds(start), .end_s = Seconds(end)});
  }
  view.backward_s = Seconds(last_.backward_ns);
  view.buckets = std::move(buckets);
}

void RankHistory::FillRates(RankView& view) const {
  if (marks_.size() < 2) return;
  const Mark& from = marks_.front();
  const Mark& to = marks_.back();
  const double steps = static_cast<double>(to.steps - from.steps);
  const std::optional<int64_t> time = Growth(from.step_time_ns, to.step_time_ns);
  if (!time || *time == 0) return;
  const double step_s = Seconds(*time) / steps;
  const std::optional<int64_t> samples = Growth(from.samples, to.samples);
  // The speed of steps that ended a while ago is not that of now.
  const bool is_stale = view.step_age_s > kStale_s + 5 * step_s;
  if (!is_stale) view.step_s = step_s;
  if (samples && *samples > 0 && !is_stale) {
    view.samples_per_s = static_cast<double>(*samples) / Seconds(*time);
  }
  // What StepMetrics measures is the better word; callers that were blocked are the other.
  const std::optional<int64_t> exposed = Growth(from.exposed_ns, to.exposed_ns);
  const std::optional<int64_t> waited = Growth(from.waited_ns, to.waited_ns);
  const bool has_exposed = to.exposed_ns > 0 && exposed;
  const bool has_waited = !last_.groups.empty() && to.waited_ns > 0 && waited;
  if (!has_exposed && !has_waited) return;
  const int64_t waiting = std::min(has_exposed ? *exposed : *waited, *time);
  view.self_s = Seconds(*time - waiting) / steps;
  if (!is_stale) view.exposed_share = static_cast<double>(waiting) / static_cast<double>(*time);
}

}  // namespace ddprun::launcher
