// What stands ready before a round's workers are started: their logs and folders, and how each of
// them is called.
#ifndef DDPRUN_LAUNCHER_AGENT_WORKER_FILES_H_
#define DDPRUN_LAUNCHER_AGENT_WORKER_FILES_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/agent/agent.h"
#include "launcher/logs/log_router.h"
#include "launcher/process/worker_env.h"
#include "launcher/process/worker_group.h"

namespace ddprun::launcher {

struct PreparedWorkers {
  std::vector<WorkerSpec> specs;
  std::map<int, WorkerStdio> stdio;  // by local rank: the descriptors that `specs` borrow
};

// Begins a round of `logs` and opens the channels of all its workers. `touch` is told of each
// folder before it is made. Makes folders and files: not on the agent's thread. An error is this
// machine's.
absl::StatusOr<PreparedWorkers> MakeWorkerFiles(
    const AgentSetup& setup, const WorkerEnvInput& shared, LogRouter& logs,
    const std::function<void(const std::string& folder)>& touch);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_WORKER_FILES_H_
