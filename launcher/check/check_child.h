// Runs a program to its end or a deadline, and keeps what it wrote.
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_CHILD_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_CHILD_H_

#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct ChildProgram {
  std::vector<std::string> argv;  // argv[0] is a path
  std::vector<std::string> environment;
  Duration limit{0};
  bool keeps_stderr = false;  // behind what it writes to stdout; else it is ours
  int end_signal = 0;         // what it gets when this process ends
};

struct ChildEnd {
  std::string text;    // at most 1 MiB
  int exit_code = -1;  // as a shell would say it; -1: it did not end by itself
  // "was killed by signal 9 (SIGKILL)", "did not end within 12 s"; empty: it exited, with any code.
  std::string fault;
};

// Kills it at the deadline. REQUIRES: this process has one thread.
ChildEnd RunChild(const ChildProgram& program);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_CHILD_H_
