// The workers of one node and round, as one thing: started together, stopped together, each end
// reported once.
#ifndef DDPRUN_LAUNCHER_PROCESS_WORKER_GROUP_H_
#define DDPRUN_LAUNCHER_PROCESS_WORKER_GROUP_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "launcher/process/exit_status.h"
#include "launcher/process/process_baseline.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/time.h"

namespace boost::asio {
class io_context;
}

namespace ddprun::launcher {

class Guardian;
class JobCgroup;

struct WorkerSpec {
  int local_rank = 0;
  int rank = 0;
  // Its descriptors are borrowed until WorkerStarted or StartFailed; its cgroup is the group's.
  SpawnRequest process;
};

// The process exists. It may still fail to become its program.
struct WorkerStarted {
  int local_rank = 0;
  pid_t pid = 0;
};

// A worker could not be started, or not become its program (then without a WorkerExited of its
// own). Those already started have been killed; GroupEmpty follows.
struct StartFailed {
  int local_rank = 0;
  pid_t pid = 0;       // of its WorkerStarted; 0: there was none
  int exit_code = 0;   // what ddprun exits with: kExitNotFound, kExitNotExecutable, kExitMachine
  std::string text{};  // `spawn rank 3: exec "./train": No such file or directory (ENOENT)`
};

// A worker ended: exactly once for each that started, unless StartFailed speaks for it.
struct WorkerExited {
  int local_rank = 0;
  pid_t pid = 0;
  ExitStatus status{};
  TimePoint at{};
  bool was_told_to_stop = false;  // BeginStop, Stop, KillNow or a failed start came before its end
};

// What the user is told of at once, in one line. Some worker has not begun its program for long:
// the program's file system does not answer. Or the grace is over and a worker, or what it left
// behind, still runs: "rank 3 (pid 71) did not end within 30 s of SIGTERM: killed"; SIGKILL
// follows. Or they live on some seconds past SIGKILL.
struct WorkerNotice {
  std::string text;
};

// Processes of the workers live on unkillable_after past SIGKILL: the kernel holds them, or they
// belong to somebody else. GroupEmpty follows all the same; no further worker should be started
// here.
struct Unkillable {
  std::string text;
};

// No process of any worker is left, adopted ones in sessions of their own included.
struct GroupEmpty {};

using WorkerEvent =
    std::variant<WorkerStarted, StartFailed, WorkerExited, WorkerNotice, Unkillable, GroupEmpty>;

struct WorkerGroupOptions {
  ProcessBaseline baseline{};
  std::string job_mark{};  // what the workers' environment carries (leftovers.h); may be empty
  Guardian* guardian = nullptr;       // may be null; is told the sessions, outlives the group
  const JobCgroup* cgroup = nullptr;  // may be null; where workers are born, outlives the group
  Duration leftover_grace = std::chrono::seconds(30);  // for what a worker leaves behind
  Duration keep_children{0};  // what a worker leaves that ended with 0 may go on for so long
  bool use_pidfd = true;
  Duration unkillable_after = std::chrono::seconds(60);  // SIGKILL until it is given up
  Duration slow_start_after = std::chrono::seconds(30);  // without a program: WorkerNotice
  std::function<bool()> is_spawn_held_for_test{};        // StartSequence; may be null
};

// One object per process: it reaps all children. Lives on the io_context's one thread, which forks
// and must live as long as the agent. Events come on that thread, never from inside Start(); the
// handler may call anything here.
class WorkerGroup {
 public:
  using Options = WorkerGroupOptions;
  using EventHandler = std::function<void(const WorkerEvent&)>;

  WorkerGroup(boost::asio::io_context& io, Options options, EventHandler handler);
  // Kills what still runs and reaps the workers that end within a second; the guardian sees to the
  // others.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Starts one worker per turn of the io_context, so that a signal or a Stop in between is served;
  // the second and those after it once the first has become its program.
  // REQUIRES: is_empty(), and `specs` is not.
  void Start(std::vector<WorkerSpec> specs);

  // Sends `signal` to every worker, SIGTERM to what else is in its process group when the worker
  // has ended or half of `grace` is over, and SIGKILL to what is left after `grace`
  // (worker_stop.h); what is stopped is continued (SIGCONT). Workers not started yet never are.
  // Again: the earlier end of grace counts. GroupEmpty follows, unless is_empty().
  // `have_it`: they got the signal from elsewhere, and are not sent it.
  void Stop(int signal, Duration grace, bool have_it = false);
  // SIGKILL to all, now.
  void KillNow();

  // Passes SIGUSR1 or the like to each worker itself: its helpers may not have a handler and would
  // die.
  void Relay(int signal);
  // Stop follows, as soon as it is known who else sends the signal. No further worker is started,
  // and one that ends from here on counts as told to stop.
  void BeginStop(Duration grace);
  // Stops (SIGSTOP: a group without a terminal ignores SIGTSTP) or continues all process groups.
  // The time between does not count against a grace.
  void Suspend();
  void Resume();

  // True before Start and from GroupEmpty on.
  bool is_empty() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_WORKER_GROUP_H_
