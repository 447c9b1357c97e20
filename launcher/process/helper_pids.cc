#include "launcher/process/helper_pids.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace ddprun::launcher {
namespace {

struct Helper {
  pid_t pid;
  bool is_held;  // by the kernel: it lives as long as its process group
};

// Of the process, as its children are.
struct State {
  std::mutex mutex;
  std::vector<Helper> helpers;
};

State& TheState() {
  static State* const state = new State;  // threads may outlive main()
  return *state;
}

}  // namespace

std::unique_lock<std::mutex> HoldHelpers() { return std::unique_lock(TheState().mutex); }

void AddHelper(pid_t pid) { TheState().helpers.push_back({pid, false}); }

std::vector<pid_t> Helpers() {
  std::vector<Helper>& helpers = TheState().helpers;
  std::erase_if(helpers, [](const Helper& helper) {
    return helper.is_held && kill(-helper.pid, 0) != 0 && errno == ESRCH;
  });
  std::vector<pid_t> pids;
  for (const Helper& helper : helpers) pids.push_back(helper.pid);
  return pids;
}

bool IsHelper(pid_t pid) {
  const auto hold = HoldHelpers();
  return std::ranges::any_of(TheState().helpers, [pid](const Helper& helper) {
    return helper.pid == pid && !helper.is_held;
  });
}

void RemoveHelper(pid_t pid, bool is_held) {
  {
    const auto hold = HoldHelpers();
    std::erase_if(TheState().helpers, [pid](const Helper& helper) { return helper.pid == pid; });
    if (is_held) TheState().helpers.push_back({pid, true});
  }
  kill(getpid(), SIGCHLD);
}

}  // namespace ddprun::launcher
