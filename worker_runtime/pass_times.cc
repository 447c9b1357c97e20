#include "worker_runtime/pass_times.h"

#include <algorithm>
#include <utility>

#include "worker_runtime/counters.h"

namespace ddp::internal {
namespace {

// Passes whose times are awaited, and graphs of a program.
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
  Read();  // once for each pass: it asks the driver
  // A host may always be further ahead of its device than that: the oldest ones are the next whose
  // times are known. The destructor waits for the newest one, which stands for those before it;
  // what hooks do has no order, so that of them the last few are kept.
  if (ended_.size() == kMaxEnded) pass.has_hook ? ended_.pop_front() : ended_.pop_back();
  ended_.push_back(std::move(pass));
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

// Without a wait: what is not known yet is read later.
void PassTimes::Read() {
  while (!ended_.empty() && IsDone(ended_.front())) {
    Ended& oldest = ended_.front();
    for (size_t i = 0; i < oldest.works.size(); ++i) {
      if (oldest.works[i] != nullptr) oldest.record.buckets[i] = TimesOf(*oldest.works[i]);
    }
    record_ = std::move(oldest.record);
    ended_.pop_front();
    Tell(record_, /*is_on_gpu=*/true);
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
