#include "tests/faults/cpu_quota.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

bool Put(const std::string& file, const std::string& text) {
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.is_open() &&
         write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

bool HasPart(const std::string& list, const std::string& part) {
  for (const std::string& any : Split(list, ',')) {
    if (any == part) return true;
  }
  return false;
}

// Our place in the hierarchy that /proc/self/cgroup tells of by `controller`; "": in version 2.
std::string OwnPath(const std::string& controller) {
  for (const std::string& line : Split(ReadFile("/proc/self/cgroup"), '\n')) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : HasPart(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

// Our own cgroups in which there may be the controller.
std::vector<std::string> OwnCgroups() {
  std::vector<std::string> folders;
  for (const std::string& line : Split(ReadFile("/proc/self/mounts"), '\n')) {
    const std::vector<std::string> fields = Split(line, ' ');
    if (fields.size() < 4) continue;
    const bool is_v2 = fields[2] == "cgroup2";
    if (is_v2) {
      folders.push_back(fields[1] + OwnPath(""));
    } else if (fields[2] == "cgroup" && HasPart(fields[3], "cpu")) {
      folders.push_back(fields[1] + OwnPath("cpu"));
    }
  }
  return folders;
}

}  // namespace

std::unique_ptr<CpuQuota> CpuQuota::Make(int of_100_ms, std::string* why) {
  *why = "no cgroup with a controller of processor time is mounted here";
  const std::string quota = std::to_string(of_100_ms * 1000);
  for (const std::string& own : OwnCgroups()) {
    Put(own + "/cgroup.subtree_control", "+cpu");  // of version 2, where nobody else is in ours
    const std::string folder = own + "/ddprun_quota_" + std::to_string(getpid());
    if (mkdir(folder.c_str(), 0755) != 0) {
      *why = "mkdir " + folder + ": " + std::strerror(errno);
      continue;
    }
    const bool is_set =
        Put(folder + "/cpu.max", quota + " 100000") ||
        (Put(folder + "/cpu.cfs_period_us", "100000") && Put(folder + "/cpu.cfs_quota_us", quota));
    if (is_set) return std::unique_ptr<CpuQuota>(new CpuQuota(folder));
    *why = "no quota can be set in " + folder;
    rmdir(folder.c_str());
  }
  return nullptr;
}

CpuQuota::~CpuQuota() {
  Eventually([this] { return rmdir(folder_.c_str()) == 0; });
}

bool CpuQuota::Take(int pid) const { return Put(folder_ + "/cgroup.procs", std::to_string(pid)); }

int64_t CpuQuota::throttled() const {
  std::istringstream lines(ReadFile(folder_ + "/cpu.stat"));
  int64_t value = 0;
  for (std::string name; lines >> name >> value;) {
    if (name == "nr_throttled") return value;
  }
  return 0;
}

}  // namespace ddprun::testing
