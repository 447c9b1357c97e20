// What the agent was started with and its workers must find again: signal mask, ignored signals,
// RLIMIT_NOFILE, RLIMIT_CORE and, where the agent changed its own, the OOM score.
//
// main() takes it first, before any thread and before any signal is touched; it never changes
// after.
#ifndef DDPRUN_LAUNCHER_PROCESS_PROCESS_BASELINE_H_
#define DDPRUN_LAUNCHER_PROCESS_PROCESS_BASELINE_H_

#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "process/signal_bits.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// What ends a process with a core dump. Kernels before 5.16 then kill every process that shares its
// memory: for a worker on its way to its program, the agent.
inline constexpr SignalBits kDumpingSignals =
    BitOf(SIGQUIT) | BitOf(SIGILL) | BitOf(SIGABRT) | BitOf(SIGFPE) | BitOf(SIGSEGV) |
    BitOf(SIGBUS) | BitOf(SIGSYS) | BitOf(SIGTRAP) | BitOf(SIGXCPU) | BitOf(SIGXFSZ);

struct ProcessBaseline {
  SignalBits blocked_signals = 0;
  SignalBits ignored_signals = 0;
  rlimit open_files{};
  rlimit core_size{};
  // Set when the agent lowered its own score (ProtectFromOomKiller).
  struct OomScores {
    int agent = 0;
    int workers = 0;  // what it was before
  };
  std::optional<OomScores> oom_scores{};
};

// Reads the state of the calling thread and process. Changes nothing.
ProcessBaseline RecordBaseline();

// Prepares the calling thread (and every thread it starts later) for an agent: blocks the signals
// that the agent receives through descriptors (AgentSignals and SIGCHLD); SIGPIPE is ignored;
// SIGCHLD gets its default action, because an inherited "ignore" would make the kernel reap our
// workers. Opens /dev/null for whichever of 0 to 2 is closed, so that no descriptor of ours lands
// there; an error is that this cannot be had.
absl::Status PrepareAgentProcess(const ProcessBaseline& baseline, SignalBits more_stop_signals = 0);

// Those of this process. None, with errno set, where /proc/self/fd cannot be read.
std::optional<std::vector<int>> OpenDescriptors();

struct DescriptorRoom {
  int64_t limit = 0;  // on open files
  int64_t taken = 0;  // of it
};

// Raises our limit on open files as far as we may (workers get the old one): a store serves every
// worker of the world. Makes the kernel's table of our descriptors large enough for `count` more.
// Call before the first thread: in a process with threads the kernel waits for an RCU grace period,
// 5 to 13 ms, at each doubling of the table (64 workers: twice).
DescriptorRoom ReserveDescriptors(int64_t count);

// The signals PrepareAgentProcess blocks besides SIGCHLD: INT TERM QUIT USR1 USR2 TSTP CONT, and
// HUP unless the agent was started with HUP ignored (nohup), and those that the user wants as well
// (--signals_to_handle).
SignalBits AgentSignals(const ProcessBaseline& baseline, SignalBits more_stop_signals = 0);
// A descriptor that tells of these signals, which are blocked. Never waits.
UniqueFd OpenSignalFd(SignalBits signals);
// The set of these numbers.
SignalBits BitsOf(const std::vector<int>& signals);

// No core dump of this process, or of one that it forks, is written or passed on: it holds a
// secret, or is about to. Workers have the old limit, where the baseline was recorded before.
void LeaveNoCore();

// Makes the agent a late choice of the OOM killer, where the rights suffice; workers keep the old
// score.
void ProtectFromOomKiller(ProcessBaseline& baseline);
// Gives the agent that score once more. The kernel sets a score for all processes that share their
// memory, and a worker on its way to its program shares the agent's (SpawnedChild).
void RestoreOomProtection(const ProcessBaseline& baseline);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PROCESS_BASELINE_H_
