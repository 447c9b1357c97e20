// From argv and the environment to a LaunchConfig.
#ifndef DDPRUN_LAUNCHER_CLI_CLI_H_
#define DDPRUN_LAUNCHER_CLI_CLI_H_

#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"

namespace ddprun::launcher {

// --help, --version: print `text` on stdout and exit 0.
struct PrintText {
  std::string text;
};

// `ddprun doctor`
struct DoctorOptions {
  bool requires_cuda = false;
  bool is_json = false;
};

// `ddprun coordinator`
struct CoordinatorOptions {
  Endpoint bind;       // no host: every address of this machine
  std::string run_id;  // empty: that of the first node that joins
};

using ParseResult = std::variant<LaunchConfig, PrintText, DoctorOptions, CoordinatorOptions>;

// Reads the command line and the PET_ variables. An error is the user's (exit code 2) and one
// line without "ddprun: error: " in front. Nothing is printed or looked up here; ResolveProgram
// (program.h) tells whether the program exists.
absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_CLI_H_
