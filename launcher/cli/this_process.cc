#include "launcher/cli/this_process.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/cli/program.h"
#include "launcher/cli/site_file.h"
#include "launcher/cli/text.h"
#include "launcher/process/process_baseline.h"
#include "rendezvous/base/allowed_cpus.h"
#include "rendezvous/base/unique_fd.h"
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

// Why the site's defaults cannot come from it; empty: they can. Who may write it may start programs
// as the user.
std::string WhyNoSiteFile(const struct stat& found) {
  if (!S_ISREG(found.st_mode)) return "it is no regular file";
  if (found.st_uid != 0 && found.st_uid != geteuid()) {
    return absl::StrCat("it belongs to user ", found.st_uid, "; expected root's or your own");
  }
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::StrFormat("its mode is %o, so others may write it; chmod 644 it",
                           found.st_mode & 0777);
  }
  return "";
}

// Empty: it has been read.
std::string ReadSiteText(int fd, std::string& text) {
  struct stat found;
  if (fstat(fd, &found) != 0) return std::strerror(errno);
  if (std::string why = WhyNoSiteFile(found); !why.empty()) return why;
  text.resize(kMaxSiteFileBytes + 1);
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(fd, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::strerror(errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  text.resize(size);
  if (size <= kMaxSiteFileBytes) return "";
  return absl::StrCat("it is too long; expected at most ", kMaxSiteFileBytes, " bytes");
}

SiteFile ReadSiteFile() {
  const char* const named = std::getenv(kSiteFileVariable);
  SiteFile file = {.path = named == nullptr ? kSiteFile : named};
  if (file.path.empty()) return file;
  const UniqueFd fd(open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.is_open() && errno == ENOENT && named == nullptr) return {};
  const std::string why = fd.is_open() ? ReadSiteText(fd.get(), file.text) : std::strerror(errno);
  if (why.empty()) return file;
  file.trouble = absl::StrCat("the site's defaults, ", Quoted(file.path), ": ", why,
                              "; without them: ", kSiteFileVariable, "= ddprun ...");
  return file;
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
  environment.site = ReadSiteFile();
  return environment;
}

}  // namespace ddprun::launcher
