// An agent with its guardian in a process of its own, which a test may kill.
#ifndef DDPRUN_TESTS_LAUNCHER_PROCESS_AGENT_FIXTURE_H_
#define DDPRUN_TESTS_LAUNCHER_PROCESS_AGENT_FIXTURE_H_

#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/process/leftovers.h"
#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/files.h"

namespace ddprun::testing {

// A toy_agent.
class Agent {
 public:
  // `wrapper`: a command that executes its arguments, or nothing.
  explicit Agent(std::vector<std::string> workers, std::vector<std::string> env = {},
                 std::vector<std::string> wrapper = {}) {
    launcher::SpawnRequest request;
    const std::string toy = ToyWorker();
    request.argv = std::move(wrapper);
    request.argv.push_back(toy.substr(0, toy.rfind('/')) + "/toy_agent");
    request.executable = request.argv[0];
    for (std::string& word : workers) request.argv.push_back(std::move(word));
    request.env = TestEnvironment(std::move(env));
    request.stdout_fd = output_.write_end();
    const SpawnResult result = Spawn(request, TestBaseline());
    REQUIRE_MESSAGE(result.ok(), result.text);
    pid_ = result.pid;
    guardian_ = NumberAfter(output_.ReadUntil("started "), "guardian ");
    REQUIRE(guardian_ > 0);
  }
  // Waits for the guardian too, whichever it is by now: whoever runs the test may kill what it
  // leaves, and then nobody removes the job's cgroup.
  ~Agent() {
    Kill();
    const std::string text = output_.ReadAll();
    const size_t last = text.rfind("started another (pid ");
    if (last != std::string::npos) guardian_ = NumberAfter(text.substr(last), "(pid ");
    WaitUntil([this] { return !IsRunning(guardian_); });
  }

  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    launcher::ReapChild(pid_);
    pid_ = 0;
  }
  int WaitForExit() {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
    pid_ = 0;
    return info.si_status;
  }
  std::string TextUntil(const std::string& word) { return output_.ReadUntil(word); }
  // The number after `word`, once the line that holds it has come whole.
  pid_t Await(const std::string& word) {
    size_t line_end = std::string::npos;
    std::string text = output_.ReadUntil(word);
    if (const size_t at = text.find(word); at != std::string::npos) {
      text = output_.ReadUntil("\n", at);
      line_end = text.find('\n', at);
    }
    return line_end == std::string::npos ? -1 : NumberAfter(text, word);
  }

  pid_t guardian() const { return guardian_; }
  pid_t pid() const { return pid_; }

 private:
  CapturePipe output_;
  pid_t pid_ = 0;
  pid_t guardian_ = 0;
};

inline bool AllGone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    if (IsRunning(pid)) return false;
  }
  return true;
}

// The job's mark as the worker has it.
inline std::string MarkOf(pid_t pid) {
  const std::string environment = testing::ReadFile("/proc/" + std::to_string(pid) + "/environ");
  const std::string variable = std::string(launcher::kJobMarkVariable) + "=";
  const size_t at = environment.find(variable);
  if (at == std::string::npos) return {};
  return environment.c_str() + at + variable.size();
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PROCESS_AGENT_FIXTURE_H_
