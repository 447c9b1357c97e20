#include "tests/faults/cpu_quota.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

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

constexpr char kControl[] = "/cgroup.subtree_control";  // of version 2 alone

// Whether a cgroup's children have the controller by now, and did not before.
bool HandDown(const std::string& cgroup) {
  std::string all = ReadFile(cgroup + kControl);
  if (!all.empty() && all.back() == '\n') all.pop_back();
  for (const std::string& controller : Split(all, ' ')) {
    if (controller == "cpu") return false;
  }
  return Put(cgroup + kControl, "+cpu");  // where nobody else is in it
}

// One test at a time has a quota in a cgroup: the one that ends takes the controller back from all.
UniqueFd Lock(const std::string& cgroup) {
  UniqueFd fd(open(cgroup.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto is_locked = [&] { return flock(fd.get(), LOCK_EX | LOCK_NB) == 0; };
  if (!fd.is_open() || !Eventually(is_locked)) return UniqueFd();
  return fd;
}

bool SetQuota(const std::string& folder, int of_100_ms) {
  const std::string quota = std::to_string(of_100_ms * 1000);
  return Put(folder + "/cpu.max", quota + " 100000") ||
         (Put(folder + "/cpu.cfs_period_us", "100000") && Put(folder + "/cpu.cfs_quota_us", quota));
}

}  // namespace

std::unique_ptr<CpuQuota> CpuQuota::Make(int of_100_ms, std::string* why) {
  *why = "no cgroup with a controller of processor time is mounted here";
  for (const std::string& own : OwnCgroups()) {
    UniqueFd lock = Lock(own);
    if (!lock.is_open()) {
      *why = "another test has a quota in " + own + ", or it cannot be locked";
      continue;
    }
    std::unique_ptr<CpuQuota> quota(new CpuQuota(own, std::move(lock), HandDown(own)));
    const std::string& folder = quota->folder_;
    if (mkdir(folder.c_str(), 0755) != 0) {
      *why = "mkdir " + folder + ": " + std::strerror(errno);
    } else if (!SetQuota(folder, of_100_ms)) {
      *why = "no quota can be set in " + folder;
    } else {
      return quota;
    }
  }
  return nullptr;
}

CpuQuota::CpuQuota(const std::string& own, UniqueFd lock, bool has_handed_down)
    : own_(own),
      lock_(std::move(lock)),
      folder_(own + "/ddprun_quota_" + std::to_string(getpid())),
      has_handed_down_(has_handed_down) {}

CpuQuota::~CpuQuota() {
  Eventually([this] { return rmdir(folder_.c_str()) == 0 || errno != EBUSY; });
  if (has_handed_down_) Put(own_ + kControl, "-cpu");
}

bool CpuQuota::Take(int pid) const { return Put(folder_ + "/cgroup.procs", std::to_string(pid)); }

bool CpuQuota::Free(int pid) const { return Put(own_ + "/cgroup.procs", std::to_string(pid)); }

int64_t CpuQuota::throttled() const {
  std::istringstream lines(ReadFile(folder_ + "/cpu.stat"));
  int64_t value = 0;
  for (std::string name; lines >> name >> value;) {
    if (name == "nr_throttled") return value;
  }
  return 0;
}

}  // namespace ddprun::testing
