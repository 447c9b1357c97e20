#include "launcher/control/job_history.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

std::string Number(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? absl::StrCat(*number) : "null";
}

}  // namespace

void JobHistory::Add(TimePoint now, const JobView& job) {
  if (!points_.empty() && now < points_.back().at + kInterval) return;
  points_.push_back({.at = now,
                     .round = job.round,
                     .samples_per_s = job.samples_per_s,
                     .step_s = job.step_s,
                     .exposed_share = job.exposed_share});
  if (points_.size() > kMaxPoints) points_.pop_front();
}

std::string JobHistory::Json(TimePoint now) const {
  std::vector<std::string> points;
  for (const Point& point : points_) {
    const double age_s = std::chrono::duration<double>(now - point.at).count();
    points.push_back(absl::StrCat("[", Number(age_s), ",", point.round, ",",
                                  Number(point.samples_per_s), ",", Number(point.step_s), ",",
                                  Number(point.exposed_share), "]"));
  }
  return absl::StrCat("[", absl::StrJoin(points, ","), "]");
}

}  // namespace ddprun::launcher
