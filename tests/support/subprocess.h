// A real program under test: started with pipes, watched with deadlines, never left behind.
#ifndef DDPRUN_TESTS_SUPPORT_SUBPROCESS_H_
#define DDPRUN_TESTS_SUPPORT_SUBPROCESS_H_

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/files.h"  // IWYU pragma: export

namespace ddprun::testing {

// Long enough for a loaded machine; no test waits for it unless something is wrong.
inline constexpr std::chrono::seconds kPatience{60};

class Subprocess {
 public:
  struct Options {
    // Set on top of the test's own environment; an empty value removes the variable.
    std::map<std::string, std::string> env;
    std::string working_dir;
    // Runs inside this network namespace (a name under /run/netns); empty: the test's own.
    std::string netns;
    // Stands at /etc/hosts, in a mount namespace of the process's own; empty: the machine's own.
    std::string hosts_file;
    // Leaves stdout and stderr unread from the start: a console that stalls.
    bool is_stalled = false;
    // Likewise, until BeginReading().
    bool is_late = false;
  };

  // REQUIRES: argv[0] is an executable file. A failed start ends the test binary with a message.
  explicit Subprocess(std::vector<std::string> argv) : Subprocess(std::move(argv), Options()) {}
  Subprocess(std::vector<std::string> argv, Options options);
  // Kills the process (not its descendants) if it still runs.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  int pid() const { return pid_; }
  void Signal(int signal);
  void BeginReading();
  // The exit code, 128+n for signal n; none when it still runs after `patience`.
  std::optional<int> Wait(std::chrono::milliseconds patience = kPatience);
  // Whether stdout (or stderr) has come to hold `text`, waiting at most `patience`; false as soon
  // as the stream has ended without it.
  bool WaitForOut(const std::string& text, std::chrono::milliseconds patience = kPatience);
  bool WaitForErr(const std::string& text, std::chrono::milliseconds patience = kPatience);
  // What was written so far.
  std::string out() const;
  std::string err() const;
  // Everything, for a failed check's message.
  std::string Describe() const;

 private:
  struct Stream {
    int fd = -1;
    std::string text;
    bool is_closed = false;
  };
  void Read();
  bool WaitFor(const Stream& stream, const std::string& text, std::chrono::milliseconds patience);

  std::vector<std::string> argv_;
  int pid_ = -1;
  std::optional<int> exit_code_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Stream out_;  // guarded by mutex_ but for the fd
  Stream err_;
  int stop_pipe_[2] = {-1, -1};
  std::thread reader_;
};

// Waits until `condition()` holds, looking every few milliseconds; false after `patience`.
template <typename Condition>
bool Eventually(Condition condition, std::chrono::milliseconds patience = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Pids of processes whose environment holds NAME=value; zombies do not count.
std::vector<int> ProcessesWithEnv(const std::string& name, const std::string& value);
// A directory entry of Bazel's runfiles as an absolute path: Runfile("ddprun").
std::string Runfile(const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_SUBPROCESS_H_
