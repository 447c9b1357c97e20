#include "tests/launcher/status/limited_cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/status/memory_cgroup.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

bool Put(const std::string& file, const std::string& text) {
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  const bool is_put =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  return is_put;
}

}  // namespace

LimitedCgroup::LimitedCgroup(int64_t bytes) {
  const auto own =
      launcher::FindMemoryCgroup(ReadFile("/proc/self/mountinfo"), ReadFile("/proc/self/cgroup"));
  if (!own) {
    why_not_ = "no memory cgroup is mounted here";
    return;
  }
  path_ = own->directories.front() + "/ddprun_oom_test_" + std::to_string(getpid());
  if (mkdir(path_.c_str(), 0755) != 0) {
    why_not_ = "mkdir " + path_ + ": " + std::strerror(errno);
    path_.clear();
    return;
  }
  const char* limit = own->is_v2 ? "/memory.max" : "/memory.limit_in_bytes";
  if (!Put(path_ + limit, std::to_string(bytes))) why_not_ = path_ + limit + " cannot be written";
  // Where there is swap it would take what does not fit.
  const char* swap = own->is_v2 ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes";
  Put(path_ + swap, own->is_v2 ? "0" : std::to_string(bytes));
}

LimitedCgroup::~LimitedCgroup() {
  if (!path_.empty()) Eventually([this] { return rmdir(path_.c_str()) == 0; });
}

bool LimitedCgroup::Join() const { return Put(procs_file(), std::to_string(getpid())); }

}  // namespace ddprun::testing
