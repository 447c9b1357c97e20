// One node's agent: carries out what AgentCore decides.
//
// Owns the node's rendezvous client, worker group, store and logs, none of which knows another.
// Everything here happens on the thread that calls Run, which executes one io_context and never
// waits for anything else: what may take long, files above all, is asked of file threads, which
// like the client's only post their answers.
#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/agent/agent_core.h"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/file_thread.h"
#include "launcher/agent/file_timers.h"
#include "launcher/agent/health_check.h"
#include "launcher/agent/round_store.h"
#include "launcher/agent/site_command.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cli/program.h"
#include "launcher/control/control_plane.h"
#include "launcher/logs/log_router.h"
#include "launcher/placement/network.h"
#include "launcher/placement/placement.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/guardian.h"
#include "launcher/process/process_baseline.h"
#include "launcher/process/signals.h"
#include "launcher/process/step_daemon.h"
#include "launcher/process/stop_file.h"
#include "launcher/process/worker_env.h"
#include "launcher/process/worker_group.h"
#include "launcher/progress/trainer_progress.h"
#include "launcher/report/event_writer.h"
#include "launcher/report/job_reporter.h"
#include "launcher/status/job_watch.h"
#include "launcher/status/oom_verdict.h"
#include "launcher/status/rank_page.h"
#include "rendezvous/client/connect.h"
#include "rendezvous/client/tunnels.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::launcher {

// Sockets that listen for those who look on; not open: nobody wants them.
struct WatchSockets {
  UniqueFd dashboard{};
  UniqueFd metrics{};
};

struct AgentSetup {
  LaunchConfig config;
  Program program;
  Environment environment;
  ProcessBaseline baseline;
  std::string job_mark;
  Placement placement{};
  // --health-check; none: nodes are not checked.
  std::optional<HealthProgram> health{};
  // By which the nodes of the job know each other; null: whoever reaches a port is believed.
  std::shared_ptr<const rendezvous::TlsIdentity> identity{};
};

// What comes in is in agent.cc, what goes out in agent_actions.cc.
class Agent {
 public:
  // `logs` and `logger` are borrowed; no thread touches either after Run.
  Agent(AgentSetup setup, std::unique_ptr<Guardian> guardian, LogRouter& logs,
        spdlog::logger& logger, WatchSockets sockets = {});

  // Runs the job to its end on this node and returns the exit code of ddprun. Where something does
  // not answer in the end (a file system, a process that does not die, a reader of our output) it
  // does not return: the process ends with that code at once.
  // REQUIRES: called on the main thread, after PrepareAgentProcess.
  int Run();

 private:
  // For work on files that the core gives up sooner, and for work whose results can be missed.
  static constexpr Duration kFileTimeout = std::chrono::seconds(660);
  static constexpr Duration kCleanUpTimeout = std::chrono::seconds(2);
  // A signal that the guardian got longer ago is another one.
  static constexpr Duration kLongestLate = std::chrono::seconds(1);

  // What stands ready before a round's workers are started: how each of them is called.
  struct PreparedWorkers {
    std::vector<WorkerSpec> specs;
    std::map<int, WorkerStdio> stdio;  // by local rank: the descriptors that `specs` borrow
    std::vector<std::shared_ptr<RankPage>> pages{};  // by local rank; null: without one
    std::vector<std::string> server_sockets{};       // likewise; "": none (WorkerServerSocket)
    std::shared_ptr<StopFile> stop_file{};           // null: none is wanted, or `warning` says why
    UniqueFd round_key{};  // which `specs` borrow, too; closed: the nodes do not know each other
    std::string warning{};
  };
  // What is made before the rendezvous.
  struct Beginning {
    std::string run_dir;
    absl::StatusOr<UniqueFd> timer_fifo = UniqueFd();
  };

  void Feed(const AgentEvent& event);
  void ArmTimer();
  void On(const ReceivedSignal& signal);
  void On(const WorkerStarted& event);
  void On(const StartFailed& event);
  void On(const WorkerExited& event);
  void On(const WorkerNotice& event) { Say(event.text); }
  void On(const Unkillable& event) { Feed(LocalFailure{kExitMachine, event.text}); }
  void On(const GroupEmpty&);

  absl::Status CheckTrust(int node_count) const;
  void WatchTrust();
  void Do(const JoinRound& action);
  void Do(const CheckHealth& action);
  void Do(const StopHealthCheck&) { health_->Stop(); }
  void Do(const ReportHealth& action) { client_->ReportHealth(action.report); }
  void Do(const PrepareWorkers& action);
  void Do(const StartWorkers&) { group_.Start(std::move(prepared_.specs)); }
  void Do(const StopWorkers& action) {
    group_.BeginStop(action.grace);  // who begins from here on cannot have got the signal
    AskWitness(action.signal, action.may_be_for_all, [this, action](bool is_for_all) {
      group_.Stop(action.signal, action.grace, is_for_all);
    });
  }
  void Do(const KillWorkers&) { group_.KillNow(); }
  void Do(const AskToStop& action);
  void Do(const OrderStop& action) { client_->OrderStop(action.how, action.reason); }
  void Do(const AnswerStop& action) { control_.AnswerStops(action); }
  void Do(const DescribeFailure& action);
  void Do(const LookForEnding& action);
  void Do(const ReportFailure& action) {
    client_->ReportFailed(action.round, action.report, action.at);
  }
  void Do(const ReportFirstSuccess& action) {
    client_->ReportFirstSuccess(action.round, action.rank, action.at);
  }
  void Do(const ReportSuccess& action);
  void Do(const LeaveJob& action) {
    if (client_ != nullptr) client_->Leave(action.reason, action.is_by_signal);
  }
  void Do(const AckVerdict&) { client_->AckVerdict(); }
  void Do(const launcher::Say& action) { Say(action.text); }
  void Do(const PrintReport& action) { reporter_.Print(action.verdict); }
  void Do(const EndJob& action);
  void Do(const DrainLogs& action);
  void Do(const ExitAgent& action);

  // What the rendezvous client has to say: to the core, or to who has asked.
  void Hear(const rendezvous::RendezvousEvent& event);
  void SayWhoIsBelieved(const rendezvous::ContactMade& contact);
  JobWatch::Options WatchOptions() const;
  JobWatch::Hooks WatchHooks();
  ControlPlane::Options ControlOptions() const;
  ControlPlane::Hooks ControlHooks();
  void OpenControl(Duration delay);
  void ServeWatchers(WatchSockets sockets);
  void OnLook(const std::shared_ptr<const JobSnapshot>& snapshot);
  void OnHang(const HangFound& hang, const JobView& job);
  void SayRunning();
  void SayProgress(const JobSnapshot& snapshot);
  // One line of ours for the user.
  void Say(const std::string& text) { logs_.Say("ddprun: " + text); }
  // Begins a round of the logs and opens the channels of all its workers. On workers_files_: makes
  // folders and files. An error is this machine's.
  absl::StatusOr<PreparedWorkers> MakeWorkerFiles(WorkerEnvInput shared, bool is_flag_used);
  // Likewise: gives `prepared` the file of the round before, or another if that has gone.
  void MakeStopFile(PreparedWorkers& prepared, bool is_progress_wanted);
  // Tells of a program that seems not to poll the flag, once.
  void HintAtStopFlag();
  void Adopt(PreparedWorkers prepared);
  // Calls `then` with whether the signal that came just now was sent to the workers, too: at once
  // where it cannot have been, or after kWitnessWindow. Again within that: the two are one wish.
  void AskWitness(int signal, bool may_be_for_all, std::function<void(bool is_for_all)> then);
  // Slurm can end a step's processes only while the step's daemon lives.
  void WatchStep();
  // Makes what Begin needs, and begins.
  void MakeFiles();
  void Begin(std::optional<Beginning> made);
  void KillLeftoversOfJob();
  // Shows that this thread runs, now and again: the client's own would beat without it.
  void ShowLife();
  void TellOfDescriptors();  // on any thread
  rendezvous::RendezvousOptions ConnectOptions(std::string run_dir);

  const AgentSetup setup_;
  const std::string host_;
  const NodeId node_id_;

  LogRouter& logs_;
  AgentLog log_;
  boost::asio::io_context io_;
  const std::unique_ptr<Guardian> guardian_;
  std::optional<ProcessWatch> step_daemon_;
  std::once_flag descriptors_told_;
  AgentCore core_;
  int ends_asked_ = 0;  // workers' ends that the core has not heard of
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer trust_timer_;
  boost::asio::steady_timer life_timer_;
  bool is_waiting_ = false;                       // for a place
  std::shared_ptr<rendezvous::Tunnels> tunnels_;  // null: plain
  RoundStore store_;
  WorkerGroup group_;
  PreparedWorkers prepared_;             // those not started yet
  std::shared_ptr<StopFile> stop_file_;  // null: none was made, or not yet
  // The last one made: workers_files_'s alone. A round that ends before its files are made leaves
  // it to the next round.
  std::shared_ptr<StopFile> made_stop_file_;
  bool is_stop_asked_ = false;
  bool is_scale_up_asked_ = false;  // of the workers that were prepared last
  bool is_ask_in_vain_ = false;     // it could not be made
  boost::asio::steady_timer stop_hint_timer_;
  // Work that may take long, each kind behind its own alone: what the workers' output and files
  // need, what our own files need, the last steps of the job.
  FileThread workers_files_;
  FileThread own_files_;
  FileThread last_steps_;
  std::optional<HealthCheck> health_;  // none: nodes are not checked
  std::optional<SiteCommand> site_;    // none: nobody is told of bad nodes
  const std::shared_ptr<OomBaseline> oom_baseline_ =
      std::make_shared<OomBaseline>();  // workers_files_'s
  JobReporter reporter_;
  const std::unique_ptr<TrainerProgress> progress_;  // null: nobody wants to be told
  JobWatch watch_;
  ControlPlane control_;
  boost::asio::steady_timer control_timer_;
  std::unique_ptr<EventWriter> events_;  // null: nobody wants any
  const bool is_on_terminal_;
  TimePoint progress_again_at_{};
  bool is_asking_where_ = false;           // what a rank that hangs does
  GlooInterface gloo_;                     // workers_files_'s, once it has begun
  std::unique_ptr<FileThread> past_logs_;  // null: nothing was said past the logs yet
  const std::string timer_file_;           // "": nobody asked for timers
  std::unique_ptr<FileTimers> timers_;     // null: nobody asked for them, or not yet
  std::unique_ptr<SignalReceiver> signals_;
  std::map<int, boost::asio::steady_timer> asking_;  // AskWitness's, by signal
  std::map<int, TimePoint> asked_until_;             // what was told by then counts no more
  std::unique_ptr<rendezvous::RendezvousClient> client_;

  std::vector<AgentEvent> inbox_;  // what came up while a step's actions were carried out
  bool is_stepping_ = false;
  bool has_swept_ = false;
  bool has_said_trust_ = false;  // with etcd an agent may host again and again
  int exit_code_ = kExitBug;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_H_
