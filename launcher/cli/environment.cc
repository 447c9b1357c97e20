#include "launcher/cli/environment.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/placement/allowed_cpus.h"

namespace ddprun::launcher {
namespace {

// What users and the launcher itself set; DDPRUN_TEST_ names belong to tests.
const std::vector<std::string>& KnownVariables() {
  static const std::vector<std::string> names = {
      "DDPRUN_LOG_LEVEL",   "DDPRUN_STDERR",    "DDPRUN_TOKEN",    "DDPRUN_ROUND",
      "DDPRUN_EPOCH",       "DDPRUN_JOB_MARK",  "DDPRUN_CUDA_LIB", "DDPRUN_NCCL_LIB",
      "DDPRUN_NCCL_PYTHON", "DDPRUN_CUBLAS_LIB"};
  return names;
}

int CpuCount() {
  const size_t allowed = AllowedCpus().size();
  if (allowed > 0) return static_cast<int>(allowed);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(online) : 1;
}

std::string FreshRunId() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(bits))) {
    // Only names of files and logs hang on it, no secret does.
    bits = static_cast<uint64_t>(getpid());
  }
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
}

}  // namespace

std::optional<std::string> Environment::Get(std::string_view name) const {
  for (const std::string& variable : variables) {
    if (variable.size() > name.size() && variable[name.size()] == '=' &&
        std::string_view(variable).substr(0, name.size()) == name) {
      return variable.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

Environment Environment::OfThisProcess() {
  Environment environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    environment.variables.emplace_back(*variable);
  }
  environment.machine = {.cpu_count = CpuCount(), .fresh_run_id = FreshRunId()};
  return environment;
}

std::vector<std::string> WarningsAbout(const Environment& environment) {
  std::vector<std::string> warnings;
  std::vector<std::string> stale;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (const auto value = environment.Get(name)) {
      stale.push_back(absl::StrCat(name, "=", EscapeControl(value->substr(0, 40))));
    }
  }
  if (!stale.empty()) {
    warnings.push_back(absl::StrCat(absl::StrJoin(stale, " "),
                                    " in the environment: workers get their own values"));
  }
  for (const std::string& variable : environment.variables) {
    const std::string name = variable.substr(0, variable.find('='));
    const std::vector<std::string>& known = KnownVariables();
    if (name.rfind("DDPRUN_", 0) != 0 || name.rfind("DDPRUN_TEST_", 0) == 0) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = NearestName(name, known);
    if (nearest.empty()) continue;  // somebody else's
    warnings.push_back(absl::StrCat("unknown variable ", Quoted(name), " is ignored; did you mean ",
                                    nearest, "?"));
  }
  return warnings;
}

}  // namespace ddprun::launcher
