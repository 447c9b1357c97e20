// ddprun: parse, run what was asked for, return the exit code.
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "launcher/check/check_rank.h"
#include "launcher/check/check_stage.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/program.h"
#include "launcher/cli/this_process.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/terminal.h"
#include "launcher/commands/trust.h"
#include "launcher/doctor/doctor.h"
#include "launcher/doctor/gpu_probe.h"
#include "launcher/doctor/gpu_probe_child.h"
#include "launcher/process/process_baseline.h"

using namespace ddprun::launcher;

namespace {

struct Run {
  const Environment& environment;
  const ProcessBaseline& baseline;

  int operator()(const PrintText& print) const { return Print(print.text); }
  int operator()(const DoctorOptions& doctor) const { return RunDoctor(doctor, environment); }
  int operator()(const CoordinatorOptions& options) const {
    return RunCoordinator(options, environment, baseline);
  }
  int operator()(const BenchOptions& options) const { return RunBench(options, environment); }
  int operator()(const AskOptions& options) const { return RunAsk(options, environment); }
  int operator()(const NewTokenOptions&) const { return PrintNewToken(); }
  int operator()(CheckOptions& options) const {
    return RunCheck(std::move(options), environment, baseline);
  }
  int operator()(LaunchConfig& config) const {
    return Launch(std::move(config), environment, baseline);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kProbeArgument) RunGpuProbe(argv[2]);
  if (argc > 1 && std::string_view(argv[1]) == kCheckRankArgument) {
    return RunCheckRank({argv + 2, argv + argc});
  }
  const ProcessBaseline baseline = RecordBaseline();
  const Environment environment = EnvironmentOfThisProcess();
  absl::StatusOr<ParseResult> parsed = ParseCommandLine(argc, argv, environment);
  if (!parsed.ok()) return Complain(parsed.status(), ExitCodeOfStartError(parsed.status()));
  return std::visit(Run{environment, baseline}, *parsed);
}
