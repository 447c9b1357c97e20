#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/check/check_stage.h"
#include "launcher/commands/commands.h"

namespace ddprun::launcher {

int RunCheck(CheckOptions options, Environment environment, const ProcessBaseline& baseline) {
  LaunchConfig& job = options.job;
  job.is_check = true;
  job.hang_timeout = Duration{0};  // every wait of the check has a deadline of its own
  // A process that is stopped or hangs in a driver does not hear SIGTERM.
  job.shutdown_timeout = std::chrono::seconds(1);
  std::erase_if(environment.variables, [](const std::string& variable) {
    // The ranks meet at the agent's store.
    return variable.starts_with("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=");
  });
  if (!environment.Get("OMP_NUM_THREADS")) environment.variables.push_back("OMP_NUM_THREADS=1");
  const Program program = {.executable = "/proc/self/exe",
                           .argv = {"ddprun", kCheckRankArgument, absl::StrCat(options.tolerance),
                                    options.is_json ? "json" : "text"},
                           .title = "ddprun check"};
  return LaunchProgram(std::move(job), program, std::move(environment), baseline);
}

}  // namespace ddprun::launcher
