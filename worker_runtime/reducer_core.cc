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
  if (is_complete()) {
    return absl::FailedPreconditionError(
        absl::StrCat("Expected to have finished reduction in the prior iteration before starting "
                     "a new one: gradient of '",
                     names_[parameter],
                     "' came after all were ready; call Finish() between two backward passes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<LaunchRange> ReducerCore::MarkReady(int parameter) {
  if (absl::Status status = CheckMayMark(parameter); !status.ok()) return status;
  if (is_ready_[parameter]) {
    return absl::FailedPreconditionError(absl::StrCat(
        "Expected to mark a parameter ready only once: gradient of '", names_[parameter],
        "' was marked ready twice in one backward pass; still missing: ", MissingNames()));
  }
  if (!is_in_pass()) arrivals_.clear();
  arrivals_.push_back(parameter);
  is_ready_[parameter] = true;
  ++ready_count_;
  --pending_[bucket_of_[parameter]];

  LaunchRange range{.begin = next_bucket_, .end = next_bucket_};
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
  std::vector<int> order = arrivals_;
  std::vector<bool> has_come(names_.size(), false);
  for (const int parameter : arrivals_) has_come[parameter] = true;
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
  Abandon();
  return status;
}

void ReducerCore::Abandon() {
  is_ready_ = is_left_out_;
  pending_ = bucket_sizes_;
  ready_count_ = 0;
  next_bucket_ = 0;
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
  }
  return out;
}

}  // namespace ddp::internal
