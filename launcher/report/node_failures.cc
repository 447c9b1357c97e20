#include "launcher/report/node_failures.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/report/error_file.h"
#include "launcher/report/unix_time.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// How much of a failing worker's stderr is kept.
constexpr size_t kTailLines = 50;
// For those of all that are described together.
constexpr Duration kTailsTimeout = std::chrono::milliseconds(500);
// For one error file. A file system that takes longer hangs, and the other nodes wait.
constexpr Duration kReadTimeout = std::chrono::seconds(2);
// Tails and tracebacks are up to 100 KB each: of more failures than this only the codes are kept.
constexpr size_t kMaxTexts = 32;

}  // namespace

NodeFailures::NodeFailures(NodeId node, std::string host, Tail tail, Say say)
    : node_(std::move(node)),
      host_(std::move(host)),
      tail_(std::move(tail)),
      say_(std::move(say)),
      files_(kReadTimeout) {}

void NodeFailures::BeginRound(const rendezvous::Assignment& assignment) {
  assignment_ = assignment;
  error_files_.clear();
  ended_.clear();
  left_out_ = 0;
}

void NodeFailures::SetErrorFile(int local_rank, const std::string& path) {
  if (!path.empty()) error_files_[local_rank] = path;
}

void NodeFailures::Heard(const WorkerEnd& end, bool was_told_to_stop) {
  Entry(end).was_told_to_stop = was_told_to_stop;
}

NodeFailures::Ended& NodeFailures::Entry(const WorkerEnd& end) {
  const auto known = std::find_if(ended_.begin(), ended_.end(), [&](const Ended& ended) {
    return ended.end.local_rank == end.local_rank && ended.end.pid == end.pid;
  });
  if (known != ended_.end()) return *known;
  return ended_.emplace_back(Ended{.end = end, .unix_time_ms = UnixTimeMs(), .report = {}});
}

rendezvous::FailureReport NodeFailures::Describe(const WorkerEnd& end) {
  Ended& ended = Entry(end);
  ended.was_told_to_stop = false;
  if (!ended.report) Fill(ended, kTailTimeout);
  return *ended.report;
}

void NodeFailures::Complete() {
  Duration left = kTailsTimeout;
  for (Ended& ended : ended_) {
    if (ended.is_settled) continue;
    const TimePoint begin = SteadyNow();
    Fill(ended, std::clamp(left, Duration::zero(), kTailTimeout));
    left -= SteadyNow() - begin;
  }
}

void NodeFailures::Fill(Ended& ended, Duration tail_timeout) {
  const auto described =
      std::count_if(ended_.begin(), ended_.end(), [](const Ended& e) { return e.report; });
  const bool has_room = static_cast<size_t>(described) < kMaxTexts;
  ended.is_settled = true;
  if (ended.was_told_to_stop && !has_room) {
    if (HasErrorFile(ended.end)) ++left_out_;
    return;
  }
  rendezvous::FailureReport report;
  report.node = node_;
  report.host = host_;
  report.node_rank = assignment_.node_rank;
  report.rank = assignment_.first_rank + ended.end.local_rank;
  report.local_rank = ended.end.local_rank;
  report.pid = ended.end.pid;
  report.exit_code = ended.end.exit_code;
  report.signal = ended.end.signal;
  report.dumped_core = ended.end.dumped_core;
  report.message = ended.end.message;
  report.unix_time_ms = ended.unix_time_ms;
  if (has_room) ReadErrorFileInto(report);
  if (ended.was_told_to_stop && !report.error) return;
  if (has_room) {
    report.stderr_tail = tail_(report.local_rank, kTailLines, tail_timeout);
  }
  ended.report = std::move(report);
}

bool NodeFailures::HasErrorFile(const WorkerEnd& end) {
  const auto file = error_files_.find(end.local_rank);
  if (file == error_files_.end()) return false;
  const auto is_there = std::make_shared<bool>(false);
  const bool is_known =
      files_.Run([is_there, path = file->second] { *is_there = access(path.c_str(), F_OK) == 0; });
  return is_known && *is_there;
}

absl::StatusOr<std::string> NodeFailures::ReadInTime(const std::string& path) {
  const auto text = std::make_shared<absl::StatusOr<std::string>>();
  if (!files_.Run([text, path] { *text = ReadErrorFile(path); })) {
    return absl::DeadlineExceededError("cannot be read in 2 s: its file system hangs");
  }
  return std::move(*text);
}

void NodeFailures::ReadErrorFileInto(rendezvous::FailureReport& report) {
  const auto file = error_files_.find(report.local_rank);
  if (file == error_files_.end() || report.pid == 0) return;
  const absl::StatusOr<std::string> text = ReadInTime(file->second);
  if (absl::IsNotFound(text.status())) return;
  report.error_file = file->second;
  absl::StatusOr<ErrorFileContent> content =
      text.ok() ? ParseErrorText(*text) : absl::StatusOr<ErrorFileContent>(text.status());
  if (content.ok()) {
    report.error = std::move(content->error);
    report.left_peer = content->left_peer;
  } else {
    say_(absl::StrCat("warning: the error file of rank ", report.rank, ", ",
                      EscapeControl(file->second), ", ", content.status().message()));
  }
}

std::vector<rendezvous::FailureReport> NodeFailures::failures() const {
  std::vector<rendezvous::FailureReport> reports;
  for (const Ended& ended : ended_) {
    if (ended.report) reports.push_back(*ended.report);
  }
  return reports;
}

absl::StatusOr<std::string> NodeFailures::FirstErrorText() {
  const auto first = std::find_if(ended_.begin(), ended_.end(), [](const Ended& ended) {
    return ended.report && ended.report->error;
  });
  if (first == ended_.end()) return std::string();
  const rendezvous::FailureReport& report = *first->report;
  const absl::StatusOr<std::string> text = ReadInTime(report.error_file);
  if (!text.ok()) return text.status();
  // torchrun's code of a signal is its negative number.
  return ErrorTextForParent(*text, report.signal != 0 ? -report.signal : report.exit_code);
}

}  // namespace ddprun::launcher
