// The stack of a process that runs no code of ours, by whatever this machine has for it; the
// process runs on.
#ifndef DDPRUN_LAUNCHER_DUMP_STACK_READER_H_
#define DDPRUN_LAUNCHER_DUMP_STACK_READER_H_

#include <sys/types.h>

#include <string>

#include "launcher/dump/roll_call.h"
#include "launcher/dump/stack_text.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct StackTools {
  std::string path;  // where tools are looked for: folders, as $PATH has them
  // py-spy may also stand beside the worker's own Python. Only there, and never of another user.
  bool looks_beside_worker = true;
};

struct StackResult {
  Stack stack;               // no threads: none could be read
  std::string kernel_wait;   // KernelWait; empty: it runs, or nothing is told
  std::string kernel_stack;  // /proc/PID/stack, which only root may read
  // Why there is no stack, and what may be done; or what went wrong before another tool read it.
  std::string problem;
  bool is_alive = true;     // false: it has ended, before or meanwhile
  bool is_stopped = false;  // by a signal, before any tool came
};

// Reads the stack of `pid`, a worker: with py-spy where it is a Python program, then by PyTorch's
// worker server, eu-stack, gdb; the first that tells of the main thread wins. Otherwise the
// kernel's word has to do. Returns at the latest a second or two after the deadline, unless the
// kernel holds back /proc (proc_facts.h): hence on a thread that may be left behind.
//
// The process runs on afterwards as it did before. A tool that is killed leaves it at once, but its
// own SIGSTOP (PTRACE_ATTACH) may stay behind: that is undone, unless the process stood still when
// we came.
StackResult ReadStack(pid_t pid, TimePoint deadline, const StackTools& tools);

// For the roll call: where no tool could read, where the kernel says it waits.
RankStack ToRankStack(int rank, const StackResult& result);

// Everything that was found out, for a file.
std::string ResultText(const StackResult& result);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_STACK_READER_H_
