#include "launcher/logs/log_router.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/logs/log_thread.h"
#include "launcher/logs/output_channel.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::launcher {
namespace {

// How long files may take for the last bytes when the router goes.
constexpr Duration kLastWrites = std::chrono::seconds(1);

}  // namespace

LogOptions MakeLogOptions(const LaunchConfig& config, const Environment& environment) {
  LogOptions options;
  options.log_dir = config.log_dir;
  options.log_dir_source = config.SourceOf("log_dir");
  options.run_id = config.run_id;
  options.names_node = config.nodes.max > 1;
  options.role = config.role;
  options.redirects = config.redirects;
  options.tee = config.tee;
  options.console_ranks = config.console_ranks;
  options.stdout_filters = config.stdout_filters;
  options.stderr_filters = config.stderr_filters;
  options.hostname = rendezvous::HostName();
  options.inherit_stderr = environment.Get("DDPRUN_STDERR") == "inherit";
  if (const auto temp = environment.Get("TMPDIR"); temp && !temp->empty()) {
    options.temp_dir = options.memory_dir = *temp;
  }
  const std::string from_torch =
      environment.Get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
  for (const std::string& text : {config.log_line_prefix_template, from_torch}) {
    if (text.empty()) continue;
    options.prefix_template = text;
    break;
  }
  return options;
}

std::string LinePrefix(const LogOptions& options, int local_rank, int rank) {
  return WithMacros(options.prefix_template,
                    [&](std::string_view name) -> std::optional<std::string> {
                      if (name == "role_name") return options.role;
                      if (name == "rank") return std::to_string(rank);
                      if (name == "local_rank") return std::to_string(local_rank);
                      if (name == "hostname") return options.hostname;
                      return std::nullopt;
                    });
}

std::string LossWarning(const LogLosses& before, const LogLosses& now, const std::string& folder) {
  std::vector<std::string> parts;
  const auto add = [&parts](uint64_t lines, const std::string& place, int error) {
    parts.push_back(absl::StrCat(lines, lines == 1 ? " line is" : " lines are", " missing from ",
                                 place, ": ", FileErrorText(error)));
  };
  if (now.file_lines > before.file_lines) {
    add(now.file_lines, "log files in " + folder, now.file_error);
  }
  if (now.refused_lines > before.refused_lines) {
    add(now.refused_lines, "the console", now.console_error);
  }
  return parts.empty() ? "" : "warning: " + absl::StrJoin(parts, "; ");
}

absl::StatusOr<std::unique_ptr<LogRouter>> LogRouter::Create(LogOptions options) {
  const bool is_for_logs = !options.redirects.is_none() || !options.tee.is_none();
  absl::StatusOr<RunFolder> folder =
      RunFolder::Create({.log_dir = options.log_dir,
                         .run_id = options.run_id,
                         .node = options.names_node ? options.hostname : "",
                         .temp_dir = options.temp_dir,
                         .memory_dir = is_for_logs ? "" : options.memory_dir,
                         .on_temporary = options.on_temporary_folder});
  if (!folder.ok()) {
    return absl::Status(folder.status().code(),
                        options.log_dir_source + " " + Quoted(options.log_dir) +
                            ": expected a directory that can be written to: " +
                            EscapeControl(std::string(folder.status().message())));
  }
  absl::StatusOr<std::unique_ptr<LogThread>> thread =
      LogThread::Start(options.stdout_fd, options.stderr_fd, options.hold_for_test);
  if (!thread.ok()) return thread.status();
  return std::unique_ptr<LogRouter>(
      new LogRouter(std::move(options), *std::move(folder), *std::move(thread)));
}

LogRouter::LogRouter(LogOptions options, RunFolder folder, std::unique_ptr<LogThread> thread)
    : options_(std::move(options)), folder_(std::move(folder)), thread_(std::move(thread)) {}

LogRouter::~LogRouter() {
  if (!thread_->End(kLastWrites)) {
    static_cast<void>(thread_.release());
    return;  // its folders may hang as well
  }
  folder_.RemoveTemporaries();
}

void LogRouter::BeginRound(int restart_count) {
  EndRound();
  folder_.BeginAttempt(restart_count);
  has_copies_ = {};
}

void LogRouter::EndRound() { thread_->CloseAll(); }

bool LogRouter::IsShown(int local_rank) const {
  return options_.console_ranks.empty() || options_.console_ranks.contains(local_rank);
}

// Without files there is nowhere to redirect to, and the stream stays where it is.
Streams LogRouter::RedirectsOf(int local_rank) const {
  return options_.log_dir == "/dev/null" ? Streams{} : options_.redirects.For(local_rank);
}

bool LogRouter::ShowsStderr(int local_rank) const {
  const bool is_in_file_alone = RedirectsOf(local_rank).err && !options_.tee.For(local_rank).err;
  return IsShown(local_rank) && !is_in_file_alone;
}

absl::StatusOr<WorkerStdio> LogRouter::OpenWorker(int local_rank, int rank) {
  const bool is_shown = IsShown(local_rank);
  const Streams tee = options_.tee.For(local_rank);
  const Streams redirect = RedirectsOf(local_rank);
  absl::StatusOr<std::string> folder = folder_.MakeWorkerFolder(local_rank);
  const bool needs_folder = redirect.out || redirect.err || tee.out || tee.err;
  // Without a folder there is no error file; that alone is no reason not to run.
  if (!folder.ok() && (needs_folder || !options_.log_dir.empty())) return folder.status();
  WorkerStdio stdio;
  if (folder.ok() && !folder->empty()) stdio.error_file = *folder + "/error.json";
  const std::string base = folder.ok() ? *folder : "";
  if (needs_folder) TellPlace();
  for (const bool is_stderr : {false, true}) {
    const bool is_tee = is_stderr ? tee.err : tee.out;
    UniqueFd& worker_end = is_stderr ? stdio.stderr_fd : stdio.stdout_fd;
    StreamPlan plan{.local_rank = local_rank, .is_stderr = is_stderr};
    if (is_tee || (is_stderr ? redirect.err : redirect.out)) {
      if (is_tee && is_shown) {
        plan.console = StreamPlan::Console::kLines;
        plan.prefix = LinePrefix(options_, local_rank, rank);
      }
      if (absl::Status status = PlanFile(plan, base); !status.ok()) return status;
    } else if (is_stderr) {
      if (is_shown && options_.inherit_stderr) continue;
      // One that is not shown is read all the same: for the report of a failure.
      if (is_shown) plan.console = StreamPlan::Console::kRaw;
    } else {
      if (is_shown) continue;
      worker_end.Reset(open("/dev/null", O_WRONLY | O_CLOEXEC));
      if (!worker_end.is_open()) return absl::ErrnoToStatus(errno, "open /dev/null");
      continue;
    }
    if (absl::Status status = OpenChannel(std::move(plan), worker_end); !status.ok()) {
      return status;
    }
  }
  return stdio;
}

// Nobody can know a folder that we have named.
void LogRouter::TellPlace() {
  if (!options_.log_dir.empty() || std::exchange(place_told_, folder_.path()) == folder_.path()) {
    return;
  }
  thread_->Say("ddprun: log files are in " + folder_.path() +
               "/attempt_<n>/<local_rank>/; --log-dir chooses the place");
}

// `folder` is empty with --log-dir=/dev/null: no file then.
absl::Status LogRouter::PlanFile(StreamPlan& plan, const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  absl::StatusOr<FileSink> file =
      FileSink::Create(folder + (plan.is_stderr ? "/stderr.log" : "/stdout.log"));
  if (!file.ok()) return file.status();
  plan.file = std::make_shared<LogFiles::File>(*std::move(file));
  const bool has_lines = plan.console == StreamPlan::Console::kLines;
  return has_lines ? ProvideCopies(plan.is_stderr) : absl::OkStatus();
}

// Makes the attempt's file for copied lines when its first stream is opened.
absl::Status LogRouter::ProvideCopies(bool is_stderr) {
  const auto& filters = is_stderr ? options_.stderr_filters : options_.stdout_filters;
  if (filters.empty() || std::exchange(has_copies_[is_stderr], true)) return absl::OkStatus();
  absl::StatusOr<FileSink> file = FileSink::Create(
      folder_.attempt_path() + (is_stderr ? "/filtered_stderr.log" : "/filtered_stdout.log"));
  if (!file.ok()) return file.status();
  thread_->SetCopies(is_stderr, LineFilter(filters),
                     std::make_shared<LogFiles::File>(*std::move(file)));
  return absl::OkStatus();
}

absl::Status LogRouter::OpenChannel(StreamPlan plan, UniqueFd& worker_end) {
  absl::StatusOr<OutputChannel> channel = absl::UnavailableError("not tried");
  if (plan.console == StreamPlan::Console::kRaw && isatty(options_.stderr_fd)) {
    channel = OpenTerminalLike(options_.stderr_fd);  // none left: a pipe does as well
  }
  if (!channel.ok()) channel = OpenPipe();
  if (!channel.ok()) return channel.status();
  plan.read_end = std::move(channel->read_end);
  plan.is_terminal = channel->is_terminal;
  worker_end = std::move(channel->write_end);
  thread_->Add(std::move(plan));
  return absl::OkStatus();
}

std::string LogRouter::StderrTail(int local_rank, size_t max_lines, Duration timeout) {
  return thread_->Tail(local_rank, max_lines, timeout);
}

RecentOutput LogRouter::Recent(int local_rank, uint64_t from, Duration timeout) {
  return thread_->Recent(local_rank, from, timeout);
}

RecentOutput LogRouter::LastLine(int local_rank, Duration timeout) {
  constexpr size_t kMost = 4096;
  RecentOutput recent = thread_->Recent(local_rank, 0, timeout, kMost);
  std::string& text = recent.text;
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  const size_t end = text.find_last_of("\r\n");
  if (end != std::string::npos) text.erase(0, end + 1);
  return recent;
}

TimePoint LogRouter::last_output_at() const { return thread_->last_output_at(); }

bool LogRouter::Drain(Duration timeout) { return thread_->Drain(timeout); }

void LogRouter::Finish(Duration timeout) {
  Drain(timeout);
  folder_.RemoveTemporaries();
}

void LogRouter::RemoveAbandonedFolders() { folder_.RemoveAbandonedTemporaries(); }

void LogRouter::Say(const std::string& line) { thread_->Say(line); }

bool LogRouter::Offer(const std::string& line) {
  return thread_->Say(line, LogThread::kMaxLinesOffered);
}

std::string LogRouter::TakeLossWarning() {
  const LogLosses before = std::exchange(told_losses_, losses());
  return LossWarning(before, told_losses_, folder_.path());
}

LogLosses LogRouter::losses() const { return thread_->losses(); }

std::string LogRouter::busy_file(Duration at_least) const { return thread_->busy_file(at_least); }

std::string LogRouter::run_folder() const { return folder_.path(); }

}  // namespace ddprun::launcher
