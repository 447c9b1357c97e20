// What the core decided, carried out.
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/agent_policy.h"
#include "launcher/agent/round_key_file.h"
#include "launcher/cli/text.h"
#include "launcher/logs/console_sink.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/folder_note.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr Duration kTrustInterval = std::chrono::seconds(2);
// Longer than the coordinator takes to name the cause of the job's end, on a busy node as well; it
// may wait for a silent node's evict time besides.
constexpr Duration kVerdictTime = std::chrono::seconds(20);
// How long what is left of the job after its end may take to die.
constexpr Duration kLeftoverTimeout = std::chrono::seconds(10);
// A log file that takes so long when all is over does not answer.
constexpr Duration kLastPatience = std::chrono::milliseconds(100);
// How long a program may take to its next look at the flag without a word of ours.
constexpr Duration kStopHintDelay = std::chrono::seconds(10);
// For a line past the logs: whoever reads our stderr may have stopped.
constexpr Duration kPastLogsTimeout = std::chrono::milliseconds(500);

}  // namespace

// Why the workers of a round of `node_count` nodes would not find its store here or elsewhere.
absl::Status Agent::CheckTrust(int node_count) const {
  if (setup_.identity == nullptr || node_count == 1) return absl::OkStatus();
  return setup_.identity->Check();
}

// Ends a node that waits for a place when its certificate is not valid any more.
void Agent::WatchTrust() {
  if (setup_.identity == nullptr || setup_.identity->is_token()) return;
  const Duration verdict = kVerdictTime + RendezvousPolicyOf(setup_.config).evict_after;
  trust_timer_.expires_after(core_.is_verdict_due() ? verdict : kTrustInterval);
  trust_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !is_waiting_ || core_.is_leaving()) return;
    const absl::Status trust = CheckTrust(setup_.config.nodes.max);
    if (trust.ok()) return WatchTrust();
    Feed(LocalFailure{kExitAuthentication, std::string(trust.message())});
  });
}

void Agent::Do(const CheckHealth& action) {
  health_->Start([this, number = action.number](const rendezvous::HealthReport& report) {
    Feed(HealthFound{number, report});
  });
}

void Agent::Do(const JoinRound& action) {
  const absl::Status opened = store_.Renew();
  if (!opened.ok()) return Feed(LocalFailure{kExitMachine, std::string(opened.message())});
  rendezvous::NodeInfo node = NodeInfoOf(setup_.config);
  node.id = node_id_;
  node.host = host_;
  node.store_port = store_.port();
  node.health = action.health;
  if (setup_.config.run_id == kUnnamedJob) node.program = setup_.program.digest;
  // Without a place it still hears how the job ends, if it does.
  if (CheckTrust(setup_.config.nodes.max).ok()) client_->Join(node);
  is_waiting_ = true;
  WatchTrust();
}

void Agent::Do(const PrepareWorkers& action) {
  is_waiting_ = false;
  if (const absl::Status trust = CheckTrust(action.assignment.node_count); !trust.ok()) {
    return Feed(LocalFailure{kExitAuthentication, std::string(trust.message())});
  }
  WorkerEnvInput shared = WorkerEnvInputOf(setup_.config, action.assignment, setup_.job_mark);
  shared.visible_devices = setup_.placement.visible_devices;
  shared.virtual_devices = setup_.placement.devices;
  shared.timer_file = timer_file_;
  shared.use_agent_store = !store_.is_workers();
  prepared_ = {};
  const bool is_flag_used = std::exchange(is_scale_up_asked_, false);
  workers_files_.Ask<absl::StatusOr<PreparedWorkers>>(
      "logs", "the folder of the workers' files", kFileTimeout,
      [this, shared, is_flag_used] { return MakeWorkerFiles(shared, is_flag_used); },
      [this, to = action.assignment](std::optional<absl::StatusOr<PreparedWorkers>> made) {
        if (!made) return;  // the core has given it up long ago
        if (!made->ok()) {
          return Feed(WorkersPrepared{to, std::string(made->status().message())});
        }
        Adopt(**std::move(made));
        Feed(WorkersPrepared{to});
        // Not started, because the round is over: their channels must end.
        if (!prepared_.specs.empty()) prepared_ = {};
      });
}

void Agent::MakeStopFile(PreparedWorkers& prepared, bool is_progress_wanted) {
  const bool is_asking_wanted = setup_.config.preempt_signal != 0;
  if (made_stop_file_ != nullptr && made_stop_file_->Exists()) {
    prepared.stop_file = made_stop_file_;
    return;
  }
  const absl::StatusOr<std::string> folder = logs_.MemoryFolder();
  absl::Status status = folder.status();
  if (folder.ok()) {
    workers_files_.Touch(*folder);
    absl::StatusOr<std::unique_ptr<StopFile>> made = StopFile::Make(*folder);
    status = made.status();
    if (made.ok()) prepared.stop_file = made_stop_file_ = *std::move(made);
  }
  // `ddprun stop --graceful` says so when it comes to it.
  if (status.ok() || (!is_asking_wanted && !is_progress_wanted)) return;
  const std::string what = is_asking_wanted
                               ? setup_.config.SourceOf("preempt_signal") +
                                     ": the workers cannot be asked for a graceful stop: "
                               : "Kubeflow Trainer does not hear of the progress: ";
  prepared.warning = absl::StrCat("warning: ", what, EscapeControl(std::string(status.message())));
}

void Agent::Adopt(PreparedWorkers prepared) {
  if (!prepared.warning.empty()) Say(prepared.warning);
  prepared_ = std::move(prepared);
  watch_.BeginRound(prepared_.pages, prepared_.server_sockets);
  stop_file_ = prepared_.stop_file;
  is_ask_in_vain_ = stop_file_ == nullptr;
  if ((is_stop_asked_ || is_scale_up_asked_) && stop_file_ != nullptr) stop_file_->Ask();
  if (progress_ == nullptr) return;
  progress_->BeginRound(prepared_.specs.front().rank == 0, stop_file_);
}

void Agent::Do(const AskToStop& action) {
  (action.is_to_scale_up ? is_scale_up_asked_ : is_stop_asked_) = true;
  if (stop_file_ != nullptr) stop_file_->Ask();
  Say(absl::StrCat(action.why, ": ",
                   is_ask_in_vain_     ? "the workers of this node cannot be asked"
                   : group_.is_empty() ? "no worker runs on this node; those that start are asked"
                                       : "asked the workers of this node",
                   " for a graceful stop",
                   action.is_to_scale_up ? ", then all start again (--scale-up=graceful)" : ""));
  stop_hint_timer_.expires_after(kStopHintDelay);
  stop_hint_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) HintAtStopFlag();
  });
}

void Agent::HintAtStopFlag() {
  // All ranks hear of it at the same call: rank 0's node speaks for all.
  const bool is_read = stop_file_ == nullptr || stop_file_->was_read();
  const bool is_asked = is_stop_asked_ || is_scale_up_asked_;  // and not in the round before
  if (!is_asked || is_read || group_.is_empty() || !watch_.record().has_rank_0()) return;
  Say(absl::StrCat(
      "no rank has looked for the graceful stop in ", kStopHintDelay / std::chrono::seconds(1),
      " s: a program has to call ShouldStop() or ddprun.should_stop() after each step; ",
      is_stop_asked_ ? "`ddprun stop` ends one that does not"
                     : "the new nodes wait for the next restart"));
}

void Agent::Do(const ReportSuccess& action) {
  const bool is_read = stop_file_ != nullptr && stop_file_->was_read();
  client_->ReportSucceeded(action.round, is_read ? action.if_read : rendezvous::StopRead::kNo);
}

absl::StatusOr<Agent::PreparedWorkers> Agent::MakeWorkerFiles(WorkerEnvInput shared,
                                                              bool is_flag_used) {
  const rendezvous::Assignment& assignment = shared.assignment;
  logs_.BeginRound(assignment.restart_count);
  *oom_baseline_ = ReadOomBaseline();  // what the kernel counts from here on is the workers'
  PreparedWorkers prepared;
  const bool is_progress_wanted =
      progress_ != nullptr && progress_->is_wanted() && assignment.first_rank == 0;
  const bool is_server_wanted = setup_.environment.Get("DDPRUN_WORKER_SERVER") == "1";
  // It was set for the round that is over, and no worker of this one is to find it so.
  if (is_flag_used && made_stop_file_ != nullptr) std::exchange(made_stop_file_, nullptr)->Unlink();
  MakeStopFile(prepared, is_progress_wanted);
  if (prepared.stop_file != nullptr) {
    shared.stop_file = prepared.stop_file->path();
    if (is_progress_wanted) shared.progress_file = prepared.stop_file->path();
    // One that a worker of an earlier round has left would keep this one's from its place.
    if (is_server_wanted) {
      const std::string& flag = prepared.stop_file->path();
      shared.server_socket = absl::StrCat(flag.substr(0, flag.rfind('/') + 1), kServerSocketStem,
                                          assignment.epoch.value, "_", assignment.round.value, "_");
    }
  }
  const std::vector<std::string> variables = gloo_.AddTo(setup_.environment.variables, assignment);
  absl::StatusOr<RoundStore::Way> way = store_.WayTo(assignment);
  if (!way.ok()) return way.status();
  shared.store_host = std::move(way->host);
  shared.store_port = way->port;
  shared.own_address = std::move(way->own_address);
  absl::StatusOr<UniqueFd> round_key = RoundKeyFileOf(assignment, setup_.identity != nullptr);
  if (!round_key.ok()) return round_key.status();
  prepared.round_key = *std::move(round_key);
  if (prepared.round_key.is_open()) shared.round_key_fd = kRoundKeyFd;
  for (int local_rank = 0; local_rank < setup_.config.workers_per_node; ++local_rank) {
    const int rank = assignment.first_rank + local_rank;
    const std::string run_folder = logs_.run_folder();
    if (!run_folder.empty()) {
      workers_files_.Touch(
          absl::StrCat(run_folder, "/attempt_", assignment.restart_count, "/", local_rank));
    }
    absl::StatusOr<WorkerStdio> stdio = logs_.OpenWorker(local_rank, rank);
    if (!stdio.ok()) return stdio.status();
    // Without it the worker runs as well, and less is known of it.
    absl::StatusOr<std::unique_ptr<RankPage>> page = RankPage::Make();
    prepared.pages.push_back(page.ok() ? *std::move(page) : nullptr);
    const bool has_page = prepared.pages.back() != nullptr;
    shared.counters_fd = has_page ? kCountersFd : -1;
    prepared.specs.push_back(
        {.local_rank = local_rank,
         .rank = rank,
         .process = {.executable = setup_.program.executable,
                     .argv = ArgvOfWorker(setup_.program, local_rank),
                     .env = BuildWorkerEnv(variables, shared, local_rank, stdio->error_file),
                     .stdout_fd = stdio->stdout_fd.get(),
                     .stderr_fd = stdio->stderr_fd.get(),
                     .counters_fd = has_page ? prepared.pages.back()->fd() : -1,
                     .round_key_fd = prepared.round_key.get(),
                     .cpus = setup_.placement.CpusOf(local_rank)}});
    prepared.stdio[local_rank] = *std::move(stdio);
    prepared.server_sockets.push_back(WorkerServerSocket(variables, shared, local_rank));
  }
  if (is_server_wanted && prepared.server_sockets.back().empty() && prepared.warning.empty()) {
    prepared.warning =
        "warning: DDPRUN_WORKER_SERVER=1: the workers get no socket, as there is no folder for it "
        "with a path short enough; /dev/shm or a short TMPDIR helps";
  }
  return prepared;
}

void Agent::Do(const DescribeFailure& action) {
  reporter_.Describe(action.end, [this, action](const rendezvous::FailureReport& report) {
    Feed(FailureDescribed{action.end, action.assignment, report});
  });
}

void Agent::Do(const LookForEnding& action) {
  reporter_.LookForEnding([this, to = action.assignment](std::set<int> local_ranks) {
    Feed(EndingFound{to, std::move(local_ranks)});
  });
}

void Agent::KillLeftoversOfJob() {
  if (!HasChildren()) return Feed(LeftoversGone{true});
  last_steps_.Ask<bool>(
      "leftovers", "", 2 * kLeftoverTimeout,
      [this] { return KillLeftovers(setup_.job_mark, guardian_->cgroup(), kLeftoverTimeout); },
      [this](std::optional<bool> are_gone) { Feed(LeftoversGone{are_gone.value_or(false)}); });
}

void Agent::Do(const EndJob& action) {
  store_.Close();
  control_timer_.cancel();
  trust_timer_.cancel();
  life_timer_.cancel();
  stop_hint_timer_.cancel();
  control_.End();
  watch_.End();
  if (!watch_.closing_line().empty()) Say(watch_.closing_line());
  // Who was asked to stop and did has not trained to the end.
  const bool has_stopped = stop_file_ != nullptr && stop_file_->was_read();
  if (progress_ != nullptr) progress_->End(action.exit_code == kExitSuccess && !has_stopped);
  KillLeftoversOfJob();
  if (client_ != nullptr) {
    client_->EndContact(kContactTimeout);
  } else {
    Feed(rendezvous::ContactEnded{});
  }
  // The Trainer has its own time, which has begun, and is heard before our own last line.
  const auto feed = [this] { control_.AwaitEnd([this] { Feed(ReportWritten{}); }); };
  const auto await_trainer = [this, feed] {
    progress_ == nullptr ? feed() : progress_->AwaitEnd(feed);
  };
  const auto flush_events = [this, await_trainer] {
    events_ == nullptr ? await_trainer() : events_->Flush(await_trainer);
  };
  const auto write_report = [this, flush_events] { reporter_.WriteReport(flush_events); };
  if (timer_file_.empty()) return write_report();
  // First, so that it is waited for, and behind what made it where the job ends so soon.
  own_files_.Ask<bool>(
      "timers", timer_file_, kCleanUpTimeout, [this] { return RemoveTimerFile(timer_file_); },
      [write_report](std::optional<bool>) { write_report(); });
}

void Agent::Do(const DrainLogs& action) {
  if (action.is_cut_off) logs_.EndRound();
  last_steps_.Ask<bool>(
      "drain", "", 2 * action.timeout,
      [this, timeout = action.timeout] { return logs_.Drain(timeout); },
      [this](std::optional<bool> is_drained) {
        const bool is_all_written = is_drained.value_or(false);
        if (!workers_files_.is_idle()) return Feed(LogsDrained{false});
        // Removes the folders without files.
        workers_files_.Ask<std::string>(
            "folders", setup_.config.log_dir, kCleanUpTimeout,
            [this] {
              std::string warning = logs_.TakeLossWarning();  // of what was written since
              logs_.Finish(Duration{0});
              return warning;
            },
            [this, is_all_written](const std::optional<std::string>& warning) {
              if (warning && !warning->empty()) Say(*warning);
              Feed(LogsDrained{is_all_written && warning});
            });
      });
}

void Agent::Do(const ExitAgent& action) {
  exit_code_ = action.exit_code;
  const bool is_idle = workers_files_.is_idle() && watch_.is_idle() && control_.is_idle() &&
                       (events_ == nullptr || events_->is_idle()) && own_files_.is_idle() &&
                       (!health_ || health_->is_idle()) && last_steps_.is_idle() &&
                       (progress_ == nullptr || progress_->is_idle());
  if (action.is_clean && is_idle) return io_.stop();
  // Destructors would wait for what does not answer; the guardian sees to what is left.
  const std::string file = logs_.busy_file(Duration{0});
  if (file.empty()) _exit(exit_code_);
  const bool answers = logs_.busy_file(kLastPatience).empty();
  past_logs_ = std::make_unique<FileThread>(io_);  // the log thread is not waited for any more
  past_logs_->Ask<bool>(
      "past the logs", "", kPastLogsTimeout,
      [file, answers] {
        ConsoleSink console(STDERR_FILENO);
        console.AppendMessage(absl::StrCat(
            "ddprun: ending before all was written to ", EscapeControl(file),
            answers ? ": its file system is too slow" : ": its file system does not answer"));
        console.Flush(SteadyNow());
        return true;
      },
      [this](std::optional<bool>) { _exit(exit_code_); });
}

}  // namespace ddprun::launcher
