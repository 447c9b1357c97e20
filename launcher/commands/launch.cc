// From LaunchConfig to the agent.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/agent_policy.h"
#include "launcher/agent/health_check.h"
#include "launcher/check/self_check.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/program.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/step_token.h"
#include "launcher/commands/terminal.h"
#include "launcher/commands/trust.h"
#include "launcher/doctor/cuda_verdict.h"
#include "launcher/doctor/gpu_probe.h"
#include "launcher/doctor/host_facts.h"
#include "launcher/logs/log_level.h"
#include "launcher/logs/log_router.h"
#include "launcher/logs/logger.h"
#include "launcher/placement/network.h"
#include "launcher/placement/placement.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/guardian.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process_baseline.h"
#include "launcher/process/session_table.h"
#include "launcher/report/whole_file.h"
#include "launcher/test_gates.h"
#include "rendezvous/base/allowed_cpus.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/peer_user.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::launcher {
namespace {

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

std::vector<Gpu> Chosen(const std::vector<int>& indices, const std::vector<Gpu>& gpus) {
  std::vector<Gpu> chosen;
  for (const int index : indices) chosen.push_back(gpus[static_cast<size_t>(index)]);
  return chosen;
}

// How many workers, where, and with which GPU. Asks the driver only when an option needs it: where
// they are one for each GPU, and for CPUs near it.
absl::StatusOr<Placement> PlaceWorkers(const Environment& environment, LaunchConfig& config) {
  Placement placement;
  const bool is_counted = config.workers_by == WorkersBy::kNumber;
  if (!is_counted || config.numa_binding) {
    GpuReport report = ProbeGpus(kProbeGpus);
    const DriverFacts driver = ReadDriverFacts(environment);
    absl::Status status;
    if (!is_counted) status = ResolveWorkers(report, driver, environment.machine.cpu_count, config);
    if (!status.ok()) return status;
    if (!config.gpus.empty()) {
      report.gpus = Chosen(config.gpus, report.gpus);
      placement.visible_devices = ChosenDevices(config, environment.Get("CUDA_VISIBLE_DEVICES"));
    }
    if (config.numa_binding) {
      absl::StatusOr<std::vector<CpuSet>> cpus =
          BindToCpus(config, report, driver, SysRootForTest(), AllowedCpus());
      if (!cpus.ok()) return cpus.status();
      placement.cpus = *std::move(cpus);
    }
  }
  if (config.virtual_local_rank) {
    // As torchrun from 2.15 on: where AMD's variable is set, it is the one that counts.
    const bool is_hip = config.gpus.empty() && environment.Get("HIP_VISIBLE_DEVICES");
    const char* const variable = is_hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    const absl::StatusOr<std::vector<std::string>> devices =
        VirtualDevices(config, variable,
                       config.gpus.empty() ? environment.Get(variable) : placement.visible_devices);
    if (!devices.ok()) return devices.status();
    placement.devices = *devices;
  }
  return placement;
}

absl::Status CheckFile(const LaunchConfig& config, const char* option, const std::string& path) {
  const absl::Status status = path.empty() ? absl::OkStatus() : CheckWritable(path);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(config.SourceOf(option), ": ", status.message()));
}

// What is written at the end.
absl::Status CheckReportFiles(const LaunchConfig& config) {
  absl::Status status = CheckFile(config, "report_file", config.report_file);
  status.Update(CheckFile(config, "event_file", config.event_file));
  if (config.is_termination_file_assumed) return status;
  status.Update(CheckFile(config, "termination_message_file", config.termination_message_file));
  return status;
}

// A store that rank 0's worker serves is open to the network.
absl::Status CheckStoreIsOurs(const LaunchConfig& config, const Environment& environment,
                              bool has_secret) {
  const RendezvousKind kind = config.rendezvous;
  const bool is_workers = environment.Get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1" &&
                          (kind == RendezvousKind::kC10d || kind == RendezvousKind::kEtcd);
  if (!has_secret || !is_workers || config.nodes.max == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 opens the workers' store to the network; the "
      "job's token does not guard it there: unset it, or give no token");
}

// Signals, descriptors and the OOM killer's choice, as an agent needs them.
absl::StatusOr<ProcessBaseline> PrepareProcess(const LaunchConfig& config,
                                               ProcessBaseline baseline) {
  ProtectFromOomKiller(baseline);
  const SignalBits asks = config.preempt_signal != 0 ? BitOf(config.preempt_signal) : 0;
  absl::Status status = PrepareAgentProcess(baseline, BitsOf(config.more_stop_signals) | asks);
  if (status.ok()) status = ProvideDescriptors(config);
  if (!status.ok()) return status;
  // A shell starts a background job with these ignored, but ddprun takes them as orders, which its
  // workers are to hear: they would let the whole grace go by.
  baseline.ignored_signals &= ~(BitOf(SIGINT) | BitOf(SIGQUIT));
  // Slurm sends its notice to all processes of a step. TERM is the exception: programs end by it.
  if (config.preempt_signal != SIGTERM) baseline.ignored_signals |= asks;
  return baseline;
}

// `guardian` outlives the logs' workers.
absl::StatusOr<std::unique_ptr<LogRouter>> MakeLogs(const LaunchConfig& config,
                                                    const Environment& environment,
                                                    Guardian& guardian) {
  LogOptions options = MakeLogOptions(config, environment);
  options.on_temporary_folder = [&guardian](const std::string& folder) {
    guardian.NoteFolder(folder);
  };
  options.hold_for_test = [] { HoldFileWorkForTest("log lines"); };
  return LogRouter::Create(std::move(options));
}

// A port that cannot be had is no reason not to train.
UniqueFd ListenForWatchers(const char* option, const std::optional<Endpoint>& place,
                           LaunchConfig& config) {
  if (!place) return {};
  absl::StatusOr<UniqueFd> listening = rendezvous::ListenOn(place->host, place->port);
  if (listening.ok()) return *std::move(listening);
  config.warnings.push_back(absl::StrCat(
      config.SourceOf(option), ": nobody is served: ", std::string(listening.status().message())));
  return {};
}

// Who may read it may be this job to etcd; that is for etcd's owner to judge.
void WarnOfOpenKey(LaunchConfig& config) {
  const std::string& key = config.rendezvous_options.etcd.key_file;
  if (config.rendezvous != RendezvousKind::kEtcd || key.empty()) return;
  const absl::Status status = CheckKeyFile(key);
  if (status.ok()) return;
  config.warnings.push_back(absl::StrCat(config.SourceOf("rdzv_conf"), " key=", EscapeControl(key),
                                         ": ", status.message()));
}

// Where the user has given no secret: that of the step, if there is one. Its file goes with this
// process, also where that is killed.
absl::StatusOr<std::unique_ptr<StepToken>> UseStepToken(
    const LaunchConfig& config, const Environment& environment, Guardian& guardian,
    std::shared_ptr<const rendezvous::TlsIdentity>& identity) {
  if (identity != nullptr) return nullptr;
  absl::StatusOr<std::unique_ptr<StepToken>> token = StepToken::Take(config, environment);
  if (!token.ok()) return token;
  if (const std::string file = (*token)->own_file(); !file.empty()) guardian.NoteSecret(file);
  absl::StatusOr<std::shared_ptr<const rendezvous::TlsIdentity>> made =
      IdentityOf({}, (*token)->text());
  if (!made.ok()) return made.status();
  identity = *std::move(made);
  return token;
}

// Without a word of the kernel's nobody is kept from a store on loopback. It is no error: who would
// have to give the token up would open the job to the network as well.
void WarnOfOtherUsers(LaunchConfig& config, bool has_secret) {
  const bool trusts_network = !has_secret && !TrustLine(config, false).empty();
  if (trusts_network || rendezvous::PeerUsers().DoesKernelTell()) return;
  config.warnings.push_back(kNobodyKnownText);
}

// Workers wait for their store there. A relay may lead from it to this node.
void WarnOfLocalAddr(LaunchConfig& config) {
  if (config.rendezvous == RendezvousKind::kStatic) return;  // it is not used
  const auto address = rendezvous::ParseIp(config.local_addr, 0);
  if (!address || rendezvous::IsLoopback(config.local_addr)) return;
  if (!rendezvous::InterfaceOf(*address).empty()) return;
  config.warnings.push_back(absl::StrCat(
      config.SourceOf("local_addr"), " ", config.local_addr,
      ": no interface of this machine has this address; workers hang unless it leads here"));
}

// The folder has a random part.
void SayPlaceOfLogs(const LaunchConfig& config, LogRouter& logs) {
  const std::string folder = logs.run_folder();
  if (config.log_dir.empty() || folder.empty()) return;
  logs.Say(absl::StrCat("ddprun: log files are in ", folder, "/attempt_<n>/<local_rank>/"));
}

void SayAtStart(const LaunchConfig& config, const LogLevelChoice& log_level, LogRouter& logs) {
  if (!config.cluster_line.empty()) logs.Say("ddprun: " + config.cluster_line);
  std::vector<std::string> warnings = config.warnings;
  if (!log_level.warning.empty()) warnings.push_back(log_level.warning);
  for (std::string& warning : OutputWarnings(config)) warnings.push_back(std::move(warning));
  for (const std::string& warning : warnings) logs.Say("ddprun: warning: " + warning);
}

// Without the job's mark: what ends a round's workers must not end the check beside them.
std::optional<HealthProgram> HealthProgramOf(const LaunchConfig& config, const Placement& placement,
                                             const Environment& environment) {
  if (config.health_check.empty()) return std::nullopt;
  HealthProgram program{.argv = ShellArgv(config.health_check),
                        .environment = environment.variables,
                        .limit = config.bad_nodes.check_timeout};
  if (config.health_check == kOwnHealthCheck) {
    // A shell starts it: /proc/self would be the shell.
    const std::string ours = absl::StrCat("/proc/", getpid(), "/exe");
    SelfCheckProgram own =
        SelfCheckOf(ours, config.workers_per_node, placement.visible_devices, environment);
    program.argv = {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1"};
    program.argv.insert(program.argv.end(), own.argv.begin(), own.argv.end());
    program.environment = std::move(own.environment);
  }
  return program;
}

}  // namespace

int Launch(LaunchConfig config, Environment environment, const ProcessBaseline& baseline) {
  const absl::StatusOr<Program> program =
      ResolveProgram(config.program, config.args, config.run_as, environment);
  if (!program.ok()) return Complain(program.status(), ExitCodeOfStartError(program.status()));
  return LaunchProgram(std::move(config), *program, std::move(environment), baseline);
}

int LaunchProgram(LaunchConfig config, const Program& program, Environment environment,
                  const ProcessBaseline& recorded) {
  if (!config.rendezvous_options.etcd.key_file.empty()) LeaveNoCore();
  absl::StatusOr<std::shared_ptr<const rendezvous::TlsIdentity>> identity =
      IdentityOf(config.trust, environment.token);
  if (absl::Status status = UseNetwork(config, environment); !status.ok()) {
    return Complain(status, kExitUsage);
  }
  absl::StatusOr<Placement> placement = PlaceWorkers(environment, config);
  if (!placement.ok()) {
    const bool is_usage = absl::IsInvalidArgument(placement.status());
    return Complain(placement.status(), is_usage ? kExitUsage : kExitMachine);
  }
  if (!identity.ok()) return Complain(identity.status(), kExitAuthentication);
  if (absl::Status status = CheckStoreIsOurs(config, environment, *identity != nullptr);
      !status.ok()) {
    return Complain(status, kExitUsage);
  }
  if (absl::Status status = CheckReportFiles(config); !status.ok()) {
    return Complain(status, kExitMachine);
  }
  if (config.checks_itself) {
    const absl::Status well =
        CheckThisNode(config.workers_per_node, placement->visible_devices, environment);
    if (!well.ok()) {
      return Complain(
          absl::UnavailableError(absl::StrCat(config.SourceOf("check"), ": ", well.message())),
          kExitMachine);
    }
  }
  WarnOfOpenKey(config);
  WarnOfLocalAddr(config);
  WatchSockets sockets{.dashboard = ListenForWatchers("dashboard", config.dashboard, config),
                       .metrics = ListenForWatchers("metrics", config.metrics, config)};
  const absl::StatusOr<ProcessBaseline> baseline = PrepareProcess(config, recorded);
  if (!baseline.ok()) return Complain(baseline.status(), kExitMachine);
  const std::string job_mark = NewJobMark();
  // Before the first thread: the guardian is a fork of this very process.
  absl::StatusOr<std::unique_ptr<Guardian>> guardian = Guardian::Start(job_mark);
  if (!guardian.ok()) return Complain(guardian.status(), kExitMachine);
  // After what may go wrong on this node alone: a file that goes with it leaves no other node
  // behind with a token of its own.
  const absl::StatusOr<std::unique_ptr<StepToken>> step_token =
      UseStepToken(config, environment, **guardian, *identity);
  if (!step_token.ok()) return Complain(step_token.status(), kExitAuthentication);
  WarnOfOtherUsers(config, *identity != nullptr);
  if (*identity != nullptr) {
    const std::vector<std::string>& more = (*identity)->warnings();
    config.warnings.insert(config.warnings.end(), more.begin(), more.end());
  }
  absl::StatusOr<std::unique_ptr<LogRouter>> logs = MakeLogs(config, environment, **guardian);
  if (!logs.ok()) return Complain(logs.status(), kExitMachine);

  const LogLevelChoice log_level =
      ChooseLogLevel({.ddprun_log_level = environment.Get("DDPRUN_LOG_LEVEL"),
                      .loglevel = environment.Get("LOGLEVEL")});
  SayAtStart(config, log_level, **logs);
  SayPlaceOfLogs(config, **logs);
  const std::shared_ptr<spdlog::logger> logger = MakeLogger(**logs, log_level.level);
  std::optional<HealthProgram> health = HealthProgramOf(config, *placement, environment);
  Agent agent({std::move(config), program, environment, *baseline, job_mark, *std::move(placement),
               std::move(health), *std::move(identity)},
              *std::move(guardian), **logs, *logger, std::move(sockets));
  return agent.Run();
}

}  // namespace ddprun::launcher
