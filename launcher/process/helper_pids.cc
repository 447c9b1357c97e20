#include "launcher/process/helper_pids.h"

namespace ddprun::launcher {
namespace {

// Of the process, as its children are.
struct State {
  std::mutex mutex;
  std::vector<pid_t> pids;
};

State& TheState() {
  static State* const state = new State;  // threads may outlive main()
  return *state;
}

}  // namespace

std::unique_lock<std::mutex> HoldHelpers() { return std::unique_lock(TheState().mutex); }

void AddHelper(pid_t pid) { TheState().pids.push_back(pid); }

const std::vector<pid_t>& Helpers() { return TheState().pids; }

void RemoveHelper(pid_t pid) {
  const auto held = HoldHelpers();
  std::erase(TheState().pids, pid);
}

}  // namespace ddprun::launcher
