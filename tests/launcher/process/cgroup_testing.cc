#include "tests/launcher/process/cgroup_testing.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/leftovers.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

bool CanMakeOne() {
  const auto cgroup = launcher::JobCgroup::Make(launcher::NewJobMark());
  return cgroup != nullptr && cgroup->Remove();
}

std::string MountPrivately() {
  // The mount ends with the namespace, the empty directory with whoever cleans /tmp: nothing here
  // can remove it once the last process of the test has gone.
  const char* base = std::getenv("TEST_TMPDIR");
  std::string path = std::string(base != nullptr ? base : "/tmp") + "/cgroup.XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return std::string("mkdtemp: ") + std::strerror(errno);
  if (unshare(CLONE_NEWNS) != 0) return std::string("unshare: ") + std::strerror(errno);
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", path.c_str(), "cgroup2", 0, nullptr) != 0) {
    return std::string("mount of cgroup2: ") + std::strerror(errno);
  }
  return CanMakeOne() ? "" : "no cgroup can be made, also where cgroup2 has just been mounted";
}

}  // namespace

std::string ProvideCgroups() {
  static const std::string answer = CanMakeOne() ? "" : MountPrivately();
  return answer;
}

std::string CgroupOf(pid_t pid) {
  const std::vector<std::string> directories =
      launcher::OwnCgroupDirectories(testing::ReadFile("/proc/self/mountinfo"),
                                     testing::ReadFile("/proc/" + std::to_string(pid) + "/cgroup"));
  for (const std::string& directory : directories) {
    if (access(directory.c_str(), F_OK) == 0) return directory;
  }
  return "";
}

bool IsInJobCgroup(pid_t pid) {
  return testing::ReadFile("/proc/" + std::to_string(pid) + "/cgroup").find("/ddprun-") !=
         std::string::npos;
}

std::vector<std::string> WithoutCgroups() {
  const std::string unmount =
      "! grep -q ' - cgroup2 ' /proc/self/mountinfo || umount -a -l -t cgroup2";
  std::vector<std::string> words = {"/usr/bin/unshare", "-m", "/bin/sh", "-c",
                                    "{ " + unmount + "; } && exec \"$0\" \"$@\""};
  const std::string trial = words[0] + " -m /bin/sh -c '" + "true' 2>/dev/null";
  if (std::system(trial.c_str()) != 0) return {};
  return words;
}

}  // namespace ddprun::testing
