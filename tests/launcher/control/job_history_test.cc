#include "launcher/control/job_history.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

namespace ddprun::launcher {
namespace {

TimePoint At(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

JobView Job(double samples_per_s) {
  JobView job{.round = 2};
  job.samples_per_s = samples_per_s;
  return job;
}

TEST_CASE("job history: a point each five seconds, with its age") {
  JobHistory history;
  CHECK(history.Json(At(100)) == "[]");
  history.Add(At(100), Job(12.5));
  history.Add(At(104), Job(99));
  JobView whole = Job(NAN);
  whole.step_s = 0.25;
  whole.exposed_share = 0.5;
  history.Add(At(105), whole);
  CHECK(history.Json(At(107)) == "[[7,2,12.5,null,null],[2,2,null,0.25,0.5]]");
}

TEST_CASE("job history: the last hour is kept") {
  JobHistory history;
  for (int i = 0; i < 2000; ++i) history.Add(At(5 * i), Job(i));
  const std::string text = history.Json(At(5 * 1999));
  CHECK(text.starts_with("[[3595,2,1280,"));
  CHECK(text.ends_with(",[0,2,1999,null,null]]"));
}

}  // namespace
}  // namespace ddprun::launcher
