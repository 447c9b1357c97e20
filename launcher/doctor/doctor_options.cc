#include "launcher/doctor/doctor_options.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

constexpr char kRequire[] = "--require";

absl::Status Require(const std::string& what, DoctorOptions& options) {
  if (what != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("doctor: --require ", Quoted(what), ": expected cuda"));
  }
  options.requires_cuda = true;
  return absl::OkStatus();
}

}  // namespace

const char kDoctorHelp[] =
    "Usage: ddprun doctor [--require cuda] [--json]\n"
    "\n"
    "Shows what this machine has for training: NVIDIA driver, GPUs, NCCL, cuBLAS, CUDA toolkit,\n"
    "network, limits; and what each lack means.\n"
    "\n"
    "  --require cuda   Exit with 120 when CUDA training cannot run here; stderr has the reason.\n"
    "  --json           One JSON object in place of the text.\n"
    "  -h, --help       This text.\n";

absl::StatusOr<DoctorOptions> ParseDoctorOptions(std::span<const std::string> args) {
  DoctorOptions options;
  const std::string require_equals = absl::StrCat(kRequire, "=");
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    absl::Status status;
    if (word == "--json") {
      options.is_json = true;
    } else if (word == "-h" || word == "--help") {
      options.is_help = true;
      return options;
    } else if (word == kRequire) {
      if (++i == args.size()) {
        return absl::InvalidArgumentError("doctor: '--require' needs a value: --require cuda");
      }
      status = Require(args[i], options);
    } else if (word.substr(0, require_equals.size()) == require_equals) {
      status = Require(word.substr(require_equals.size()), options);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("doctor: unknown option ", Quoted(word),
                       "; expected --require cuda or --json (a program of the name doctor is "
                       "./doctor)"));
    }
    if (!status.ok()) return status;
  }
  return options;
}

}  // namespace ddprun::launcher
