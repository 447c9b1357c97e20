#include "launcher/agent/agent.h"

#include <unistd.h>

#include <boost/asio/post.hpp>
#include <csignal>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_policy.h"
#include "launcher/agent/node_identity.h"
#include "launcher/cli/text.h"
#include "launcher/control/control_socket.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/report/last_words.h"
#include "launcher/test_gates.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::launcher {
namespace asio = boost::asio;
namespace {

// A job that is over sooner needs no control socket.
constexpr Duration kControlDelay = std::chrono::milliseconds(100);

std::string WaitingFor(const std::string& file) {
  return absl::StrCat("waiting for ", EscapeControl(file), ": the file system does not answer");
}

}  // namespace

Agent::Agent(AgentSetup setup, std::unique_ptr<Guardian> guardian, LogRouter& logs,
             spdlog::logger& logger, WatchSockets sockets)
    : setup_(std::move(setup)),
      host_(rendezvous::HostName()),
      node_id_(NewNodeId(host_)),
      logs_(logs),
      log_(logger, {.run_id = setup_.config.run_id,
                    .id = node_id_.value,
                    .workers = setup_.config.workers_per_node}),
      guardian_(std::move(guardian)),
      core_(AgentPolicyOf(setup_.config)),
      timer_(io_),
      trust_timer_(io_),
      life_timer_(io_),
      store_(RoundStore::ReachOf(setup_.config, setup_.environment),
             [this] { TellOfDescriptors(); }),
      group_(io_,
             {.baseline = setup_.baseline,
              .job_mark = setup_.job_mark,
              .guardian = guardian_.get(),
              .cgroup = guardian_->cgroup(),
              .leftover_grace = setup_.config.shutdown_timeout,
              .keep_children = setup_.config.keep_children,
              .is_spawn_held_for_test = IsSpawnHeldForTest},
             [this](const WorkerEvent& event) {
               std::visit([this](const auto& e) { On(e); }, event);
             }),
      stop_hint_timer_(io_),
      workers_files_(io_, [this](const std::string& file) { Say(WaitingFor(file)); }),
      own_files_(io_, [this](const std::string& file) { Say(WaitingFor(file)); }),
      last_steps_(io_),
      reporter_({.part = {node_id_, host_, setup_.program.title, setup_.config},
                 .own_error_file = setup_.environment.Get("TORCHELASTIC_ERROR_FILE").value_or(""),
                 .explain_kill =
                     [baseline = oom_baseline_](int pid) { return ExplainKill(*baseline, pid); }},
                logs_, workers_files_, own_files_),
      progress_(TrainerProgress::Make(io_, setup_.environment,
                                      [this](const std::string& text) { Say(text); })),
      watch_(io_, WatchOptions(), WatchHooks()),
      control_(io_, ControlOptions(), watch_, logs_, ControlHooks()),
      control_timer_(io_),
      is_on_terminal_(isatty(STDERR_FILENO) == 1),
      gloo_({}, [this](const std::string& line) { Say(line); }),
      timer_file_(TimerFileOf(setup_.environment).value_or("")) {
  if (setup_.health) health_.emplace(io_, *setup_.health);
  if (!setup_.config.on_bad_node.empty()) {
    site_.emplace(setup_.config.on_bad_node, setup_.environment.variables,
                  [&io = io_, this](const std::string& text) {
                    asio::post(io, [this, text] { Say(text); });
                  });
  }
  ServeWatchers(std::move(sockets));
}

int Agent::Run() {
  signals_ = std::make_unique<SignalReceiver>(
      io_, setup_.baseline, BitsOf(setup_.config.more_stop_signals), setup_.config.preempt_signal,
      [this](const ReceivedSignal& signal) { On(signal); });
  if (SetsOmpThreads(setup_.environment.variables, setup_.config.workers_per_node)) {
    log_.NoteOneThread();
  }
  if (!setup_.config.site_line.empty()) log_.NoteSiteDefaults(setup_.config.site_line);
  WatchStep();
  guardian_->Watch(io_, [this](const std::string& text) { Say(text); });
  const auto work = asio::make_work_guard(io_);
  MakeFiles();
  io_.run();
  client_.reset();
  store_.Close();
  return exit_code_;
}

void Agent::WatchStep() {
  const pid_t pid = setup_.environment.Get("SLURM_STEP_ID") ? AncestorNamed("slurmstepd") : 0;
  if (pid == 0) return;
  step_daemon_.emplace(io_, pid, [this] {
    Say("slurmstepd, which runs this step for Slurm, has ended: stopping as by SIGTERM");
    On(ReceivedSignal{SignalMeaning::kStop, SIGTERM, 0});
  });
}

void Agent::MakeFiles() {
  const bool is_alone = setup_.config.rendezvous == RendezvousKind::kStandalone;
  if (is_alone && timer_file_.empty()) return Begin(Beginning{});
  own_files_.Ask<Beginning>(
      "beginning", timer_file_.empty() ? "the folder for small files" : timer_file_, kFileTimeout,
      [this, is_alone, &config = setup_.config] {
        Beginning made;
        // Nobody starts a task of a step anew: no coordinator of its job comes after this one.
        const bool is_step = !config.cluster.job.empty();
        // With etcd it is kept there.
        const bool is_elected = config.rendezvous == RendezvousKind::kEtcd;
        if (!is_alone && !is_step && !is_elected)
          made.run_dir = RunDirectory(config.run_id, config.endpoint.port);
        if (!timer_file_.empty()) made.timer_fifo = MakeTimerFile(timer_file_);
        return made;
      },
      [this](std::optional<Beginning> made) { Begin(std::move(made)); });
}

void Agent::Begin(std::optional<Beginning> made) {
  if (core_.is_leaving()) return;  // a signal came first
  const absl::Status status =
      made ? made->timer_fifo.status()
           : absl::DeadlineExceededError("the file system of ddprun's own files does not answer");
  if (!status.ok()) return Feed(LocalFailure{kExitMachine, std::string(status.message())});
  if (made->timer_fifo->is_open()) {
    timers_ = std::make_unique<FileTimers>(
        io_, *std::move(made->timer_fifo), [this](const std::string& line) { Say(line); },
        [this](const TimerRequest& timer, bool is_kill) { reporter_.TimerEvent(timer, is_kill); });
  }
  if (setup_.identity != nullptr && setup_.config.rendezvous != RendezvousKind::kStandalone) {
    auto identity = rendezvous::TlsIdentity::ForRun(setup_.identity,
                                                    rendezvous::GreetedRunId(setup_.config.run_id));
    if (!identity.ok()) {
      return Feed(LocalFailure{kExitMachine, std::string(identity.status().message())});
    }
    auto tunnels = rendezvous::Tunnels::Start(*std::move(identity));
    if (!tunnels.ok()) {
      return Feed(LocalFailure{kExitMachine, std::string(tunnels.status().message())});
    }
    tunnels_ = *std::move(tunnels);
    store_.Secure(tunnels_);
  }
  const auto hear = [this](const rendezvous::RendezvousEvent& event) {
    asio::post(io_, [this, event] { Hear(event); });
  };
  client_ = rendezvous::ConnectRendezvous(ConnectOptions(made->run_dir), hear, SteadyClock());
  // A job on this node alone runs at once, or is over before anybody asks.
  if (setup_.config.rendezvous != RendezvousKind::kStandalone) {
    OpenControl(Duration{0});
    ShowLife();
  }
  Feed(AgentStarted{});
}

void Agent::ShowLife() {
  client_->ShowLife();
  life_timer_.expires_after(rendezvous::RendezvousClient::kLifeInterval);
  life_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) ShowLife();
  });
}

rendezvous::RendezvousOptions Agent::ConnectOptions(std::string run_dir) {
  const LaunchConfig& config = setup_.config;
  rendezvous::RendezvousOptions options;
  options.policy = RendezvousPolicyOf(config);
  options.longest_beat =
      config.rendezvous_options.keep_alive_interval.value_or(options.longest_beat);
  options.log_step = log_.LogStep();
  options.on_file_lost = [this](const std::string& why) { Say("warning: " + why); };
  options.on_no_descriptor = [this] { TellOfDescriptors(); };
  if (site_) {
    options.on_bad_node = [this](const std::string& host, const std::string& reason) {
      site_->Run(host, reason);
    };
  }
  options.on_refused = [this](const std::string& whom) { Say("warning: " + whom); };
  options.on_reached_by = [this](const std::vector<std::string>& hosts) {
    const absl::Status opened = store_.BeReachedBy(hosts);
    if (opened.ok()) return;
    asio::post(io_, [this, text = std::string(opened.message())] {
      Feed(LocalFailure{kExitMachine, text});
    });
  };
  // With static nobody is told of it: all meet at the endpoint.
  if (config.rendezvous != RendezvousKind::kStatic) options.local_addr = config.local_addr;
  options.local_addr_source = config.SourceOf("local_addr");
  using Mode = rendezvous::ContactOptions::Mode;
  if (config.rendezvous == RendezvousKind::kStandalone) return options;
  options.tunnels = tunnels_;
  if (config.rendezvous == RendezvousKind::kEtcd) {
    options.mode = Mode::kElected;
    options.is_host = config.rendezvous_options.is_host;
    options.etcd = EtcdOptionsOf(config);
    options.etcd.password = setup_.environment.etcd_password.value_or("");
    options.endpoint_host = absl::StrCat("etcd at ", rendezvous::MembersText(options.etcd));
    return options;
  }
  const bool is_static = config.rendezvous == RendezvousKind::kStatic;
  options.mode = is_static ? Mode::kStatic : Mode::kDynamic;
  if (is_static) options.on_store_connection = [this](UniqueFd fd) { store_.Adopt(std::move(fd)); };
  options.endpoint_host = config.endpoint.host;
  options.endpoint_port = config.endpoint.port;
  options.listen_host = LoopbackOf(config);
  options.more_ports = config.more_ports;
  options.endpoint_source = config.endpoint_source;
  options.is_host = config.rendezvous_options.is_host;
  options.node_rank = config.node_rank.value_or(-1);
  options.run_dir = std::move(run_dir);
  return options;
}

void Agent::Feed(const AgentEvent& event) {
  inbox_.push_back(event);
  if (is_stepping_) return;
  is_stepping_ = true;
  for (size_t next = 0; next < inbox_.size(); ++next) {
    const AgentEvent current = inbox_[next];
    log_.Note(current);
    watch_.Note(current);
    if (events_) events_->log().Note(current, UnixTimeMs());
    reporter_.Note(current);
    for (const AgentAction& action : core_.Step(SteadyNow(), current)) {
      log_.Note(action);
      watch_.Note(action);
      if (events_) events_->log().Note(action, UnixTimeMs());
      reporter_.Note(action);
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

void Agent::AskWitness(int signal, bool may_be_for_all, std::function<void(bool)> then) {
  if (!may_be_for_all) {
    asked_until_[signal] = SteadyNow();
    return then(false);
  }
  const auto [asking, is_new] = asking_.try_emplace(signal, io_);
  if (!is_new) return;
  const TimePoint now = SteadyNow();
  // The guardian may have got it long before us: this thread may have been busy.
  const TimePoint since = std::max(asked_until_[signal], now - kLongestLate);
  asking->second.expires_at(ToSteady(now + kWitnessWindow));
  asking->second.async_wait(
      [this, signal, since, then = std::move(then)](const boost::system::error_code& error) {
        if (error) return;
        asking_.erase(signal);
        asked_until_[signal] = SteadyNow();
        then(guardian_->HasReceived(signal, since));
      });
}

void Agent::On(const ReceivedSignal& signal) {
  switch (signal.meaning) {
    case SignalMeaning::kRelay:
      return AskWitness(signal.signal, signal.may_be_for_all, [this, signal](bool is_for_all) {
        if (!is_for_all) group_.Relay(signal.signal);
      });
    case SignalMeaning::kAsk:
      return Feed(StopAsked{SignalName(signal.signal)});
    case SignalMeaning::kSuspend:
      group_.Suspend();
      return SuspendSelf();
    case SignalMeaning::kResume:
      return group_.Resume();
    case SignalMeaning::kStop:
    case SignalMeaning::kAgain:
    case SignalMeaning::kKillNow:
      Feed(SignalReceived{.signal = signal.signal,
                          .is_kill = signal.meaning == SignalMeaning::kKillNow,
                          .may_be_for_all = signal.may_be_for_all,
                          .is_again = signal.meaning == SignalMeaning::kAgain,
                          .is_of_terminal = signal.is_of_terminal});
  }
}

void Agent::On(const WorkerStarted& event) {
  const auto stdio = prepared_.stdio.extract(event.local_rank);  // its ends of the channels close
  const size_t index = static_cast<size_t>(event.local_rank);
  if (index < prepared_.pages.size() && prepared_.pages[index] != nullptr) {
    prepared_.pages[index]->CloseDescriptor();
  }
  log_.Note(event);
  watch_.WorkerRuns(event.local_rank, event.pid);
  if (events_) events_->log().NoteWorkerRuns(UnixTimeMs());
  reporter_.WorkerRuns(event.local_rank, event.pid, stdio ? stdio.mapped().error_file : "");
  if (timers_) timers_->WorkerRuns(event.pid);
  if (!prepared_.stdio.empty()) return;
  prepared_.round_key.Reset();
  SayRunning();
  if (std::exchange(has_swept_, true)) return;
  if (setup_.config.rendezvous == RendezvousKind::kStandalone) OpenControl(kControlDelay);
  // For the end of the job, which has threads left or not: now, so that no start waits.
  last_steps_.Start();
  own_files_.Start();
  // What killed jobs have left. Once.
  workers_files_.Ask<bool>(
      "sweep", "the folder of the workers' files", kCleanUpTimeout,
      [&logs = logs_, cgroup = guardian_->cgroup()] {
        if (cgroup != nullptr) cgroup->RemoveAbandoned();
        logs.RemoveAbandonedFolders();
        static_cast<void>(FindControlSockets());
        return true;
      },
      [](std::optional<bool>) {});
}

void Agent::On(const GroupEmpty&) {
  prepared_ = {};  // of workers that were never started: their channels must end too
  workers_files_.Ask<std::string>(
      "last words", setup_.config.log_dir, kCleanUpTimeout,
      [&logs = logs_] {
        logs.Drain(kTailTimeout);
        return logs.TakeLossWarning();
      },
      [this](const std::optional<std::string>& warning) {
        if (warning && !warning->empty()) Say(*warning);
        reporter_.CompleteRound([this] {
          Feed(WorkersGone{.have_read_stop = stop_file_ != nullptr && stop_file_->was_read()});
        });
      });
}

void Agent::On(const StartFailed& event) {
  prepared_.stdio.clear();
  if (timers_) timers_->WorkerIsGone(event.pid);
  Feed(WorkerEnd{.local_rank = event.local_rank,
                 .exit_code = event.exit_code,
                 .message = event.text,
                 .at = SteadyNow(),
                 .unix_ms = UnixTimeMs()});
}

void Agent::On(const WorkerExited& event) {
  const RankProgress progress = watch_.ProgressOf(event.local_rank);
  WorkerEnd end{.local_rank = event.local_rank,
                .pid = event.pid,
                .exit_code = ExitCodeOf(event.status),
                .signal = event.status.exited ? 0 : event.status.signal,
                .dumped_core = event.status.dumped_core,
                .was_told_to_stop = event.was_told_to_stop,
                .message = ToString(event.status),
                .at = event.at,
                .unix_ms = UnixTimeMs(),
                .step = progress.step,
                .progress = progress.time};
  if (timers_) end.message += timers_->WorkerIsGone(event.pid);
  // What comes behind one that is asked about waits for the answer: the core hears of ends in their
  // order. It takes a millisecond mostly.
  const bool may_tell = end.exit_code != 0 && !end.was_told_to_stop &&
                        (end.signal == 0 || end.signal == SIGABRT) &&
                        setup_.config.workers_per_node > 1;
  if (!may_tell && ends_asked_ == 0) return Feed(std::move(end));
  ++ends_asked_;
  reporter_.AskForLostPeer(end, [this, end](bool tells_lost_peer) mutable {
    --ends_asked_;
    end.tells_lost_peer = tells_lost_peer;
    Feed(std::move(end));
  });
}

void Agent::TellOfDescriptors() {
  std::call_once(descriptors_told_, [this] {
    Say("warning: no file descriptor is left for a connection, which waits until one is free; "
        "raise the limit on open files (ulimit -n)");
  });
}

}  // namespace ddprun::launcher
