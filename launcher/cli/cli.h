// From argv and the environment to what ddprun is asked to do.
#ifndef DDPRUN_LAUNCHER_CLI_CLI_H_
#define DDPRUN_LAUNCHER_CLI_CLI_H_

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cli/option_table.h"
#include "rendezvous/base/version.h"

namespace ddprun::launcher {

struct CommandLine {
  // Not empty: what --help, --version or the like print, and nothing else is there.
  std::string print;
  const CommandRow* command = nullptr;  // nullptr: a program is launched
  std::string subject;                  // of the command; empty: it has none
  GivenOptions given;                   // of several with one name the last
  std::vector<std::string> program;     // the program and its arguments
};

// Reads `args` (without argv[0]) by CLI11, which nothing else calls. A command is one as the first
// word only. Otherwise the program begins at the first word that is neither an option nor an
// option's value, or after `--`; what follows is never looked at. A long option may be cut short as
// long as only one begins so. An error is InvalidArgument and one line: an unknown option is told
// the nearest one.
absl::StatusOr<CommandLine> ReadCommandLine(std::span<const std::string> args);

// No line of these is wider than 80 columns. The first: all of a command, or the commands and the
// commonest options of ddprun itself (nullptr). The second: all of ddprun itself.
std::string HelpText(const CommandRow* command);
std::string FullHelpText();
std::string VersionText();

// A help, the version, a completion: print `text` on stdout and exit 0.
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
  TrustFiles trust;
  std::string on_bad_node;  // for a shell; empty: none
};

// `ddprun bench dp-ddp`
struct BenchOptions {
  std::vector<int> ranks = {1, 2, 4};  // ascending, each once, the first is 1
  Duration seconds_per_row = std::chrono::seconds(3);
  bool is_on_gpus = false;
  bool is_json = false;
  std::string json_file;  // empty: none
  std::string html_file;
  std::vector<std::string> warnings;  // of the command line, a line each
};

// `ddprun status`, `top`, `list`, `stop`, `logs`, `dump`: what a running job is asked.
struct AskOptions {
  enum class What { kStatus, kTop, kList, kStop, kLogs, kDump };
  What what = What::kStatus;
  std::string job;                      // its id; empty: the only one
  std::optional<Endpoint> coordinator;  // asked in place of an agent on this machine
  TrustFiles trust;                     // for that
  bool is_json = false;
  rendezvous::StopHow stop_how = rendezvous::StopHow::kGracefully;
  std::optional<int> rank;
  bool follows = false;
  std::vector<int> ranks;             // empty: all
  std::string directory;              // empty: the working directory
  std::vector<std::string> warnings;  // of the command line, a line each
};

// `ddprun check`
struct CheckOptions {
  LaunchConfig job;  // without a program
  double tolerance = 1.5;
  bool is_json = false;
};

// `ddprun token new`
struct NewTokenOptions {};

using ParseResult = std::variant<LaunchConfig, PrintText, DoctorOptions, CoordinatorOptions,
                                 BenchOptions, AskOptions, CheckOptions, NewTokenOptions>;

// Reads the command line, the options' variables, the site's file and a cluster's variables. An
// error is the user's (exit code 2) and one line without "ddprun: error: " in front; no line, where
// another task of a Slurm step tells it. Nothing is printed or looked up here; ResolveProgram
// (program.h) tells whether the program exists.
absl::StatusOr<ParseResult> ParseCommandLine(int argc, const char* const* argv,
                                             const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_CLI_H_
