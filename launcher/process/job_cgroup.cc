#include "launcher/process/job_cgroup.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <cerrno>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "launcher/process/folder_note.h"
#include "launcher/process/owner_tag.h"
#include "process/raw_syscall.h"

namespace ddprun::launcher {
namespace {

// A job within a job has a cgroup within a cgroup; ten is where marks stop, too.
constexpr int kDeepest = 16;
constexpr char kNamePrefix[] = "ddprun-";

DDPRUN_RAW bool RemoveFolder(const char* path) {
  return syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

// Whether a living process is in the cgroup of this cgroup.events or below it.
std::optional<bool> ReadPopulated(int directory, const char* events) {
  const UniqueFd file(openat(directory, events, O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t size = file.is_open() ? read(file.get(), text, sizeof(text)) : -1;
  if (size <= 0) return std::nullopt;
  const std::string_view lines(text, static_cast<size_t>(size));
  if (lines.find("populated 1\n") != std::string_view::npos) return true;
  if (lines.find("populated 0\n") != std::string_view::npos) return false;
  return std::nullopt;
}

// "ddprun-<tag>-<mark>"
std::string_view TagOfName(std::string_view name) {
  const size_t begin = sizeof(kNamePrefix) - 1;
  const size_t end = name.rfind('-');
  if (name.substr(0, begin) != kNamePrefix || end <= begin) return {};
  return name.substr(begin, end - begin);
}

DDPRUN_RAW int EndAtOnce(void* /*unused*/) { return 0; }

// Whether a process lives that is cloned into the cgroup. It shares our memory, so this takes a
// tenth of a millisecond; and it ends by itself, so the wait needs no deadline.
bool CanBeBornIn(int directory) {
  alignas(16) char stack[4096];
  const pid_t pid = CloneIntoCgroup(directory, EndAtOnce, stack, sizeof(stack), nullptr);
  if (pid < 0) return false;
  siginfo_t info{};
  int result = 0;
  do {
    result = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED);
  } while (result != 0 && errno == EINTR);
  return result == 0 && info.si_code == CLD_EXITED;
}

}  // namespace

DDPRUN_RAW void KillCgroup(const char* path) {
  const int directory = OpenFolder(AT_FDCWD, path);
  if (directory < 0) return;
  const long file = syscall(SYS_openat, directory, "cgroup.kill", O_WRONLY | O_CLOEXEC);
  if (file >= 0) syscall(SYS_write, file, "1", 1);
  if (file >= 0) syscall(SYS_close, file);
  syscall(SYS_close, directory);
}

DDPRUN_RAW bool RemoveCgroup(const char* path) {
  if (RemoveFolder(path)) return true;
  const int directory = OpenFolder(AT_FDCWD, path);
  if (directory < 0) return false;
  RemoveEmptyFoldersIn(directory, kDeepest);
  syscall(SYS_close, directory);
  return RemoveFolder(path);
}

std::vector<std::string> OwnCgroupDirectories(const std::string& mountinfo,
                                              const std::string& cgroups) {
  const std::string all = "\n" + cgroups;
  const size_t own_at = all.find("\n0::/");
  if (own_at == std::string::npos) return {};
  const std::string own = all.substr(own_at + 4, all.find('\n', own_at + 1) - own_at - 4);
  // Slurm kills what is in a step's own cgroups by SIGKILL, and looks into none below them: what we
  // hid there would live on, and the node would drain.
  if (absl::StrContains(own, "slurmstepd.scope/")) return {};
  std::vector<std::string> found;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // "31 23 0:28 <root> <mount point> <options>... - <type> <source> <options>"
    if (!absl::StrContains(line, " - cgroup2 ")) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    // Blanks and backslashes are three octal digits.
    std::string root, directory;
    if (fields.size() < 5 || !absl::CUnescape(fields[3], &root) ||
        !absl::CUnescape(fields[4], &directory)) {
      continue;
    }
    if (root == "/") root.clear();
    // A mount of another part of the tree does not show us.
    if (!absl::StartsWith(own + "/", root + "/")) continue;
    directory += own.substr(root.size());
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
    found.push_back(std::move(directory));
  }
  return found;
}

std::unique_ptr<JobCgroup> JobCgroup::Make(const std::string& job_mark) {
  std::string name = std::string("/") + kNamePrefix;
  if (const std::string tag = OwnerTag(); !tag.empty()) name += tag + "-";
  name += job_mark.substr(job_mark.rfind('/') + 1);
  for (const std::string& parent : OwnCgroupDirectories(ReadProcFile("/proc/self/mountinfo"),
                                                        ReadProcFile("/proc/self/cgroup"))) {
    const std::string path = parent + name;
    if (mkdir(path.c_str(), 0755) != 0) continue;
    UniqueFd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Something else may be mounted over it.
    struct statfs system {};
    if (directory.is_open() && fstatfs(directory.get(), &system) == 0 &&
        system.f_type == CGROUP2_SUPER_MAGIC &&
        faccessat(directory.get(), "cgroup.kill", W_OK, 0) == 0 && CanBeBornIn(directory.get())) {
      return std::unique_ptr<JobCgroup>(new JobCgroup(path, name, std::move(directory)));
    }
    rmdir(path.c_str());
  }
  return nullptr;
}

JobCgroup::JobCgroup(std::string path, std::string name, UniqueFd directory)
    : name_(std::move(name)), path_(std::move(path)), directory_(std::move(directory)) {}

void JobCgroup::Kill() const { KillCgroup(path_.c_str()); }

bool JobCgroup::IsPopulated() const {
  return ReadPopulated(directory_.get(), "cgroup.events").value_or(false);
}

void JobCgroup::RemoveAbandoned() const {
  const std::string parent = path_.substr(0, path_.size() - name_.size());
  for (const std::string& path : AbandonedIn(parent, TagOfName)) {
    // An inner job's agent would be below it, beside its own cgroup, which may be empty.
    const std::optional<bool> is_populated =
        ReadPopulated(AT_FDCWD, (path + "/cgroup.events").c_str());
    if (is_populated == false) RemoveCgroup(path.c_str());
  }
}

bool JobCgroup::Remove() const {
  for (int tries = 0; tries < 100; ++tries) {
    if (RemoveCgroup(path_.c_str())) return true;
    // A process that has been reaped may still be on its last way out.
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace ddprun::launcher
