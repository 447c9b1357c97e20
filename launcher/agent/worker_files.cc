#include "launcher/agent/worker_files.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

absl::StatusOr<PreparedWorkers> MakeWorkerFiles(
    const AgentSetup& setup, const WorkerEnvInput& shared, LogRouter& logs,
    const std::function<void(const std::string& folder)>& touch) {
  const rendezvous::Assignment& assignment = shared.assignment;
  logs.BeginRound(assignment.restart_count);
  PreparedWorkers prepared;
  for (int local_rank = 0; local_rank < setup.config.workers_per_node; ++local_rank) {
    const int rank = assignment.first_rank + local_rank;
    const std::string run_folder = logs.run_folder();
    if (!run_folder.empty()) {
      touch(absl::StrCat(run_folder, "/attempt_", assignment.restart_count, "/", local_rank));
    }
    absl::StatusOr<WorkerStdio> stdio = logs.OpenWorker(local_rank, rank);
    if (!stdio.ok()) return stdio.status();
    prepared.specs.push_back({.local_rank = local_rank,
                              .rank = rank,
                              .process = {.executable = setup.program.executable,
                                          .argv = ArgvOfWorker(setup.program, local_rank),
                                          .env = BuildWorkerEnv(setup.environment.variables, shared,
                                                                local_rank, stdio->error_file),
                                          .stdout_fd = stdio->stdout_fd.get(),
                                          .stderr_fd = stdio->stderr_fd.get(),
                                          .cpus = setup.placement.CpusOf(local_rank)}});
    prepared.stdio[local_rank] = *std::move(stdio);
  }
  return prepared;
}

}  // namespace ddprun::launcher
