#include "launcher/doctor/doctor.h"

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/doctor/cuda_verdict.h"
#include "launcher/doctor/doctor_output.h"
#include "launcher/doctor/gpu_probe.h"
#include "launcher/doctor/host_facts.h"

namespace ddprun::launcher {

absl::Status RunDoctor(const DoctorOptions& options, const Environment& environment) {
  const DoctorFacts facts{.gpu = ProbeGpus(ProbeScope::kAll), .host = ReadHostFacts(environment)};
  const std::string text = options.is_json ? DoctorJson(facts) : DoctorText(facts);
  // A long text is written by fputs already, a short one by fflush alone.
  const bool is_queued = std::fputs(text.c_str(), stdout) != EOF;
  if (std::fflush(stdout) != 0 || !is_queued) return absl::ErrnoToStatus(errno, "write to stdout");
  if (!options.requires_cuda) return absl::OkStatus();
  const std::optional<std::string> why = WhyNoCuda(facts);
  if (!why) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("doctor: CUDA training cannot run here: ", *why));
}

}  // namespace ddprun::launcher
