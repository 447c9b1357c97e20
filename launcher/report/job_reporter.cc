#include "launcher/report/job_reporter.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/logs/console_sink.h"
#include "launcher/logs/log_router.h"
#include "launcher/report/error_file.h"
#include "launcher/report/exit_report.h"
#include "launcher/report/report_file.h"
#include "launcher/report/unix_time.h"
#include "launcher/report/whole_file.h"

namespace ddprun::launcher {
namespace {

// What a disk may take that is only slow.
constexpr Duration kWriteTimeout = std::chrono::seconds(5);

static_assert(kMaxExitReportBytes < ConsoleSink::kReserve, "a report would be lost as a whole");

StatusEvents::Job EventJobOf(const JobReporter::Options& options) {
  const bool is_static = options.config.rendezvous == RendezvousKind::kStatic;
  const size_t slash = options.title.find_last_of('/');
  return {.run_id = options.config.run_id,
          .role = options.config.role,
          .host = options.host,
          .backend = is_static ? "static" : "c10d",
          .entry_point = options.title.substr(slash == std::string::npos ? 0 : slash + 1)};
}

}  // namespace

JobReporter::JobReporter(Options options, LogRouter& logs)
    : options_(std::move(options)),
      logs_(logs),
      failures_(
          options_.node, options_.host,
          [&logs](int local_rank, size_t max_lines, Duration timeout) {
            return logs.StderrTail(local_rank, max_lines, timeout);
          },
          [this](const std::string& line) { Tell(line); }),
      record_(options_.config.workers_per_node, UnixTimeMs()),
      events_(EventJobOf(options_), record_,
              options_.config.event_log_handler == "console"
                  ? [&logs](const std::string& line) { logs.Say(line); }
                  : StatusEvents::Emit()),
      files_(kWriteTimeout) {}

void JobReporter::Tell(const std::string& text) { logs_.Say("ddprun: " + text); }

void JobReporter::Heard(const AgentEvent& event) { record_.Heard(event, UnixTimeMs()); }

void JobReporter::Does(const AgentAction& action) {
  const int64_t now = UnixTimeMs();
  record_.Does(action, now);
  if (std::holds_alternative<JoinRound>(action)) asked_unix_ms_ = now;
  if (const auto* start = std::get_if<StartWorkers>(&action)) {
    failures_.BeginRound(start->assignment);
    events_.RoundFormed(now, WaitedMs(now));
  }
}

double JobReporter::WaitedMs(int64_t now) const {
  return static_cast<double>(std::max<int64_t>(0, now - asked_unix_ms_));
}

void JobReporter::WorkerRuns(int local_rank, int pid) {
  record_.WorkerRuns(local_rank, pid);
  events_.WorkerRuns({.local_rank = local_rank, .pid = pid}, UnixTimeMs());
}

void JobReporter::WorkerIsGone(const WorkerEnd& end, bool was_told_to_stop) {
  record_.WorkerIsGone(end, was_told_to_stop);
  if (end.exit_code != 0) failures_.Heard(end, was_told_to_stop);
}

void JobReporter::SetErrorFile(int local_rank, const std::string& path) {
  failures_.SetErrorFile(local_rank, path);
}

void JobReporter::TimerEvent(const TimerRequest& timer, bool is_kill) {
  events_.TimerEvent({.name = is_kill ? "kill worker process" : "timer expired",
                      .pid = timer.pid,
                      .scope = timer.scope,
                      .expiration_time = timer.expires,
                      .signal = timer.signal},
                     UnixTimeMs());
}

void JobReporter::CompleteRound() {
  failures_.Complete();
  record_.SetFailures(failures_.failures(), failures_.left_out());
}

void JobReporter::Print(const rendezvous::Verdict& verdict) {
  CompleteRound();
  std::string report = RenderExitReport(
      {.verdict = verdict, .title = options_.title, .local_failures = failures_.failures()});
  if (!report.empty() && report.back() == '\n') report.pop_back();  // Say ends the line
  logs_.Say(report);
  if (options_.own_error_file.empty()) return;
  if (const absl::Status written = WriteOwnErrorFile(verdict); !written.ok()) {
    Tell(absl::StrCat("warning: the error file for TORCHELASTIC_ERROR_FILE is not written: ",
                      written.message()));
  }
}

absl::Status JobReporter::WriteOwnErrorFile(const rendezvous::Verdict& verdict) {
  const auto& first = verdict.first_failure;
  if (first && first->node != options_.node && first->error) {
    // The file itself is on another node, what stood in it came with the verdict.
    const int code = first->signal != 0 ? -first->signal : first->exit_code;
    return WriteInTime(options_.own_error_file, ErrorTextForParent(*first->error, code));
  }
  const absl::StatusOr<std::string> text = failures_.FirstErrorText();
  if (!text.ok() || text->empty()) return text.status();
  return WriteInTime(options_.own_error_file, *text);
}

absl::Status JobReporter::WriteInTime(const std::string& path, const std::string& text) {
  const auto written = std::make_shared<absl::Status>();
  if (files_.Run([written, path, text] { *written = WriteWholeFile(path, text); })) return *written;
  return absl::DeadlineExceededError(
      absl::StrCat("write ", EscapeControl(path), ": not done in 5 s, its file system hangs"));
}

void JobReporter::JobEnded() {
  CompleteRound();
  const int64_t now = UnixTimeMs();
  if (record_.rounds().empty() && asked_unix_ms_ != 0) events_.WaitedInVain(now, WaitedMs(now));
  events_.JobEnded(now);
  const std::string& path = options_.config.report_file;
  if (path.empty()) return;
  const std::string text = RenderReportFile({.run_id = options_.config.run_id,
                                             .node_id = options_.node.value,
                                             .host = options_.host,
                                             .program = options_.title,
                                             .max_restarts = options_.config.max_restarts},
                                            record_);
  if (const absl::Status written = WriteInTime(path, text); !written.ok()) {
    Tell(absl::StrCat("warning: the report file is not written: ", written.message()));
  }
}

}  // namespace ddprun::launcher
