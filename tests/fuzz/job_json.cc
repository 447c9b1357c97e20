// A whole job as JSON, from whoever answers at a control socket or an endpoint: read, judged,
// shown.
#include <chrono>
#include <cstdint>
#include <string>

#include "launcher/status/job_judge.h"
#include "launcher/status/snapshot_json.h"
#include "launcher/status/status_text.h"
#include "launcher/status/top_screen.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {
namespace {

using fuzz::Promise;

void Show(const JobView& job) {
  const std::string text = StatusText(job, {.columns = 80});
  Promise(fuzz::IsPlain(text, true), "the status is plain", text);
  for (const std::string& line : TopScreen(job, {}, {.columns = 80, .rows = 24})) {
    Promise(fuzz::IsPlain(line, false), "a line of top's screen is plain", line);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::StatusOr<JobView> job = ParseJobJson(fuzz::TextOf(data, size));
  if (!job.ok()) {
    const std::string why(job.status().message());
    Promise(fuzz::IsPlain(why, false), "an error is one plain line", why);
    return 0;
  }
  const std::string told = RenderJson(*job);
  const absl::StatusOr<JobView> heard = ParseJobJson(told);
  Promise(heard.ok(), "what was heard can be told", heard.status().ToString() + told);
  Promise(RenderJson(*heard) == told, "a job is heard as it was told", told);
  Show(*job);
  JobJudge judge;
  for (int second = 1; second <= 3; ++second) {
    const JudgedNews news = judge.Look(TimePoint{std::chrono::seconds(100 * second)}, *job);
    for (const std::string& line : news.lines) {
      Promise(fuzz::IsPlain(line, false), "news are plain lines", line);
    }
    Show(*job);
  }
  const std::string judged = RenderJson(*job);
  const absl::StatusOr<JobView> again = ParseJobJson(judged);
  Promise(again.ok(), "a job that was judged can be told", again.status().ToString() + judged);
  return 0;
}

}  // namespace ddprun::launcher
