#include "launcher/progress/progress_core.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using ddp::internal::ProgressShare;
using ddp::internal::UnpackProgress;

int PercentOf(const ProgressShare& share) {
  return static_cast<int>(std::min<uint64_t>(uint64_t{100} * share.done / share.all, 99));
}

double ShareOf(const ProgressShare& share) { return static_cast<double>(share.done) / share.all; }

}  // namespace

std::string ProgressBody(const ProgressNews& news, const std::string& observed_at) {
  std::string body = absl::StrCat(R"({"trainerStatus":{"progressPercentage":)", news.percent);
  if (news.remaining_seconds) {
    absl::StrAppend(&body, R"(,"estimatedRemainingSeconds":)", *news.remaining_seconds);
  }
  absl::StrAppend(&body, R"(,"lastUpdatedTime":")", observed_at, R"("}})");
  return body;
}

void ProgressCore::See(TimePoint now, uint64_t word) {
  if (word == word_) return;
  const double share = ShareOf(UnpackProgress(word));
  // A fall is work that is done again: a program that has gone back to its last checkpoint.
  if (!first_ || share < last_.share) first_ = Sight{now, share};
  last_ = {now, share};
  word_ = word;
  is_untold_ = true;
}

std::optional<ProgressNews> ProgressCore::Look(TimePoint now, uint64_t word) {
  if (now < next_look_) return std::nullopt;
  next_look_ = now + interval_;
  const ProgressShare share = UnpackProgress(word);
  if (share.all == 0) return std::nullopt;
  See(now, word);
  if (!is_untold_ || is_asking_) return std::nullopt;
  is_untold_ = false;
  is_asking_ = true;
  ProgressNews news{.percent = PercentOf(share)};
  if (first_ && last_.share > first_->share && last_.at > first_->at) {
    // The server's number has 32 bits. What rounding has left over is no second.
    constexpr double kMost = std::numeric_limits<int32_t>::max(), kRounding = 1e-3;
    const double seconds = std::chrono::duration<double>(last_.at - first_->at).count();
    const double left = seconds * (1 - last_.share) / (last_.share - first_->share);
    news.remaining_seconds = static_cast<int64_t>(std::min(std::ceil(left - kRounding), kMost));
  } else if (share.done == share.all) {
    news.remaining_seconds = 0;
  }
  return news;
}

std::optional<ProgressNews> ProgressCore::End(uint64_t word, bool is_success) const {
  const ProgressShare share = UnpackProgress(word);
  if (share.all == 0) return std::nullopt;
  // A job that has failed has no time left: nobody knows whether it will go on.
  if (!is_success) return ProgressNews{.percent = PercentOf(share)};
  return ProgressNews{.percent = 100, .remaining_seconds = 0};
}

bool ProgressCore::Answered(const absl::Status& status) {
  is_asking_ = false;
  if (status.ok()) return false;
  is_untold_ = true;
  return known_failures_.insert(status.code()).second;
}

}  // namespace ddprun::launcher
