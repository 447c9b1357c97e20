// ddprun: parse, build, run, return the exit code.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/test_hooks.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/output_options.h"
#include "launcher/cli/program.h"
#include "launcher/doctor/doctor.h"
#include "launcher/doctor/gpu_probe.h"
#include "launcher/doctor/gpu_probe_child.h"
#include "launcher/doctor/host_facts.h"
#include "launcher/doctor/worker_count.h"
#include "launcher/logs/log_level.h"
#include "launcher/logs/log_router.h"
#include "launcher/logs/logger.h"
#include "launcher/placement/allowed_cpus.h"
#include "launcher/placement/placement.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/guardian.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process_baseline.h"
#include "launcher/process/session_table.h"
#include "launcher/report/whole_file.h"

namespace {

using namespace ddprun::launcher;

int Complain(const absl::Status& error, int exit_code) {
  std::fprintf(stderr, "ddprun: error: %s\n", std::string(error.message()).c_str());
  return exit_code;
}

static_assert(SessionTable::kCapacity >= kMaxWorkersPerNode);

// Raises the limit on open files, and asks now whether it will do rather than with half of the
// workers started.
absl::Status ProvideDescriptors(const LaunchConfig& config) {
  constexpr int64_t kOwn = 64;
  // A pidfd and both ends of the stderr pipe; with files a stdout pipe and the two files, too.
  const bool has_files = !config.redirects.is_none() || !config.tee.is_none();
  const int64_t each = has_files ? 7 : 3;
  const int64_t needed = kOwn + each * config.workers_per_node;
  const DescriptorRoom room = ReserveDescriptors(needed);
  if (room.limit - room.taken >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the limit on open files is ", room.limit, ", and ", room.taken,
                   " are open already: ddprun needs ", needed, " more, ", kOwn, " for itself and ",
                   each, " for each worker; raise the limit (ulimit -n)"));
}

// How many workers, where, and with which GPU. Asks the driver, but only when an option needs it.
absl::StatusOr<Placement> PlaceWorkers(const Environment& environment, LaunchConfig& config) {
  Placement placement;
  const bool is_counted = config.workers_by == WorkersBy::kNumber;
  if (!is_counted || config.numa_binding) {
    const GpuReport report = ProbeGpus(ProbeScope::kGpus);
    const DriverFacts driver = ReadDriverFacts(environment);
    const absl::Status status =
        is_counted ? absl::OkStatus()
                   : ResolveWorkers(report, driver, environment.machine.cpu_count, config);
    if (!status.ok()) return status;
    if (config.numa_binding) {
      absl::StatusOr<std::vector<CpuSet>> cpus =
          BindToCpus(config, report, driver, SysRootForTest(), AllowedCpus());
      if (!cpus.ok()) return cpus.status();
      placement.cpus = *std::move(cpus);
    }
  }
  if (config.virtual_local_rank) {
    absl::StatusOr<std::vector<std::string>> devices =
        VirtualDevices(config, environment.Get("CUDA_VISIBLE_DEVICES"));
    if (!devices.ok()) return devices.status();
    placement.devices = *std::move(devices);
  }
  return placement;
}

int Launch(LaunchConfig config, const Environment& environment) {
  const absl::StatusOr<Program> program =
      ResolveProgram(config.program, config.args, config.run_as, environment);
  if (!program.ok()) return Complain(program.status(), ExitCodeOfStartError(program.status()));

  absl::StatusOr<Placement> placement = PlaceWorkers(environment, config);
  if (!placement.ok()) {
    return Complain(placement.status(),
                    absl::IsInvalidArgument(placement.status()) ? kExitUsage : kExitMachine);
  }

  if (!config.report_file.empty()) {
    if (absl::Status status = CheckWritable(config.report_file); !status.ok()) {
      return Complain(absl::Status(status.code(), absl::StrCat(config.SourceOf("report_file"), ": ",
                                                               status.message())),
                      kExitMachine);
    }
  }

  ProcessBaseline baseline = RecordBaseline();
  ProtectFromOomKiller(baseline);
  if (absl::Status status = PrepareAgentProcess(baseline, BitsOf(config.more_stop_signals));
      !status.ok()) {
    return Complain(status, kExitMachine);
  }
  if (absl::Status status = ProvideDescriptors(config); !status.ok()) {
    return Complain(status, kExitMachine);
  }
  const std::string job_mark = NewJobMark();
  // Before the first thread: the guardian is a fork of this very process.
  absl::StatusOr<std::unique_ptr<Guardian>> guardian = Guardian::Start(job_mark);
  if (!guardian.ok()) return Complain(guardian.status(), kExitMachine);
  LogOptions log_options = MakeLogOptions(config, environment);
  // The agent keeps the guardian longer than it opens workers.
  log_options.on_temporary_folder = [to = guardian->get()](const std::string& folder) {
    to->NoteFolder(folder);
  };
  absl::StatusOr<std::unique_ptr<LogRouter>> logs = LogRouter::Create(std::move(log_options));
  if (!logs.ok()) return Complain(logs.status(), kExitMachine);

  const LogLevelChoice log_level =
      ChooseLogLevel({.ddprun_log_level = environment.Get("DDPRUN_LOG_LEVEL"),
                      .loglevel = environment.Get("LOGLEVEL")});
  if (!log_level.warning.empty()) config.warnings.push_back(log_level.warning);
  for (std::string& warning : OutputWarnings(config)) {
    config.warnings.push_back(std::move(warning));
  }
  for (const std::string& warning : config.warnings) (*logs)->Say("ddprun: warning: " + warning);
  const std::shared_ptr<spdlog::logger> logger = MakeLogger(**logs, log_level.level);
  return RunAgent(
      {std::move(config), *program, environment, baseline, job_mark, *std::move(placement)},
      *std::move(guardian), **logs, *logger);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kProbeArgument) RunGpuProbe(argv[2]);
  const Environment environment = Environment::OfThisProcess();
  absl::StatusOr<ParseResult> parsed = ParseCommandLine(argc, argv, environment);
  if (!parsed.ok()) return Complain(parsed.status(), ExitCodeOfStartError(parsed.status()));
  if (const auto* text = std::get_if<PrintText>(&*parsed)) {
    // Either may be the one that writes.
    const bool is_queued = std::fputs(text->text.c_str(), stdout) != EOF;
    if (std::fflush(stdout) == 0 && is_queued) return kExitSuccess;
    return Complain(absl::ErrnoToStatus(errno, "write to stdout"), kExitMachine);
  }
  if (const auto* options = std::get_if<DoctorOptions>(&*parsed)) {
    const absl::Status status = RunDoctor(*options, environment);
    return status.ok() ? kExitSuccess : Complain(status, kExitMachine);
  }
  return Launch(std::get<LaunchConfig>(*std::move(parsed)), environment);
}
