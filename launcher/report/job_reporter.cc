#include "launcher/report/job_reporter.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/logs/console_sink.h"
#include "launcher/logs/log_router.h"
#include "launcher/report/ending_workers.h"
#include "launcher/report/exit_report.h"

namespace ddprun::launcher {
namespace {

static_assert(kMaxExitReportBytes < ConsoleSink::kReserve, "a report would be lost as a whole");

absl::Status Silent(const char* what, const std::string& file) {
  return absl::DeadlineExceededError(
      absl::StrCat(what, " ", EscapeControl(file), ": its file system does not answer"));
}

}  // namespace

int64_t UnixTimeMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

JobReporter::JobReporter(Options options, LogRouter& logs, FileThread& workers_files,
                         FileThread& own_files)
    : options_(std::move(options)),
      logs_(logs),
      workers_files_(workers_files),
      own_files_(own_files),
      record_(options_.part, UnixTimeMs()),
      events_(record_, options_.part.config.event_log_handler == "console"
                           ? [&logs](const std::string& line) { logs.Say(line); }
                           : StatusEvents::Emit()) {}

void JobReporter::Say(const std::string& text) { logs_.Say("ddprun: " + text); }

void JobReporter::Note(const AgentEvent& event) { record_.Note(event, UnixTimeMs()); }

void JobReporter::Note(const AgentAction& action) {
  const int64_t now = UnixTimeMs();
  record_.Note(action, now);
  if (std::holds_alternative<JoinRound>(action)) asked_unix_ms_ = now;
  if (std::holds_alternative<PrepareWorkers>(action)) events_.RoundFormed(now, WaitedMs(now));
}

double JobReporter::WaitedMs(int64_t now) const {
  return static_cast<double>(std::max<int64_t>(0, now - asked_unix_ms_));
}

void JobReporter::WorkerRuns(int local_rank, int pid, const std::string& error_file) {
  record_.WorkerRuns(local_rank, pid, error_file);
  events_.WorkerRuns({.local_rank = local_rank, .pid = pid}, UnixTimeMs());
}

void JobReporter::TimerEvent(const TimerRequest& timer, bool is_kill) {
  events_.TimerEvent(timer, is_kill, UnixTimeMs());
}

void JobReporter::Ask(std::vector<LastWords> dead, Duration timeout,
                      std::function<void(const std::vector<LastWords>&)> answer) {
  if (dead.empty()) return answer({});
  std::string file;
  for (const LastWords& words : dead) {
    if (file.empty()) file = words.report.error_file;
  }
  const LaunchConfig& config = options_.part.config;
  const bool has_logs = !config.redirects.is_none() || !config.tee.is_none();
  workers_files_.Ask<std::vector<LastWords>>(
      "last words", file, timeout,
      [dead, room = record_.room_for_texts(), &logs = logs_, explain = options_.explain_kill,
       owner = config.log_dir.empty() && !has_logs ? FolderOwner::kDdprun : FolderOwner::kUser] {
        const auto tail = [&logs](int local_rank, size_t lines, Duration patience) {
          return logs.StderrTail(local_rank, lines, patience);
        };
        std::vector<LastWords> all = ReadLastWords(dead, room, tail, owner);
        for (LastWords& words : all) {
          const bool is_killed = words.is_failure && words.report.signal == SIGKILL;
          const auto why = is_killed && explain ? explain(words.report.pid) : std::nullopt;
          if (why) words.report.message = *why;
        }
        return all;
      },
      [dead, answer = std::move(answer)](std::optional<std::vector<LastWords>> read) {
        if (read) return answer(*read);
        // Without texts: how they ended is known.
        std::vector<LastWords> silent = dead;
        for (LastWords& words : silent) words.report.error_file.clear();
        answer(silent);
      });
}

std::optional<rendezvous::FailureReport> JobReporter::Add(const LastWords& words) {
  if (!words.warning.empty()) Say(words.warning);
  return record_.Add(words);
}

void JobReporter::Describe(const WorkerEnd& end,
                           std::function<void(const rendezvous::FailureReport&)> answer) {
  Ask({record_.Failed(end)}, options_.describe_timeout,
      [this, answer = std::move(answer)](const std::vector<LastWords>& words) {
        if (const auto report = Add(words[0])) answer(*report);
      });
}

void JobReporter::AskForLostPeer(const WorkerEnd& end, std::function<void(bool tells)> answer) {
  const std::string file = record_.Failed(end).report.error_file;
  workers_files_.Ask<bool>(
      "lost peer", file, options_.describe_timeout,
      [file, local_rank = end.local_rank, &logs = logs_] {
        return TellsOfLostPeer(file, logs.StderrTail(local_rank, kEndingTailLines, kTailTimeout));
      },
      [answer = std::move(answer)](std::optional<bool> tells) { answer(tells.value_or(false)); });
}

void JobReporter::LookForEnding(std::function<void(std::set<int>)> answer) {
  std::vector<LivingWorker> living;
  std::string file;
  if (!record_.rounds().empty()) {
    for (const WorkerRecord& worker : record_.rounds().back().workers) {
      if (worker.pid == 0 || worker.end) continue;
      living.push_back({worker.local_rank, worker.pid, worker.error_file});
      file = worker.error_file;
    }
  }
  workers_files_.Ask<std::set<int>>(
      "ending workers", file, options_.describe_timeout,
      [living, &logs = logs_] {
        return EndingWorkers(living, [&logs](int local_rank, size_t lines, Duration patience) {
          return logs.StderrTail(local_rank, lines, patience);
        });
      },
      [answer = std::move(answer)](std::optional<std::set<int>> ending) {
        answer(std::move(ending).value_or(std::set<int>{}));
      });
}

void JobReporter::CompleteRound(std::function<void()> done) {
  Ask(record_.Unread(), options_.complete_timeout,
      [this, done = std::move(done)](const std::vector<LastWords>& all) {
        for (const LastWords& words : all) Add(words);
        done();
      });
}

std::vector<rendezvous::FailureReport> JobReporter::NewestFailures() const {
  if (record_.rounds().empty()) return {};
  return record_.rounds().back().Failures();
}

void JobReporter::Print(const rendezvous::Verdict& verdict) {
  const LaunchConfig& config = options_.part.config;
  if (config.is_check && verdict.first_failure && verdict.first_failure->error) {
    // A finding. The node that has judged has printed it; where all nodes write into one output,
    // that is all.
    const bool is_said = verdict.first_failure->node == options_.part.node;
    if (is_said || !config.report_node.empty()) return;
    return logs_.Say("ddprun: " + EscapeControl(verdict.first_failure->error->message));
  }
  const auto& first = verdict.first_failure;
  const bool is_here = first && first->node == options_.part.node;
  std::string report =
      RenderExitReport({.verdict = verdict,
                        .title = options_.part.program,
                        .local_failures = NewestFailures(),
                        .is_stderr_shown = is_here && logs_.ShowsStderr(first->local_rank),
                        .report_node = options_.part.config.report_node});
  if (!report.empty() && report.back() == '\n') report.pop_back();  // Say ends the line
  logs_.Say(report);
  if (!options_.own_error_file.empty()) PassOnErrorFile(verdict);
}

void JobReporter::PassOnErrorFile(const rendezvous::Verdict& verdict) {
  constexpr char kWhat[] = "the error file for TORCHELASTIC_ERROR_FILE";
  const std::vector<rendezvous::FailureReport> failures = NewestFailures();
  const rendezvous::FailureReport* chosen = nullptr;
  for (const rendezvous::FailureReport& report : failures) {
    const bool is_better = chosen == nullptr || (chosen->left_peer && !report.left_peer);
    if (report.error && is_better) chosen = &report;
  }
  const auto& first = verdict.first_failure;
  const bool is_elsewhere = first && first->node != options_.part.node && first->error;
  if (is_elsewhere) chosen = &*first;
  if (chosen == nullptr) return;
  const int code = TorchrunCode(chosen->exit_code, chosen->signal);
  const std::string known = ErrorTextOf(*chosen->error, code);
  const auto here = static_cast<size_t>(chosen->local_rank);
  const std::string from = is_elsewhere ? "" : record_.rounds().back().workers.at(here).error_file;
  if (from.empty()) return WriteFile(options_.own_error_file, known, kWhat);
  ++writes_;
  workers_files_.Ask<absl::StatusOr<std::string>>(
      "last words", from, options_.describe_timeout,
      [from, code]() -> absl::StatusOr<std::string> {
        const absl::StatusOr<std::string> text = ReadErrorFile(from);
        return text.ok() ? ErrorTextForParent(*text, code) : text;
      },
      [this, known, kWhat](std::optional<absl::StatusOr<std::string>> text) {
        const bool is_read = text && text->ok();  // it may have been removed
        WriteFile(options_.own_error_file, is_read ? **std::move(text) : known, kWhat);
        FinishWrite(absl::OkStatus(), kWhat);
      });
}

void JobReporter::WriteFile(const std::string& path, std::string text, const std::string& what,
                            absl::Status (*write)(const std::string&, absl::string_view)) {
  ++writes_;
  own_files_.Ask<absl::Status>(
      "report", path, options_.write_timeout,
      [path, text = std::move(text), write] { return write(path, text); },
      [this, path, what](std::optional<absl::Status> written) {
        FinishWrite(written.value_or(Silent("write", path)), what);
      });
}

void JobReporter::FinishWrite(const absl::Status& status, const std::string& what) {
  if (!status.ok()) Say(absl::StrCat("warning: ", what, " is not written: ", status.message()));
  if (--writes_ == 0 && on_written_) std::exchange(on_written_, nullptr)();
}

void JobReporter::WriteReport(std::function<void()> done) {
  // What is not known yet, because workers live that do not die.
  CompleteRound([this, done = std::move(done)]() mutable {
    const int64_t now = UnixTimeMs();
    if (record_.rounds().empty() && asked_unix_ms_ != 0) events_.Waited(now, WaitedMs(now));
    events_.JobEnded(now);
    ++writes_;
    on_written_ = std::move(done);
    WriteTerminationMessage();
    const std::string& path = options_.part.config.report_file;
    if (!path.empty()) WriteFile(path, RenderReportFile(record_), "the report file");
    FinishWrite(absl::OkStatus(), "");
  });
}

void JobReporter::WriteTerminationMessage() {
  const LaunchConfig& config = options_.part.config;
  if (config.termination_message_file.empty()) return;
  TerminationInput input{.first_failure = std::nullopt,
                         .exit_code = record_.end().exit_code,
                         .reason = record_.end().reason};
  if (record_.verdict()) input.first_failure = record_.verdict()->first_failure;
  std::string text = RenderTerminationMessage(input);
  if (text.empty()) return;
  WriteFile(config.termination_message_file, std::move(text), "the termination message",
            config.is_termination_file_assumed ? WriteIfThere : WriteWholeFile);
}

}  // namespace ddprun::launcher
