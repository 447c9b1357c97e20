// Finds a running job and asks it, for the commands that do.
#ifndef DDPRUN_LAUNCHER_COMMANDS_ASK_JOB_H_
#define DDPRUN_LAUNCHER_COMMANDS_ASK_JOB_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/cli.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::launcher {

// An agent of this machine, and what it says of its job.
struct FoundJob {
  std::string socket_path;
  JobView job;
  std::vector<std::string> other_sockets{};  // of its other agents here
  std::vector<std::string> troubles{};       // of agents here that do not answer: of what job?
};

// ask(0), ..., ask(count - 1) at the same time: what does not answer holds up nothing else.
void AtOnce(size_t count, const std::function<void(size_t i)>& ask);

// This user's jobs here, each once, whatever number of its agents run here. Those that do not
// answer are told of in `troubles`.
std::vector<FoundJob> FindJobs(std::vector<std::string>& troubles);

// The one that `job_id` names, or the only one. An error says what there is in its place.
absl::StatusOr<FoundJob> ChooseJob(const std::string& job_id);

// The job of that agent once more.
absl::StatusOr<FoundJob> AskAgain(const std::string& socket_path);

// The job by its coordinator's and its nodes' words, from anywhere.
// UNAUTHENTICATED: it is of another job than `identity`.
absl::StatusOr<JobView> LookFromOutside(
    const Endpoint& coordinator, const std::shared_ptr<const rendezvous::TlsIdentity>& identity);

// One line for `ddprun list`: "job1: running: round 1, 1 node, ...". Of several of `jobs` with one
// id each with its socket's path, which names it alone.
std::string JobLine(const FoundJob& found, const std::vector<FoundJob>& jobs);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_ASK_JOB_H_
