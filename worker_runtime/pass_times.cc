#include "worker_runtime/pass_times.h"

#include <algorithm>
#include <utility>

#include "worker_runtime/counters.h"

namespace ddp::internal {
namespace {

// Passes whose times are awaited: more are not on their way to the device. And graphs of a program.
constexpr size_t kMaxEnded = 8;

// All works of the pass are done when those from this one on are.
size_t FirstThatStands(const PassTimes::Ended& pass) {
  return pass.has_hook || pass.works.empty() ? 0 : pass.works.size() - 1;
}

bool IsDone(const PassTimes::Ended& pass) {
  return std::all_of(
      pass.works.begin() + static_cast<ptrdiff_t>(FirstThatStands(pass)), pass.works.end(),
      [](const std::unique_ptr<Work>& work) { return work == nullptr || work->IsDone(); });
}

PassRecord::BucketTimes TimesOf(const Work& work) {
  return {work.issued_at(), work.started_at(), work.ended_at()};
}

// Tells the launcher of a pass, unless it was told of one a moment ago or nobody listens. On a GPU
// the host announces gradients long before the device has computed them: a bucket's are there when
// it is handed over.
void Tell(const PassRecord& record, bool is_on_gpu) {
  Counters* const counters = Counters::OfThisProcess();
  if (counters == nullptr || record.buckets.empty()) return;
  if (!counters->IsPassDue(record.buckets.back().ended)) return;
  PassRecord::TimePoint first = record.buckets.front().launched, last = first;
  bool is_any_reduced = false;
  for (const PassRecord::BucketTimes& bucket : record.buckets) {
    if (bucket.started == PassRecord::TimePoint()) return;  // it is not known when
    is_any_reduced |= bucket.ended > bucket.started;
    last = std::max(last, bucket.launched);
  }
  if (!is_any_reduced) return;  // a group of one
  for (const PassRecord::TimePoint ready : record.gradient_ready) {
    if (is_on_gpu || ready == PassRecord::TimePoint()) continue;
    first = std::min(first, ready);
    last = std::max(last, ready);
  }
  std::vector<BucketSpan> times;
  for (const PassRecord::BucketTimes& bucket : record.buckets) {
    times.push_back({bucket.started - first, bucket.ended - first});
  }
  counters->TellPass(last - first, times);
}

}  // namespace

PassTimes::~PassTimes() {
  for (const Ended& pass : ended_) {
    for (size_t i = FirstThatStands(pass); i < pass.works.size(); ++i) {
      if (pass.works[i] != nullptr) pass.works[i]->Wait().IgnoreError();
    }
  }
}

void PassTimes::Set(const PassRecord& record) {
  record_ = record;
  Tell(record_, /*is_on_gpu=*/false);
}

void PassTimes::Add(Ended pass) {
  ended_.push_back(std::move(pass));
  Read();
}

void PassTimes::AddCaptured(Ended pass) {
  captured_.push_back(std::move(pass));
  if (captured_.size() > kMaxEnded) captured_.pop_front();
  Read();
}

const PassRecord& PassTimes::Latest() {
  Read();
  return record_;
}

// Without a wait: what is not known yet is read later. The oldest of too many is dropped unread.
void PassTimes::Read() {
  while (!ended_.empty()) {
    Ended& oldest = ended_.front();
    const bool is_done = IsDone(oldest);
    if (!is_done && ended_.size() <= kMaxEnded) break;
    for (size_t i = 0; is_done && i < oldest.works.size(); ++i) {
      if (oldest.works[i] != nullptr) oldest.record.buckets[i] = TimesOf(*oldest.works[i]);
    }
    if (is_done) record_ = std::move(oldest.record);
    ended_.pop_front();
    if (is_done) Tell(record_, /*is_on_gpu=*/true);
  }
  for (const Ended& pass : captured_) ReadReplay(pass);
}

// The times of the graph's last replay, if it is newer than what is known.
void PassTimes::ReadReplay(const Ended& pass) {
  const Work* last = pass.works.empty() ? nullptr : pass.works.back().get();
  if (last == nullptr || !last->IsDone() || last->started_at() == PassRecord::TimePoint()) return;
  const PassRecord::TimePoint end = last->ended_at();
  if (!record_.buckets.empty() && end <= record_.buckets.back().ended) return;
  PassRecord record = pass.record;
  for (size_t i = 0; i < pass.works.size(); ++i) record.buckets[i] = TimesOf(*pass.works[i]);
  // Unless the next replay ended meanwhile.
  if (last->ended_at() != end) return;
  record_ = std::move(record);
  Tell(record_, /*is_on_gpu=*/true);
}

}  // namespace ddp::internal
