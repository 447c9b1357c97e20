#include "launcher/agent/agent.h"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_core.h"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_policy.h"
#include "launcher/agent/file_timers.h"
#include "launcher/agent/node_identity.h"
#include "launcher/agent/round_store.h"
#include "launcher/agent/test_hooks.h"
#include "launcher/logs/log_router.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/guardian.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/signals.h"
#include "launcher/process/worker_env.h"
#include "launcher/process/worker_group.h"
#include "launcher/report/job_reporter.h"
#include "launcher/report/node_failures.h"
#include "rendezvous/base/host_name.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/connect.h"

namespace ddprun::launcher {
namespace {

namespace asio = boost::asio;

// What the last messages may take, the coordinator's wait for acknowledgements included.
constexpr Duration kFlushTimeout = std::chrono::seconds(11);
// How long whoever reads our output may take for the last of it. A signal ends this wait too.
constexpr Duration kConsolePatience = std::chrono::seconds(60);
// How long what is left of the job after its end may take to die.
constexpr Duration kLeftoverTimeout = std::chrono::seconds(10);

class Agent {
 public:
  Agent(AgentSetup setup, std::unique_ptr<Guardian> guardian, LogRouter& logs,
        spdlog::logger& logger);
  int Run();

 private:
  void Feed(const AgentEvent& event);
  void Hear(const auto& event) { Feed(AgentEvent(event)); }
  void Hear(const rendezvous::ContactEnded&);
  void ArmTimer();
  void OnWorker(const WorkerEvent& event);
  void OnSignal(const ReceivedSignal& signal);
  void OnWorkerExited(const WorkerExited& event);
  void OnStartFailed(const StartFailed& event);

  void Do(const JoinRound&);
  void Do(const StartWorkers& action);
  void Do(const StopWorkers& action) { group_.Stop(action.signal, action.grace); }
  void Do(const KillWorkers&) { group_.KillNow(); }
  void Do(const ReportFailure& action);
  void Do(const ReportFirstSuccess& action) {
    client_->ReportFirstSuccess(action.round, action.rank, action.at);
  }
  void Do(const ReportSuccess& action) { client_->ReportSucceeded(action.round); }
  void Do(const LeaveJob& action) { client_->Leave(action.reason); }
  void Do(const AckVerdict&) { client_->AckVerdict(); }
  void Do(const Say& action) { Tell(action.text); }
  void Do(const PrintReport& action) { reporter_.Print(action.verdict); }
  void Do(const ExitAgent& action);

  // One line of ours for the user.
  void Tell(const std::string& text) { logs_.Say("ddprun: " + text); }
  void TellLosses();
  absl::Status OpenTimers();
  void TellOfDescriptors();  // on any thread
  rendezvous::RendezvousOptions ConnectOptions();
  absl::StatusOr<std::vector<WorkerSpec>> SpecsOf(const rendezvous::Assignment& assignment);

  const AgentSetup setup_;
  const std::string host_;
  const NodeId node_id_;

  LogRouter& logs_;
  AgentLog log_;
  asio::io_context io_;
  const std::unique_ptr<Guardian> guardian_;
  std::once_flag descriptors_told_;
  AgentCore core_;
  asio::steady_timer timer_;
  RoundStore store_;
  WorkerGroup group_;
  std::map<int, WorkerStdio> stdio_;  // the ends of workers not started yet
  JobReporter reporter_;
  std::unique_ptr<FileTimers> timers_;  // null: nobody asked for them
  std::unique_ptr<SignalReceiver> signals_;
  std::unique_ptr<rendezvous::RendezvousClient> client_;

  std::vector<AgentEvent> inbox_;  // what came up while a step's actions were carried out
  bool is_stepping_ = false;
  bool is_leaving_ = false;  // the core has ended; only the last messages are under way
  int exit_code_ = kExitBug;
  std::thread flusher_;
};

Agent::Agent(AgentSetup setup, std::unique_ptr<Guardian> guardian, LogRouter& logs,
             spdlog::logger& logger)
    : setup_(std::move(setup)),
      host_(HostName()),
      node_id_(NewNodeId(host_)),
      logs_(logs),
      log_(logger, {.run_id = setup_.config.run_id,
                    .id = node_id_.value,
                    .workers = setup_.config.workers_per_node}),
      guardian_(std::move(guardian)),
      core_(AgentPolicyOf(setup_.config)),
      timer_(io_),
      store_(setup_.config, setup_.environment, [this] { TellOfDescriptors(); }),
      group_(io_,
             {.baseline = setup_.baseline,
              .job_mark = setup_.job_mark,
              .guardian = guardian_.get(),
              .cgroup = guardian_->cgroup(),
              .leftover_grace = setup_.config.shutdown_timeout,
              .spawn_delay_for_test = SpawnDelayForTest()},
             [this](const WorkerEvent& event) { OnWorker(event); }),
      reporter_({.config = setup_.config,
                 .node = node_id_,
                 .host = host_,
                 .title = setup_.program.title,
                 .own_error_file = setup_.environment.Get("TORCHELASTIC_ERROR_FILE").value_or("")},
                logs_) {}

absl::Status Agent::OpenTimers() {
  const std::optional<std::string> path = TimerFileOf(setup_.environment);
  if (!path) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<FileTimers>> timers =
      FileTimers::Open(io_, *path,
                       {.say = [this](const std::string& line) { Tell(line); },
                        .expired = [this](const TimerRequest& timer,
                                          bool is_kill) { reporter_.TimerEvent(timer, is_kill); }});
  if (timers.ok()) timers_ = *std::move(timers);
  return timers.status();
}

int Agent::Run() {
  if (const absl::Status status = OpenTimers(); !status.ok()) {
    const std::string reason(status.message());
    Tell("error: " + reason);
    reporter_.Does(ExitAgent{kExitMachine, ExitOwner::kDdprun, reason});
    reporter_.JobEnded();
    return kExitMachine;
  }
  signals_ = std::make_unique<SignalReceiver>(
      io_, setup_.baseline, BitsOf(setup_.config.more_stop_signals),
      [this](const ReceivedSignal& signal) { OnSignal(signal); });
  if (SetsOmpThreads(setup_.environment.variables, setup_.config.workers_per_node)) {
    Tell("OMP_NUM_THREADS is not set: every worker gets 1; set it to choose");
  }
  guardian_->Watch(io_, [this](const std::string& text) { Tell(text); });
  const auto work = asio::make_work_guard(io_);
  client_ = rendezvous::ConnectRendezvous(
      ConnectOptions(), [this](const rendezvous::RendezvousEvent& event) {
        asio::post(io_, [this, event] { std::visit([this](const auto& e) { Hear(e); }, event); });
      });
  Feed(AgentStarted{});
  io_.run();
  if (flusher_.joinable()) flusher_.join();
  client_.reset();
  store_.Close();
  return exit_code_;
}

rendezvous::RendezvousOptions Agent::ConnectOptions() {
  const LaunchConfig& config = setup_.config;
  rendezvous::RendezvousOptions options;
  options.policy = RendezvousPolicyOf(config);
  options.log_step = log_.LogStep();
  options.on_no_descriptor = [this] { TellOfDescriptors(); };
  // With static nobody is told of it: all meet at the endpoint.
  if (config.rendezvous != RendezvousKind::kStatic) options.local_addr = config.local_addr;
  options.local_addr_source = config.SourceOf("local_addr");
  using Mode = rendezvous::ContactOptions::Mode;
  if (config.rendezvous == RendezvousKind::kStandalone) return options;
  const bool is_static = config.rendezvous == RendezvousKind::kStatic;
  options.mode = is_static ? Mode::kStatic : Mode::kDynamic;
  if (is_static) options.on_store_connection = [this](UniqueFd fd) { store_.Adopt(std::move(fd)); };
  options.endpoint_host = config.endpoint.host;
  options.endpoint_port = config.endpoint.port;
  options.endpoint_source = config.endpoint_source;
  options.is_host = config.rendezvous_options.is_host;
  options.node_rank = config.node_rank.value_or(-1);
  options.run_dir = RunDirectory(config.run_id, config.endpoint.port);
  return options;
}

void Agent::Feed(const AgentEvent& event) {
  inbox_.push_back(event);
  if (is_stepping_) return;
  is_stepping_ = true;
  for (size_t next = 0; next < inbox_.size(); ++next) {
    const AgentEvent current = inbox_[next];
    log_.Heard(current);
    reporter_.Heard(current);
    for (const AgentAction& action : core_.Step(SteadyNow(), current)) {
      log_.Does(action);
      reporter_.Does(action);
      std::visit([this](const auto& a) { Do(a); }, action);
    }
  }
  inbox_.clear();
  is_stepping_ = false;
  ArmTimer();
}

void Agent::ArmTimer() {
  const std::optional<TimePoint> deadline = core_.NextDeadline();
  if (!deadline) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(ToSteady(*deadline));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Feed(AgentTimePassed{});
  });
}

void Agent::OnSignal(const ReceivedSignal& signal) {
  switch (signal.meaning) {
    case SignalMeaning::kRelay:
      return group_.Relay(signal.signal);
    case SignalMeaning::kSuspend:
      group_.Suspend();
      return SuspendSelf();
    case SignalMeaning::kResume:
      return group_.Resume();
    case SignalMeaning::kStop:
    case SignalMeaning::kKillNow:
      break;
  }
  if (is_leaving_) {
    // Only the coordinator's wait for others is left, and a signal ends that too.
    logs_.Finish(kTailTimeout);
    timers_.reset();  // _exit would leave its FIFO behind
    _exit(exit_code_);
  }
  Feed(SignalReceived{signal.signal, signal.meaning == SignalMeaning::kKillNow});
}

void Agent::OnWorker(const WorkerEvent& event) {
  if (const auto* started = std::get_if<WorkerStarted>(&event)) {
    stdio_.erase(started->local_rank);
    log_.Heard(*started);
    reporter_.WorkerRuns(started->local_rank, started->pid);
    if (timers_) timers_->WorkerRuns(started->pid);
  } else if (const auto* failed = std::get_if<StartFailed>(&event)) {
    OnStartFailed(*failed);
  } else if (const auto* exited = std::get_if<WorkerExited>(&event)) {
    OnWorkerExited(*exited);
  } else if (const auto* delayed = std::get_if<StartDelayed>(&event)) {
    Tell(delayed->text);
  } else if (const auto* ignored = std::get_if<StopIgnored>(&event)) {
    Tell(ignored->text);
  } else if (const auto* unkillable = std::get_if<Unkillable>(&event)) {
    Feed(LocalFailure{kExitMachine, unkillable->text});
  } else {
    stdio_.clear();  // of workers that were never started: their channels must end too
    logs_.Drain(kTailTimeout);
    TellLosses();
    reporter_.CompleteRound();
    Feed(WorkersGone{});
  }
}

void Agent::OnStartFailed(const StartFailed& event) {
  stdio_.clear();
  if (timers_) timers_->WorkerIsGone(event.pid);
  WorkerEnd end{
      .local_rank = event.local_rank, .exit_code = event.exit_code, .message = event.text};
  reporter_.WorkerIsGone(end, /*was_told_to_stop=*/false);
  Feed(WorkerEnded{std::move(end), SteadyNow()});
}

void Agent::TellLosses() {
  if (const std::string warning = logs_.TakeLossWarning(); !warning.empty()) Tell(warning);
}

void Agent::TellOfDescriptors() {
  std::call_once(descriptors_told_, [this] {
    Tell(
        "warning: no file descriptor is left for a connection, which waits until one is free; "
        "raise the limit on open files (ulimit -n)");
  });
}

void Agent::OnWorkerExited(const WorkerExited& event) {
  WorkerEnd end;
  end.local_rank = event.local_rank;
  end.pid = event.pid;
  end.exit_code = ExitCodeOf(event.status);
  end.signal = event.status.exited ? 0 : event.status.signal;
  end.dumped_core = event.status.dumped_core;
  end.message = ToString(event.status);
  if (timers_) end.message += timers_->WorkerIsGone(event.pid);
  reporter_.WorkerIsGone(end, event.was_told_to_stop);
  // A consequence of what the core knows or is about to hear.
  if (event.was_told_to_stop) return log_.HeardOfStopped(event);
  Feed(WorkerEnded{std::move(end), event.at});
}

void Agent::Do(const JoinRound&) {
  const absl::Status opened = store_.Renew();
  if (!opened.ok()) return Feed(LocalFailure{kExitMachine, std::string(opened.message())});
  rendezvous::NodeInfo node = NodeInfoOf(setup_.config);
  node.id = node_id_;
  node.host = host_;
  node.store_port = store_.port();
  client_->Join(node);
}

absl::StatusOr<std::vector<WorkerSpec>> Agent::SpecsOf(const rendezvous::Assignment& assignment) {
  const LaunchConfig& config = setup_.config;
  WorkerEnvInput shared = WorkerEnvInputOf(config, assignment, setup_.job_mark);
  shared.virtual_devices = setup_.placement.devices;
  if (timers_) shared.timer_file = timers_->path();
  shared.use_agent_store = !store_.is_workers();
  logs_.BeginRound(assignment.restart_count);
  std::vector<WorkerSpec> specs;
  for (int local_rank = 0; local_rank < config.workers_per_node; ++local_rank) {
    const int rank = assignment.first_rank + local_rank;
    absl::StatusOr<WorkerStdio> stdio = logs_.OpenWorker(local_rank, rank);
    if (!stdio.ok()) return stdio.status();
    specs.push_back(
        {.local_rank = local_rank,
         .rank = rank,
         .argv = ArgvOfWorker(setup_.program, local_rank),
         .executable = setup_.program.executable,
         .env = BuildWorkerEnv(setup_.environment.variables, shared, local_rank, stdio->error_file),
         .stdout_fd = stdio->stdout_fd.get(),
         .stderr_fd = stdio->stderr_fd.get(),
         .cpus = setup_.placement.CpusOf(local_rank)});
    reporter_.SetErrorFile(local_rank, stdio->error_file);
    stdio_[local_rank] = *std::move(stdio);
  }
  return specs;
}

void Agent::Do(const StartWorkers& action) {
  absl::StatusOr<std::vector<WorkerSpec>> specs = SpecsOf(action.assignment);
  if (!specs.ok()) {
    stdio_.clear();
    Feed(LocalFailure{kExitMachine, std::string(specs.status().message())});
    return Feed(WorkersGone{});
  }
  group_.Start(*std::move(specs));
}

void Agent::Do(const ReportFailure& action) {
  client_->ReportFailed(action.assignment.round, reporter_.Describe(action.end), action.at);
}

void Agent::Do(const ExitAgent& action) {
  exit_code_ = action.exit_code;
  is_leaving_ = true;
  store_.Close();
  if (!KillLeftovers(setup_.job_mark, guardian_->cgroup(), kLeftoverTimeout)) {
    Tell("processes of this job are left that do not die: the kernel keeps them");
    logs_.EndRound();
  }
  reporter_.JobEnded();
  client_->EndContact(kFlushTimeout);
}

void Agent::Hear(const rendezvous::ContactEnded&) {
  // On a thread of its own, so that a signal is served meanwhile.
  flusher_ = std::thread([this] {
    logs_.Drain(kConsolePatience);
    asio::post(io_, [this] { io_.stop(); });
  });
}

}  // namespace

int RunAgent(AgentSetup setup, std::unique_ptr<Guardian> guardian, LogRouter& logs,
             spdlog::logger& logger) {
  Agent agent(std::move(setup), std::move(guardian), logs, logger);
  return agent.Run();
}

}  // namespace ddprun::launcher
