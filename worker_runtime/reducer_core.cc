#include "worker_runtime/reducer_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"

namespace ddp::internal {
namespace {

// An error lists at most so many names; a large model has thousands.
constexpr int kNamesInError = 10;

}  // namespace

ReducerCore::ReducerCore(std::vector<std::string> names, const std::vector<Bucket>& buckets)
    : names_(std::move(names)),
      is_left_out_(names_.size(), false),
      is_ready_(names_.size(), false) {
  SetBuckets(buckets);
}

void ReducerCore::SetBuckets(const std::vector<Bucket>& buckets) {
  DDP_CHECK(!is_in_pass());
  bucket_of_.assign(names_.size(), -1);
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const int parameter : buckets[i].parameters) {
      DDP_CHECK(bucket_of_[parameter] == -1);
      bucket_of_[parameter] = static_cast<int>(i);
    }
  }
  DDP_CHECK(std::find(bucket_of_.begin(), bucket_of_.end(), -1) == bucket_of_.end());
  bucket_sizes_.resize(buckets.size());
  Count();
}

void ReducerCore::LeaveOut(const std::vector<bool>& is_left_out) {
  DDP_CHECK(!is_in_pass() && used_count_ == static_cast<int>(names_.size()));
  is_left_out_ = is_left_out;
  Count();
}

// Who is waited for.
void ReducerCore::Count() {
  used_count_ = 0;
  std::fill(bucket_sizes_.begin(), bucket_sizes_.end(), 0);
  for (size_t i = 0; i < names_.size(); ++i) {
    if (is_left_out_[i]) continue;
    ++used_count_;
    ++bucket_sizes_[bucket_of_[i]];
  }
  Abandon();
}

absl::Status ReducerCore::CheckMayMark(int parameter) const {
  if (parameter < 0 || parameter >= static_cast<int>(names_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter, ": there are ", names_.size(), ", numbered from 0"));
  }
  if (is_left_out_[parameter]) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter '", names_[parameter],
                     "' got a gradient and had none in the first backward pass: with static_graph "
                     "all passes use the same parameters; use find_unused_parameters"));
  }
  if (is_complete() && !is_counting_) {
    return absl::FailedPreconditionError(
        absl::StrCat("Expected to have finished reduction in the prior iteration before starting "
                     "a new one: gradient of '",
                     names_[parameter],
                     "' came after all were ready; call Finish() between two backward passes"));
  }
  return absl::OkStatus();
}

absl::Status ReducerCore::MarkedTooOften(int parameter) const {
  const int due = MarksDue(parameter);
  return absl::FailedPreconditionError(
      absl::StrCat(due == 1 ? "Expected to mark a parameter ready only once: " : "",
                   "gradient of '", names_[parameter], "' was marked ready ",
                   due == 1 ? "twice" : absl::StrCat(due + 1, " times"), " in one backward pass",
                   due == 1 ? ""
                            : absl::StrCat(", and ", due,
                                           " times in the first, which with static_graph "
                                           "counts for all"),
                   "; still missing: ", MissingNames()));
}

void ReducerCore::CountMarks() {
  DDP_CHECK(!is_in_pass());
  is_counting_ = true;
}

absl::StatusOr<LaunchRange> ReducerCore::MarkReady(int parameter) {
  if (absl::Status status = CheckMayMark(parameter); !status.ok()) return status;
  if (is_ready_[parameter] && !is_counting_) return MarkedTooOften(parameter);
  if (!is_in_pass()) {
    arrivals_.clear();
    marks_.assign(names_.size(), 0);
  }
  arrivals_.push_back(parameter);
  ++marks_[parameter];
  const LaunchRange none{.begin = next_bucket_, .end = next_bucket_};
  if (marks_[parameter] < MarksDue(parameter)) return none;
  if (!is_ready_[parameter]) {
    is_ready_[parameter] = true;
    ++ready_count_;
    --pending_[bucket_of_[parameter]];
  }
  if (is_counting_) return none;

  LaunchRange range = none;
  while (range.end < static_cast<int>(pending_.size()) && pending_[range.end] == 0) ++range.end;
  next_bucket_ = range.end;
  return range;
}

absl::Status ReducerCore::MarkUnsynchronized(int parameter) const {
  if (absl::Status status = CheckMayMark(parameter); !status.ok()) return status;
  if (is_in_pass()) {
    return absl::FailedPreconditionError(
        absl::StrCat("NoSync began in the middle of a backward pass: gradient of '",
                     names_[parameter], "' came without synchronisation after ", ready_count_,
                     " others with it; take NoSync before the forward pass"));
  }
  return absl::OkStatus();
}

std::vector<int> ReducerCore::ArrivalOrder() const {
  std::vector<int> order;
  std::vector<bool> has_come(names_.size(), false);
  for (auto mark = arrivals_.rbegin(); mark != arrivals_.rend(); ++mark) {
    if (!has_come[*mark]) order.push_back(*mark);
    has_come[*mark] = true;
  }
  std::reverse(order.begin(), order.end());
  for (int i = static_cast<int>(names_.size()) - 1; i >= 0; --i) {
    if (!has_come[i]) order.push_back(i);
  }
  return order;
}

LaunchRange ReducerCore::MarkRestReady() {
  if (!is_in_pass()) arrivals_.clear();
  std::fill(is_ready_.begin(), is_ready_.end(), true);
  std::fill(pending_.begin(), pending_.end(), 0);
  ready_count_ = used_count_;
  const int end = static_cast<int>(pending_.size());
  return {.begin = std::exchange(next_bucket_, end), .end = end};
}

absl::Status ReducerCore::Finish() {
  absl::Status status = absl::OkStatus();
  if (!is_complete()) {
    const int missing = used_count_ - ready_count_;
    status = absl::FailedPreconditionError(absl::StrCat(
        "Expected to have finished reduction in the prior iteration before starting a new one: ",
        missing, " of ", used_count_, " parameters got no gradient: ", MissingNames(),
        used_count_ == static_cast<int>(names_.size())
            ? "; every registered parameter must be marked ready in every synchronised backward "
              "pass, or set find_unused_parameters"
            : "; with static_graph every parameter that the first backward pass used must be "
              "marked ready in every synchronised one"));
  }
  if (is_counting_) {
    marks_due_ = marks_;
    is_counting_ = false;
  }
  Abandon();
  return status;
}

void ReducerCore::Abandon() {
  marks_.clear();
  is_ready_ = is_left_out_;
  pending_ = bucket_sizes_;
  ready_count_ = 0;
  next_bucket_ = 0;
}

// In a static graph a parameter may be used in passes without synchronisation alone, first.
int ReducerCore::MarksDue(int parameter) const {
  return marks_due_.empty() ? 1 : std::max(1, marks_due_[parameter]);
}

std::string ReducerCore::MissingNames() const {
  std::string out;
  int listed = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (is_ready_[i]) continue;
    if (++listed > kNamesInError) {
      absl::StrAppend(&out, ", ...");
      break;
    }
    absl::StrAppend(&out, listed == 1 ? "'" : ", '", names_[i], "'");
    if (!marks_.empty() && marks_[i] > 0) {
      absl::StrAppend(&out, " (", marks_[i], " of ", marks_due_[i], " times)");
    }
  }
  return out;
}

}  // namespace ddp::internal
