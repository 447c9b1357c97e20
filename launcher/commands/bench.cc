#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/page.h"
#include "bench/report.h"
#include "bench/report_json.h"
#include "bench/run.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/terminal.h"
#include "launcher/doctor/cuda_verdict.h"
#include "launcher/doctor/gpu_probe.h"
#include "launcher/doctor/host_facts.h"
#include "launcher/process/exit_status.h"
#include "launcher/report/whole_file.h"
#include "rendezvous/base/allowed_cpus.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

int Refuse(const absl::Status& error, int exit_code) {
  return Complain(absl::Status(error.code(), absl::StrCat("bench: ", error.message())), exit_code);
}

// Before anything is measured: how many GPUs there are. This process never opens CUDA itself.
absl::StatusOr<int> CountGpus(const BenchOptions& options, const Environment& environment) {
  const DoctorFacts facts{.gpu = ProbeGpus(kProbeAll), .host = ReadHostFacts(environment)};
  if (const std::optional<std::string> why = WhyNoCuda(facts)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--device cuda: ", *why, "; --device cpu measures without"));
  }
  const int gpus = static_cast<int>(facts.gpu.gpus.size());
  if (options.ranks.back() <= gpus) return gpus;
  return absl::FailedPreconditionError(absl::StrCat("--device cuda: ", options.ranks.back(),
                                                    " ranks need a GPU each, and CUDA shows ", gpus,
                                                    "; ask for fewer by --world-sizes"));
}

void Say(const std::string& text) {
  std::fprintf(stderr, "ddprun: bench: measuring %s\n", text.c_str());
}

// Before a minute is spent on what cannot be written.
absl::Status CheckFiles(const BenchOptions& options) {
  for (const auto& [option, file] :
       {std::pair("--output", &options.json_file), {"--html", &options.html_file}}) {
    if (file->empty()) continue;
    const absl::Status status = CheckWritable(*file);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat(option, ": ", status.message()));
  }
  // Also by another spelling, or through a link.
  std::error_code ignored;
  if (!options.json_file.empty() && !options.html_file.empty() &&
      std::filesystem::weakly_canonical(options.json_file, ignored) ==
          std::filesystem::weakly_canonical(options.html_file, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output and --html name the same file, ", EscapeControl(options.json_file)));
  }
  return absl::OkStatus();
}

absl::Status WriteFiles(const BenchOptions& options, const bench::Report& report) {
  absl::Status status;
  if (!options.json_file.empty()) {
    status.Update(WriteWholeFile(options.json_file, bench::ReportJson(report)));
  }
  if (!options.html_file.empty()) {
    status.Update(WriteWholeFile(options.html_file, bench::PageHtml(report)));
  }
  return status;
}

std::string Conclusion(const bench::Report& report) {
  std::string text = absl::StrCat("\n", bench::Verdict(report), "\n");
  const std::string comparison = bench::Comparison(report);
  if (!comparison.empty()) absl::StrAppend(&text, comparison, "\n");
  const std::string uncertainty = bench::Uncertainty(report);
  if (!uncertainty.empty()) absl::StrAppend(&text, uncertainty, "\n");
  return text;
}

}  // namespace

int RunBench(const BenchOptions& options, const Environment& environment) {
  const auto cpus = AllowedCpus();
  bench::RunOptions run{
      .ranks = options.ranks,
      .seconds = std::chrono::duration<double>(options.seconds_per_row).count(),
      .machine = bench::ReadMachine(cpus.empty() ? 1 : static_cast<int>(cpus.size()))};
  if (!bench::IsRank()) {
    Warn(options.warnings);
    if (absl::Status status = CheckFiles(options); !status.ok()) return Refuse(status, kExitUsage);
    if (options.is_on_gpus) {
      const absl::StatusOr<int> gpus = CountGpus(options, environment);
      if (!gpus.ok()) return Refuse(gpus.status(), kExitMachine);
      run.machine.gpus = *gpus;
    }
    std::fprintf(stderr, "ddprun: bench: this machine: %s\n",
                 bench::MachineText(run.machine).c_str());
  } else if (options.is_on_gpus) {
    run.machine.gpus = options.ranks.back();  // that many at least, as the first process knows
  }
  const absl::StatusOr<bench::Report> report = bench::Run(run, Say);
  if (!report.ok()) return Refuse(report.status(), kExitMachine);
  // The files first: the reader of the table may close its pipe.
  const absl::Status written = WriteFiles(options, *report);
  int code = Print(options.is_json ? bench::ReportJson(*report)
                                   : absl::StrCat(bench::TableText(*report), Conclusion(*report)));
  if (!written.ok()) code = Refuse(written, kExitMachine);
  if (!report->failure.empty()) code = Refuse(absl::AbortedError(report->failure), kExitMachine);
  if (code != kExitSuccess) return code;
  const std::string difference = bench::LossDifference(*report);
  if (difference.empty()) return kExitSuccess;
  return Refuse(absl::InternalError(absl::StrCat("the losses differ: ", difference)), kExitBug);
}

}  // namespace ddprun::launcher
