#include "launcher/process/worker_group.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/process/foreground.h"
#include "launcher/process/guardian.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/left_children.h"
#include "launcher/process/leftover_watch.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "launcher/process/start_sequence.h"
#include "launcher/process/survivors.h"
#include "launcher/process/worker_stop.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// How long the destructor waits for workers that it has killed. The guardian sees to the others.
constexpr Duration kLastReap = std::chrono::seconds(1);
constexpr TimePoint kNever = TimePoint::max();

struct Worker {
  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;  // 0: not started
  bool is_leader_alive = false;
  bool is_group_alive = false;  // leader or helpers
  bool was_told_to_stop = false;
  WorkerStop stop{};
  std::vector<pid_t> told_commands{};  // what a shell waits for: SignalForeground
};

}  // namespace

class WorkerGroup::Impl {
 public:
  Impl(boost::asio::io_context& io, Options options, EventHandler handler)
      : io_(io),
        options_(std::move(options)),
        handler_(std::move(handler)),
        table_(io, options_.use_pidfd, [this] { OnReaped(); }),
        leftovers_(table_,
                   {.job_mark = options_.job_mark,
                    .cgroup = options_.cgroup,
                    .guardian = options_.guardian},
                   options_.leftover_grace),
        left_children_(options_.keep_children, options_.leftover_grace),
        survivors_(options_.unkillable_after),
        tick_timer_(io),
        start_(io,
               {.baseline = options_.baseline,
                .slow_after = options_.slow_start_after,
                .is_held_for_test = options_.is_spawn_held_for_test},
               {.on_started = [this](size_t index, pid_t pid) { OnStarted(index, pid); },
                .on_failed = [this](size_t index,
                                    const SpawnFailure& why) { OnStartFailed(index, why); },
                .on_slow = [this](const std::string& executable) { OnSlowStart(executable); }}) {}

  ~Impl() {
    for (Worker& worker : workers_) {
      if (worker.is_group_alive) SignalGroup(worker, SIGKILL);
    }
    const TimePoint deadline = SteadyNow() + kLastReap;
    for (Worker& worker : workers_) {
      if (worker.is_leader_alive) worker.is_leader_alive = !ReapChild(worker.pid, deadline);
      CheckGroup(worker);
    }
  }

  void Start(std::vector<WorkerSpec> specs) {
    DDP_CHECK(is_empty() && !specs.empty());
    std::vector<SpawnRequest> requests;
    for (WorkerSpec& spec : specs) {
      if (options_.cgroup != nullptr) spec.process.cgroup = options_.cgroup->directory();
      workers_.push_back(Worker{.local_rank = spec.local_rank, .rank = spec.rank});
      requests.push_back(std::move(spec.process));
    }
    ++run_;
    leftovers_.Begin();
    left_children_.Begin();
    survivors_.Reset();
    suspended_at_.reset();
    start_.Begin(std::move(requests));
  }

  void Stop(int signal, Duration grace, bool have_it) {
    if (is_empty()) return;
    BeginStop(grace);
    EndSuspension();  // this signal continues the workers, too
    const TimePoint now = SteadyNow();
    leftovers_.KillAt(now + grace);
    for (Worker& worker : workers_) {
      if (!worker.is_group_alive) continue;
      CarryOut(worker, worker.stop.Tell(now, signal, grace, have_it));
    }
    PostRecheck();
  }

  void BeginStop(Duration grace) {
    if (is_empty()) return;
    start_.Stop();
    grace_ = grace;
    for (Worker& worker : workers_) {
      if (worker.is_group_alive) worker.was_told_to_stop = true;
    }
  }

  void KillNow() {
    if (is_empty()) return;
    start_.Stop();
    leftovers_.KillNow();
    left_children_.Begin();
    for (Worker& worker : workers_) {
      if (!worker.is_group_alive) continue;
      worker.was_told_to_stop = true;
      CarryOut(worker, worker.stop.Kill());
    }
    PostRecheck();
  }

  void Relay(int signal) {
    for (const Worker& worker : workers_) {
      // Not reaped yet, so the number is still its own.
      if (worker.is_leader_alive) kill(worker.pid, signal);
    }
  }

  void SignalGroups(int signal) {
    for (const Worker& worker : workers_) {
      if (worker.is_group_alive) SignalGroup(worker, signal);
    }
  }

  void Suspend() {
    if (!suspended_at_) suspended_at_ = SteadyNow();
    SignalGroups(SIGSTOP);
  }

  void Resume() {
    SignalGroups(SIGCONT);
    EndSuspension();
    PostRecheck();
  }

  bool is_empty() const { return workers_.empty(); }

 private:
  // Time in which the workers could not run is no part of their grace.
  void EndSuspension() {
    if (!suspended_at_) return;
    const Duration paused = SteadyNow() - *std::exchange(suspended_at_, std::nullopt);
    for (Worker& worker : workers_) worker.stop.Postpone(paused);
    survivors_.Postpone(paused);
    left_children_.Postpone(paused);
    leftovers_.Postpone(paused);
  }

  // ESRCH is expected: a leader that is a zombie alone still counts as a group, a reaped one does
  // not. Nor does a child that was cloned a moment ago and has no group yet; it is alone then.
  static void SignalGroup(const Worker& worker, int signal) {
    if (kill(-worker.pid, signal) == 0 || errno != ESRCH) return;
    if (worker.is_leader_alive) kill(worker.pid, signal);
  }

  void CarryOut(Worker& worker, WorkerStop::Order order) {
    using enum WorkerStop::Receiver;
    if (order.receiver == kNobody || order.receiver == kHelpers) return;
    // A core dump of a child that shares our memory may be our end. It has nothing worth a dump.
    const bool is_dump = (kDumpingSignals & BitOf(order.signal)) != 0;
    const int signal = is_dump && start_.IsOnItsWay(worker.pid) ? SIGTERM : order.signal;
    if (order.receiver == kGroup) {
      SignalGroup(worker, signal);
    } else {
      kill(worker.pid, signal);  // not reaped yet, so the number is its own
      worker.told_commands = SignalForeground(worker.pid, signal);
      // LeakSanitizer attaches to a process that ends. A SIGCONT would take away the SIGSTOP that
      // it waits for without end (ptrace(2)), so none comes to what runs.
      if (!IsStopped(worker.pid) && std::ranges::none_of(worker.told_commands, IsStopped)) return;
    }
    if (signal != SIGKILL) SignalGroup(worker, SIGCONT);
  }

  // A command that the shell has reaped is gone; its number is hardly another's so soon.
  static bool HasProgramIt(const Worker& worker) {
    return std::ranges::any_of(worker.told_commands, [](pid_t pid) { return kill(pid, 0) == 0; });
  }

  // Those in the groups of these workers besides the workers themselves, for all of them by one
  // walk over /proc.
  static void TellHelpers(std::vector<pid_t> workers) {
    if (workers.empty()) return;
    workers.push_back(0);
    SignalLeftovers({.groups = workers.data()}, SIGTERM);
    SignalLeftovers({.groups = workers.data()}, SIGCONT);
  }

  void OnStarted(size_t index, pid_t pid) {
    Worker& worker = workers_[index];
    worker.pid = pid;
    worker.is_leader_alive = worker.is_group_alive = true;
    if (options_.guardian != nullptr) options_.guardian->AddSession(pid);
    table_.Watch(pid, [this, index, run = run_](const ExitStatus& status) {
      // A worker that was given up may still end, in a later run.
      if (run == run_) OnExit(index, status);
    });
    handler_(WorkerStarted{.local_rank = worker.local_rank, .pid = pid});
  }

  // Those already started have done nothing worth a grace. Of several failures the first counts.
  void OnStartFailed(size_t index, const SpawnFailure& why) {
    const Worker& worker = workers_[index];
    if (!start_failure_) {
      start_failure_ =
          StartFailed{.local_rank = worker.local_rank,
                      .pid = worker.pid,
                      .exit_code = why.exit_code,
                      .text = "spawn rank " + std::to_string(worker.rank) + ": " + why.text};
    }
    KillNow();
  }

  void OnSlowStart(const std::string& executable) {
    handler_(WorkerNotice{"no answer from exec \"" + executable + "\" for " +
                          DurationText(options_.slow_start_after) +
                          " (does its file system respond?); still waiting"});
  }

  // The leader is a zombie: its number still stands for its group.
  void OnExit(size_t index, const ExitStatus& status) {
    start_.Check();
    Worker& worker = workers_[index];
    worker.is_leader_alive = false;
    exit_index_ = index;
    exit_seen_ = WorkerExited{.local_rank = worker.local_rank,
                              .pid = worker.pid,
                              .status = status,
                              .at = SteadyNow(),
                              .was_told_to_stop = worker.was_told_to_stop};
    Duration patience{0};
    if (status.is_success() && !worker.was_told_to_stop) {
      patience = left_children_.patience();
      left_children_.WorkerEnded(exit_seen_->at);
      leftovers_.KeepUntil(exit_seen_->at + patience);
    }
    CarryOut(worker, worker.stop.LeaderEnded(exit_seen_->at, options_.leftover_grace, patience));
  }

  // A worker's leader, whose end was just seen, or what workers left behind.
  void OnReaped() {
    if (const std::optional<WorkerExited> exited = std::exchange(exit_seen_, std::nullopt)) {
      CheckGroup(workers_[exit_index_]);
      // Of several that could not start each but the first was told to stop, like the others.
      const bool is_start_failure =
          start_failure_ && start_failure_->local_rank == exited->local_rank;
      if (!is_start_failure) handler_(*exited);
    }
    Recheck();
  }

  void CheckGroup(Worker& worker) {
    if (!worker.is_group_alive || worker.is_leader_alive) return;
    if (kill(-worker.pid, 0) == 0 || errno != ESRCH) return;
    worker.is_group_alive = false;
    if (options_.guardian != nullptr) options_.guardian->RemoveSession(worker.pid);
  }

  void PostRecheck() {
    boost::asio::post(io_, [this, run = run_] {
      if (run == run_) Recheck();
    });
  }

  // Something happened that may have changed what is left.
  void Recheck() {
    quiet_since_ = SteadyNow();
    Look();
  }

  // Looks what is left, kills what is over its time, and ends the run when nothing is.
  void Look() {
    if (is_empty()) return;
    const TimePoint now = SteadyNow();
    std::vector<WorkerNotice> notices;
    TellOfLeftChildren(now, notices);
    std::vector<pid_t> deaf;  // at half of their grace
    bool is_any_alive = start_.is_starting();
    for (Worker& worker : workers_) {
      CheckGroup(worker);
      if (!worker.is_group_alive) continue;
      is_any_alive = true;
      if (worker.stop.next_at() > now) continue;
      // It kept to its time and we are late: its exit is served next.
      if (worker.is_leader_alive && ProcessTable::HasEnded(worker.pid)) continue;
      if (worker.stop.is_kill_due(now)) notices.push_back(Ignored(worker));
      const WorkerStop::Order order = worker.stop.TimePassed(now, HasProgramIt(worker));
      if (order.receiver == WorkerStop::Receiver::kHelpers) deaf.push_back(worker.pid);
      CarryOut(worker, order);
      quiet_since_ = now;
    }
    TellHelpers(std::move(deaf));
    if (!is_any_alive && !leftovers_.AreLeft(now)) {
      Finish();
    } else if (IsGivenUp(now)) {
      handler_(Unkillable{survivors_.GivenUpText(Survivors())});
      Finish();
    } else {
      std::string told = survivors_.TakeNotice(now, Survivors());
      if (!told.empty()) notices.push_back({std::move(told)});
      ArmTick(now);
    }
    for (const WorkerNotice& event : notices) handler_(event);
  }

  // Before they are told to end. A run that is being stopped needs no line.
  void TellOfLeftChildren(TimePoint now, std::vector<WorkerNotice>& notices) {
    if (left_children_.next_at() > now) return;
    if (options_.job_mark.empty() || !HasChildren()) return left_children_.Begin();
    const LeftoverQuery query{
        .mark = options_.job_mark.c_str(),
        .cgroup = options_.cgroup != nullptr ? options_.cgroup->name().c_str() : "",
        .spare = options_.guardian != nullptr ? options_.guardian->pid() : 0};
    std::set<pid_t> living;
    for (const Worker& worker : workers_) {
      if (worker.is_leader_alive) living.insert(worker.pid);
    }
    for (std::string& line : left_children_.Look(now, query, living)) {
      notices.push_back({std::move(line)});
    }
  }

  // Everything has been killed for long enough. A worker whose own end is outstanding is still ours
  // to reap; what it left behind need not be.
  bool IsGivenUp(TimePoint now) {
    bool is_all_killed = !start_.is_starting();
    for (const Worker& worker : workers_) {
      is_all_killed = is_all_killed && (!worker.is_group_alive || worker.stop.is_killed());
    }
    return survivors_.IsGivenUp(now, is_all_killed && leftovers_.IsOver(now));
  }

  std::vector<Survivor> Survivors() const {
    std::vector<Survivor> survivors;
    for (const Worker& worker : workers_) {
      if (worker.is_leader_alive) survivors.push_back({.rank = worker.rank, .pid = worker.pid});
    }
    return survivors;
  }

  WorkerNotice Ignored(const Worker& worker) const {
    const Duration grace = worker.was_told_to_stop ? grace_ : options_.leftover_grace;
    const std::string who = NameOf({.rank = worker.rank, .pid = worker.pid});
    return {(worker.is_leader_alive ? who : "a process left by " + who) + " did not end within " +
            DurationText(grace) + " of " + SignalName(worker.stop.signal()) + ": killed"};
  }

  void Finish() {
    tick_timer_.cancel();
    start_.End();
    workers_.clear();
    ++run_;
    if (start_failure_) handler_(*std::exchange(start_failure_, std::nullopt));
    handler_(GroupEmpty{});
  }

  void ArmTick(TimePoint now) {
    TimePoint next = kNever;
    bool is_leader_alive = start_.is_starting();
    bool has_leftovers = false;
    for (const Worker& worker : workers_) {
      is_leader_alive = is_leader_alive || worker.is_leader_alive;
      if (!worker.is_group_alive) continue;
      next = std::min(next, worker.stop.next_at());
      has_leftovers = has_leftovers || !worker.is_leader_alive;
    }
    if (has_leftovers || !is_leader_alive) {
      next = std::min(next, leftovers_.LookAt(now, quiet_since_));
    }
    next = std::min(next, left_children_.next_at());
    // What the kernel holds sends us no SIGCHLD.
    next = std::min(next, survivors_.next_at());
    if (next == kNever) return;
    tick_timer_.expires_at(ToSteady(next));
    tick_timer_.async_wait([this, run = run_](boost::system::error_code error) {
      if (!error && run == run_) Look();
    });
  }

  boost::asio::io_context& io_;
  const Options options_;
  const EventHandler handler_;
  ProcessTable table_;
  LeftoverWatch leftovers_;
  LeftChildren left_children_;
  SurvivorWatch survivors_;
  boost::asio::steady_timer tick_timer_;  // grace ends, leftovers
  StartSequence start_;

  // One run, from Start to GroupEmpty; empty workers_ means none.
  uint64_t run_ = 0;  // grows, so that handlers posted for an earlier run do nothing
  std::vector<Worker> workers_;
  Duration grace_{0};
  TimePoint quiet_since_;
  std::optional<TimePoint> suspended_at_;
  std::optional<StartFailed> start_failure_;
  std::optional<WorkerExited> exit_seen_;  // between OnExit and OnReaped
  size_t exit_index_ = 0;                  // whose that is
};

WorkerGroup::WorkerGroup(boost::asio::io_context& io, Options options, EventHandler handler)
    : impl_(std::make_unique<Impl>(io, std::move(options), std::move(handler))) {}
WorkerGroup::~WorkerGroup() = default;

void WorkerGroup::Start(std::vector<WorkerSpec> specs) { impl_->Start(std::move(specs)); }
void WorkerGroup::Stop(int signal, Duration grace, bool have_it) {
  impl_->Stop(signal, grace, have_it);
}
void WorkerGroup::KillNow() { impl_->KillNow(); }
void WorkerGroup::Relay(int signal) { impl_->Relay(signal); }
void WorkerGroup::BeginStop(Duration grace) { impl_->BeginStop(grace); }
void WorkerGroup::Suspend() { impl_->Suspend(); }
void WorkerGroup::Resume() { impl_->Resume(); }
bool WorkerGroup::is_empty() const { return impl_->is_empty(); }

}  // namespace ddprun::launcher
