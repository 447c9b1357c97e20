// Several processes read at once, by a deadline, also where the kernel holds one of them back.
#ifndef DDPRUN_LAUNCHER_DUMP_PROCESS_READING_H_
#define DDPRUN_LAUNCHER_DUMP_PROCESS_READING_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/dump/stack_reader.h"
#include "launcher/dump/worker_server.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct ProcessReading {
  StackResult stack;
  std::string status;           // of /proc: status, wchan, syscall, limits, for a file
  std::string command;          // as it may be shown; empty: not permitted, not asked for
  std::string environment;      // likewise
  FlightRecords torch_flights;  // where the worker's own server tells them
};

struct ReadingWishes {
  StackTools tools;
  bool wants_facts = false;  // status, command, environment; else stacks alone
};

// In the order of `pids`. A few at a time, by threads of its own; each process gets its share of
// the time. Where there is no thread left, the caller's does the work. Returns a few seconds after
// the deadline at the latest: what does not answer until then is told as that, and its thread is
// left behind. Any thread that may wait as long.
std::vector<ProcessReading> ReadProcesses(const std::vector<pid_t>& pids, TimePoint deadline,
                                          const ReadingWishes& wishes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_PROCESS_READING_H_
