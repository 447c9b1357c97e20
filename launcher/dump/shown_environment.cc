#include "launcher/dump/shown_environment.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/plain_text.h"
#include "worker_runtime/mask_secrets.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;

constexpr size_t kMaxValue = 4096;
constexpr size_t kMaxVariables = 4096;

constexpr string_view kShownNames[] = {
    "RANK",         "WORLD_SIZE",      "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV",
    "CONDA_PREFIX", "TMPDIR",          "LANG", "LC_ALL",          "HOSTNAME",   "PWD",
    "CUDA_HOME",    "MALLOC_ARENA_MAX"};
constexpr string_view kShownPrefixes[] = {
    "LOCAL_",  "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_",  "PYTORCH_", "NCCL_",
    "GLOO_",   "OMP_",    "MKL_",   "KMP_",  "CUDA_",         "NVIDIA_", "PYTHON",   "SLURM_",
    "DDPRUN_", "DDP_",    "UCX_",   "FI_",   "TP_SOCKET_",    "HIP_",    "ROCR_"};

// Beside what worker_runtime/mask_secrets.h knows: SLURM_JWT, DB_PASS, a cookie.
bool IsSuspicious(string_view name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  return ddp::internal::IsSecretName(name) || absl::StrContains(upper, "PASS") ||
         absl::StrContains(upper, "JWT") || absl::StrContains(upper, "COOKIE");
}

bool IsShown(string_view name) {
  return std::find(std::begin(kShownNames), std::end(kShownNames), name) != std::end(kShownNames) ||
         std::any_of(std::begin(kShownPrefixes), std::end(kShownPrefixes),
                     [&](string_view prefix) { return absl::StartsWith(name, prefix); });
}

std::string Clean(string_view text) {
  const std::string_view whole(text.data(), text.size());
  return EscapeControl(whole.substr(0, CharacterStart(whole, kMaxValue)));
}

}  // namespace

std::string ShownEnvironment(string_view environ) {
  std::map<std::string, std::string> shown;
  std::map<std::string, bool> others;
  size_t count = 0;
  for (const string_view variable : absl::StrSplit(environ, '\0')) {
    const size_t equals = variable.find('=');
    // What a program has written over its environment is no variable and may be anything.
    if (equals == string_view::npos || equals == 0 || ++count > kMaxVariables) continue;
    const string_view name = variable.substr(0, equals);
    if (IsSuspicious(name)) {
      shown[Clean(name)] = ddp::internal::kMasked;
    } else if (IsShown(name)) {
      shown[Clean(name)] = Clean(ddp::internal::MaskValue(name, variable.substr(equals + 1)));
    } else {
      others[Clean(name)] = true;
    }
  }
  std::string text;
  for (const auto& [name, value] : shown) absl::StrAppend(&text, name, "=", value, "\n");
  if (!others.empty()) absl::StrAppend(&text, "\nset as well, values not shown:\n");
  for (const auto& [name, is_set] : others) absl::StrAppend(&text, name, "\n");
  return text;
}

std::string ShownCommand(string_view cmdline) {
  std::vector<std::string> words =
      absl::StrSplit(absl::StripSuffix(cmdline, string_view("\0", 1)), '\0');
  return Clean(absl::StrJoin(ddp::internal::MaskArguments(words), " "));
}

}  // namespace ddprun::launcher
