// The token of a step of Slurm whose user has given none.
//
// Slurm has no channel of its own that every step has and that others cannot read: what srun hands
// on is fixed when the step begins, and PMI is there only where --mpi asks for it. All nodes of a
// step start in one folder, though, and where that is on a file system of the cluster a file in it,
// mode 0600, is theirs alone: the node that is first makes it, by a link, which a server decides in
// one step, so that nobody waits and no cache answers.
#ifndef DDPRUN_LAUNCHER_COMMANDS_STEP_TOKEN_H_
#define DDPRUN_LAUNCHER_COMMANDS_STEP_TOKEN_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

// Whether the folder is on a file system of those that clusters' nodes share.
bool IsSharedByCluster(const char* folder);

class StepToken {
 public:
  // Makes the token, or reads the one of the node that was first. An error: that node's file cannot
  // be believed, and without it this node would be none of the job's. From before there is a token
  // this process leaves no core dump (LeaveNoCore).
  static absl::StatusOr<std::unique_ptr<StepToken>> Take(
      const LaunchConfig& config, const Environment& environment,
      bool (*is_shared)(const char* folder) = IsSharedByCluster);
  // The node that has made the file removes it.
  ~StepToken();
  StepToken(const StepToken&) = delete;
  StepToken& operator=(const StepToken&) = delete;

  // nullopt: this is no job of one step, its folder is not the cluster's or takes no file that only
  // this user may read, or rank 0's worker serves the store, which no token guards.
  const std::optional<std::string>& text() const { return text_; }
  // That this node has made, and removes; "": another one has, or there is none.
  std::string own_file() const { return is_ours_ ? file_ : ""; }

 private:
  StepToken() = default;

  std::string file_;
  bool is_ours_ = false;
  std::optional<std::string> text_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_STEP_TOKEN_H_
