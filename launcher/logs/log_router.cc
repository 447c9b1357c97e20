#include "launcher/logs/log_router.h"

#include <string.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/logs/log_thread.h"
#include "launcher/logs/output_channel.h"
#include "launcher/logs/run_folder.h"

namespace ddprun::launcher {

LogOptions MakeLogOptions(const LaunchConfig& config, const Environment& environment) {
  LogOptions options;
  options.log_dir = config.log_dir;
  options.run_id = config.run_id;
  options.role = config.role;
  options.redirects = config.redirects;
  options.tee = config.tee;
  options.inherit_stderr = environment.Get("DDPRUN_STDERR") == "inherit";
  if (const auto temp = environment.Get("TMPDIR"); temp && !temp->empty()) {
    options.temp_dir = options.memory_dir = *temp;
  }
  if (const auto prefix = environment.Get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")) {
    options.prefix_template = *prefix;
  }
  return options;
}

class LogRouter::Impl {
 public:
  Impl(LogOptions options, RunFolder folder, std::unique_ptr<LogThread> thread)
      : options_(std::move(options)), folder_(std::move(folder)), thread_(std::move(thread)) {}
  ~Impl() {
    thread_.reset();
    folder_.RemoveEmptyTemporaries();
  }

  LogThread& thread() { return *thread_; }
  RunFolder& folder() { return folder_; }

  absl::StatusOr<WorkerStdio> OpenWorker(int local_rank, int rank) {
    const Streams redirect = options_.redirects.For(local_rank);
    const Streams tee = options_.tee.For(local_rank);
    absl::StatusOr<std::string> folder = folder_.MakeWorkerFolder(local_rank);
    const bool needs_folder = redirect.out || redirect.err || tee.out || tee.err;
    // Without a folder there is no error file; that alone is no reason not to run.
    if (!folder.ok() && (needs_folder || !options_.log_dir.empty())) return folder.status();
    WorkerStdio stdio;
    if (folder.ok() && !folder->empty()) stdio.error_file = *folder + "/error.json";
    const std::string base = folder.ok() ? *folder : "";
    if (needs_folder) TellPlace();
    const std::string prefix = PrefixOf(local_rank, rank);

    if (redirect.out || tee.out) {
      StreamPlan plan{.local_rank = local_rank, .is_stderr = false};
      absl::Status status = PlanFile(plan, base, "stdout.log", tee.out, prefix);
      if (!status.ok()) return status;
      status = OpenChannel(std::move(plan), stdio.stdout_fd);
      if (!status.ok()) return status;
    }
    const bool is_passed_on = !redirect.err && !tee.err;
    if (is_passed_on && options_.inherit_stderr) return stdio;
    StreamPlan plan{.local_rank = local_rank, .is_stderr = true};
    if (is_passed_on) {
      plan.console = StreamPlan::Console::kRaw;
    } else if (absl::Status status = PlanFile(plan, base, "stderr.log", tee.err, prefix);
               !status.ok()) {
      return status;
    }
    if (absl::Status status = OpenChannel(std::move(plan), stdio.stderr_fd); !status.ok()) {
      return status;
    }
    return stdio;
  }

  std::string TakeLossWarning() {
    const Losses before = std::exchange(told_losses_, thread_->losses());
    std::vector<std::string> parts;
    const auto add = [&parts](uint64_t lines, const std::string& place, int error) {
      parts.push_back(absl::StrCat(lines, " lines are missing from ", place, ": ", strerror(error)));
    };
    const Losses& now = told_losses_;
    if (now.file_lines > before.file_lines) {
      add(now.file_lines, "log files in " + folder_.path(), now.file_error);
    }
    if (now.refused_lines > before.refused_lines) {
      add(now.refused_lines, "the console", now.console_error);
    }
    return parts.empty() ? "" : "warning: " + absl::StrJoin(parts, "; ");
  }

 private:
  std::string PrefixOf(int local_rank, int rank) const {
    std::string prefix = ReplaceMacro(options_.prefix_template, "role_name", options_.role);
    prefix = ReplaceMacro(prefix, "local_rank", std::to_string(local_rank));
    return ReplaceMacro(prefix, "rank", std::to_string(rank));
  }

  // Nobody can know a folder that we have named.
  void TellPlace() {
    if (!options_.log_dir.empty() || std::exchange(place_told_, folder_.path()) == folder_.path()) {
      return;
    }
    thread_->Say("ddprun: log files are in " + folder_.path() +
                 "/attempt_<n>/<local_rank>/; --log_dir chooses the place");
  }

  // `folder` is empty with --log_dir=/dev/null: no file then.
  static absl::Status PlanFile(StreamPlan& plan, const std::string& folder, const char* name,
                               bool is_teed, const std::string& prefix) {
    if (is_teed) {
      plan.console = StreamPlan::Console::kLines;
      plan.prefix = prefix;
    }
    if (folder.empty()) return absl::OkStatus();
    absl::StatusOr<FileSink> file = FileSink::Create(folder + "/" + name);
    if (!file.ok()) return file.status();
    plan.file = *std::move(file);
    return absl::OkStatus();
  }

  absl::Status OpenChannel(StreamPlan plan, UniqueFd& worker_end) {
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

  const LogOptions options_;
  RunFolder folder_;
  std::unique_ptr<LogThread> thread_;
  std::string place_told_;
  Losses told_losses_;
};

absl::StatusOr<std::unique_ptr<LogRouter>> LogRouter::Create(LogOptions options) {
  const bool is_for_logs = !options.redirects.is_none() || !options.tee.is_none();
  absl::StatusOr<RunFolder> folder =
      RunFolder::Create({.log_dir = options.log_dir,
                         .run_id = options.run_id,
                         .temp_dir = options.temp_dir,
                         .memory_dir = is_for_logs ? "" : options.memory_dir});
  if (!folder.ok()) {
    return absl::Status(folder.status().code(),
                        "--log_dir " + Quoted(options.log_dir) +
                            ": expected a directory that can be written "
                            "to: " +
                            EscapeControl(std::string(folder.status().message())));
  }
  absl::StatusOr<std::unique_ptr<LogThread>> thread =
      LogThread::Start(options.stdout_fd, options.stderr_fd);
  if (!thread.ok()) return thread.status();
  return std::unique_ptr<LogRouter>(new LogRouter(
      std::make_unique<Impl>(std::move(options), *std::move(folder), *std::move(thread))));
}

LogRouter::LogRouter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LogRouter::~LogRouter() = default;

void LogRouter::BeginRound(int restart_count) {
  EndRound();
  impl_->folder().BeginAttempt(restart_count);
}

void LogRouter::EndRound() { impl_->thread().CloseAll(); }

absl::StatusOr<WorkerStdio> LogRouter::OpenWorker(int local_rank, int rank) {
  return impl_->OpenWorker(local_rank, rank);
}

std::string LogRouter::StderrTail(int local_rank, size_t max_lines, Duration timeout) {
  return impl_->thread().Tail(local_rank, max_lines, timeout);
}

bool LogRouter::Drain(Duration timeout) { return impl_->thread().Drain(timeout); }

void LogRouter::Finish(Duration timeout) {
  Drain(timeout);
  impl_->folder().RemoveEmptyTemporaries();
}

void LogRouter::Say(const std::string& line) { impl_->thread().Say(line); }

bool LogRouter::Offer(const std::string& line) { return impl_->thread().Offer(line); }

std::string LogRouter::TakeLossWarning() { return impl_->TakeLossWarning(); }

LogRouter::Losses LogRouter::losses() const { return impl_->thread().losses(); }

std::string LogRouter::run_folder() const { return impl_->folder().path(); }

}  // namespace ddprun::launcher
