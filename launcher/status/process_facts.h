// What /proc tells of a process, and of a worker's processes together over time. [pure]
//
// A program chooses its name and may write nearly anything: what does not read as the kernel writes
// it gives nothing.
#ifndef DDPRUN_LAUNCHER_STATUS_PROCESS_FACTS_H_
#define DDPRUN_LAUNCHER_STATUS_PROCESS_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Of /proc/PID/stat.
struct ProcessStat {
  int pid = 0;
  int parent = 0;
  int64_t start_ticks = 0;  // since the machine's boot: with the pid, who it is
  // CPU time, user and system, of all its threads and of its children that it has waited for.
  int64_t cpu_ticks = 0;
  int64_t resident_pages = 0;  // of old kernels exact, of new ones rounded for each CPU
  int threads = 0;
  char state = '?';  // 'R', 'S', 'D', 'Z', ...
  friend bool operator==(const ProcessStat&, const ProcessStat&) = default;
};
std::optional<ProcessStat> ParseProcessStat(std::string_view text);

// Of /proc/PID/status.
struct ProcessStatus {
  std::optional<int64_t> resident_bytes;  // VmRSS; a kernel thread or a zombie has none
  std::optional<int> threads;
  char state = '?';
  friend bool operator==(const ProcessStatus&, const ProcessStatus&) = default;
};
ProcessStatus ParseProcessStatus(std::string_view text);
// The rest of its line that begins with `name` ("State:"), blanks and all; empty: there is none.
std::string_view StatusLine(std::string_view text, std::string_view name);

// Of /proc/PID/wchan: the function of the kernel in which the process waits, as a C identifier of
// 64 characters at most. Empty: nowhere, or the kernel does not tell.
std::string ParseWaitChannel(std::string_view text);

// Of /proc/PID/schedstat: nanoseconds in which the main thread could run and had no core. Empty:
// the kernel does not count them.
std::optional<int64_t> ParseCoreWait(std::string_view text);

// Of /proc/PID/task/TID/children: `most` at the utmost.
std::vector<int> ParseChildren(std::string_view text, size_t most);

// A worker and what it has started, at one moment.
struct ProcessSample {
  TimePoint at{};
  int pid = 0;
  int64_t start_ticks = 0;
  int64_t cpu_ticks = 0;  // of all of them
  std::vector<int> pids;  // the worker first
  // Of the one that holds most memory: the program where the worker is a shell around it.
  int64_t resident_bytes = 0;
  int main_pid = 0;  // that one
  int threads = 0;
  char state = '?';
  std::string wait;
  std::optional<int64_t> core_wait_ns;  // ParseCoreWait, since its start
  friend bool operator==(const ProcessSample&, const ProcessSample&) = default;
};

// Makes rates of the samples of one worker. Another process under the same rank begins anew.
class ProcessRates {
 public:
  // `cpus`: of the machine; a worker uses no more. What is more had been used before by processes
  // that no sample saw.
  ProcessRates(int64_t ticks_per_second, int cpus);

  void Add(const ProcessSample& sample);

  // Cores in use between the last two samples. None before the second.
  std::optional<double> cpu() const { return cpu_; }
  // RankView::core_wait_share, between the last two samples.
  std::optional<double> core_wait_share() const { return core_wait_share_; }
  // Since it last used CPU time; 0 while it does. A thread that wakes ten times a second to look at
  // something uses a thousandth of a core: less than kIdleCores counts as none. None before the
  // second sample.
  std::optional<double> IdleSeconds(TimePoint now) const;

  static constexpr double kIdleCores = 0.01;

 private:
  const double ticks_per_second_;
  const double cpus_;
  std::optional<ProcessSample> last_;
  std::optional<double> cpu_;
  std::optional<double> core_wait_share_;
  TimePoint busy_at_{};  // the last sample that saw it use CPU time, or the first
};

// The fields of a rank that the kernel tells of; one that has ended a step was not idle then.
// `sample` null: its process has gone. REQUIRES: the rank has its counts (RankHistory::Fill).
void FillRank(const ProcessSample* sample, const ProcessRates& rates, TimePoint now,
              RankView& rank);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_PROCESS_FACTS_H_
