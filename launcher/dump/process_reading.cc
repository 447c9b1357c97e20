#include "launcher/dump/process_reading.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/dump/proc_facts.h"
#include "launcher/dump/shown_environment.h"
#include "launcher/dump/worker_server.h"
#include "launcher/process/worker_env.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// Tools are busy processes, gdb a large one, and the workers' machine has other work.
constexpr size_t kAtOnce = 4;
// Beyond the deadline: what ReadStack takes for a tool that it kills.
constexpr std::chrono::seconds kPatience{3};
constexpr size_t kMaxFile = 64 * 1024;
constexpr size_t kMaxEnvironment = 1 << 20;

// What the threads share, and one that is left behind keeps alive.
struct Work {
  std::vector<pid_t> pids;
  TimePoint deadline;
  ReadingWishes wishes;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ProcessReading> readings;  // guarded by mutex, as what follows
  size_t next = 0;                       // of pids, that nobody has begun
  size_t done = 0;
};

std::string StatusText(pid_t pid) {
  std::string text;
  for (const char* name : {"status", "wchan", "syscall", "limits"}) {
    const auto file = ReadProcFile(pid, name, kMaxFile);
    absl::StrAppend(&text, "== ", name, " ==\n",
                    file.ok() ? *file : std::string(file.status().message()), "\n\n");
  }
  return text;
}

// What may be held back stands at the end (proc_facts.h).
void ReadOne(Work& work, size_t i, TimePoint deadline) {
  const pid_t pid = work.pids[i];
  if (work.wishes.wants_facts && pid > 0) {
    std::string status = StatusText(pid);
    const std::lock_guard lock(work.mutex);
    work.readings[i].status = std::move(status);
  }
  StackResult stack = ReadStack(pid, deadline, work.wishes.tools);
  const bool is_alive = stack.is_alive;
  {
    const std::lock_guard lock(work.mutex);
    work.readings[i].stack = std::move(stack);
  }
  if (!work.wishes.wants_facts || !is_alive) return;
  std::string command = ShownCommand(ReadProcFile(pid, "cmdline", kMaxFile).value_or(""));
  const std::string variables = ReadProcFile(pid, "environ", kMaxEnvironment).value_or("");
  std::string environment = ShownEnvironment(variables);
  const std::string server = VariableIn(variables, kWorkerServerVar);
  absl::StatusOr<FlightRecords> flights = FlightRecords();
  if (!server.empty()) flights = AskFlightRecords(server, {pid}, deadline);
  const std::lock_guard lock(work.mutex);
  work.readings[i].torch_flights = flights.value_or(FlightRecords());
  work.readings[i].command = std::move(command);
  work.readings[i].environment = std::move(environment);
}

void ReadAll(Work& work) {
  for (;;) {
    size_t i = 0;
    TimePoint deadline;
    {
      const std::lock_guard lock(work.mutex);
      if (work.next == work.pids.size()) return;
      i = work.next++;
      // Rounds that are still to come share the time that is left.
      const size_t rounds = (work.pids.size() - i + kAtOnce - 1) / kAtOnce;
      const TimePoint now = SteadyNow();
      deadline = now + std::max(work.deadline - now, Duration(0)) / rounds;
    }
    ReadOne(work, i, deadline);
    const std::lock_guard lock(work.mutex);
    ++work.done;
    work.changed.notify_all();
  }
}

}  // namespace

std::vector<ProcessReading> ReadProcesses(const std::vector<pid_t>& pids, TimePoint deadline,
                                          const ReadingWishes& wishes) {
  const auto work = std::make_shared<Work>();
  work->pids = pids;
  work->deadline = deadline;
  work->wishes = wishes;
  ProcessReading none;
  none.stack.problem = "stack: the kernel does not answer for this process";
  work->readings.assign(pids.size(), none);
  size_t started = 0;
  while (started < std::min(kAtOnce, pids.size())) {
    std::thread thread = StartQuietThread([work] { ReadAll(*work); });
    if (!thread.joinable()) break;
    thread.detach();
    ++started;
  }
  if (started == 0) ReadAll(*work);
  std::unique_lock lock(work->mutex);
  work->changed.wait_until(lock, ToSteady(deadline + kPatience),
                           [&] { return work->done == pids.size(); });
  return work->readings;
}

}  // namespace ddprun::launcher
