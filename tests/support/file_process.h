// A process in which the cases of one source file run.
#ifndef DDPRUN_TESTS_SUPPORT_FILE_PROCESS_H_
#define DDPRUN_TESTS_SUPPORT_FILE_PROCESS_H_

#include <signal.h>

#include <chrono>
#include <functional>
#include <string>

namespace ddprun::testing {

// While it lives, SIGTERM, SIGINT and SIGHUP wait for RunInProcess to take them. A signal that this
// program was started to ignore stays ignored.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // SIGCHLD and those that end this program.
  const sigset_t& held() const { return held_; }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t held_;
  sigset_t before_;
};

struct ProcessEnd {
  std::string start_error;  // why there was no process; all else is empty then
  int wait_status = 0;
  std::chrono::duration<double> time{0};
  bool has_reached_limit = false;
  int stop_signal = 0;  // that this program got meanwhile, and has to end by
};

// Forks; the child runs `body` and exits with its result, by exit(). It leads a process group, dies
// with its parent, and has a TMPDIR of its own. What it prints is copied to stdout below `title`
// when it has ended, unless `is_streaming`. It is killed at `limit` and at a signal that ends this
// program. What is left of its process group is killed in any case. Where no folder or file can be
// made for it, there is no process.
// REQUIRES: the caller has no other thread.
ProcessEnd RunInProcess(const HeldSignals& signals, std::chrono::duration<double> limit,
                        bool is_streaming, const std::string& title,
                        const std::function<int()>& body);

// "exited with status 3", "ended by SIGSEGV", ...
std::string DescribeWaitStatus(int wait_status);
// "SIGTERM"
std::string SignalName(int number);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_FILE_PROCESS_H_
