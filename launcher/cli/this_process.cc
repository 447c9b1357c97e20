#include "launcher/cli/this_process.h"

#include <openssl/crypto.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/cli/program.h"
#include "launcher/process/process_baseline.h"
#include "rendezvous/base/allowed_cpus.h"
#include "rendezvous/net/own_addresses.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::launcher {
namespace {

std::string FreshRunId() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(bits))) {
    // Only names of files and logs hang on it, no secret does.
    bits = static_cast<uint64_t>(getpid());
  }
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
}

int CpuCount() {
  const size_t allowed = AllowedCpus().size();
  if (allowed > 0) return static_cast<int>(allowed);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(online) : 1;
}

// Started by a step's daemon itself: `srun --pty` gives its first task a terminal.
bool IsSlurmTask() {
  std::ifstream file(absl::StrCat("/proc/", getppid(), "/comm"));
  std::string name;
  return std::getline(file, name) && name == "slurmstepd";
}

// Out of this process' environment, of which every child gets a copy and others of this user can
// read in /proc what it began with.
std::optional<std::string> TakeSecret(const char* name) {
  char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  LeaveNoCore();
  std::string secret = value;
  OPENSSL_cleanse(value, secret.size());
  unsetenv(name);
  return secret;
}

// Where NCCL and cuBLAS are looked for at last (worker_runtime/gpu/wheel_folders.h): by this
// program, its probes and its workers in that Python that runs the scripts.
void NamePythonOfWheels() {
  for (const char* variable : {"DDPRUN_NCCL_PYTHON", "PYTHON_EXEC"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') return;
  }
  const std::string python = PythonBeside(OwnProgram());
  if (!python.empty()) setenv("DDPRUN_NCCL_PYTHON", python.c_str(), 1);
}

std::vector<std::string> OwnNames() {
  std::vector<std::string> names = rendezvous::EveryOwnAddress();
  names.push_back(rendezvous::HostName());
  return names;
}

}  // namespace

Environment EnvironmentOfThisProcess() {
  Environment environment;
  environment.token = TakeSecret("DDPRUN_TOKEN");
  environment.etcd_password = TakeSecret("DDPRUN_ETCD_PASSWORD");
  NamePythonOfWheels();
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    environment.variables.emplace_back(*variable);
  }
  environment.machine = {.cpu_count = CpuCount(),
                         .is_interactive = isatty(STDIN_FILENO) == 1 && !IsSlurmTask(),
                         .fresh_run_id = FreshRunId(),
                         .has_etcd_password = !environment.etcd_password.value_or("").empty(),
                         .names = OwnNames()};
  return environment;
}

}  // namespace ddprun::launcher
