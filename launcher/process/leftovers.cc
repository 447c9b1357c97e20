#include "launcher/process/leftovers.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/raw_syscall.h"
#include "launcher/process/session_table.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// An outer mark longer than this is dropped, which bounds the nesting of jobs within jobs at about
// ten.
constexpr size_t kMaxOuterMark = 200;
constexpr char kPrefix[] = "DDPRUN_JOB_MARK=";

struct ProcessFacts {
  char state = '?';
  pid_t parent = 0;
  pid_t session = 0;
};

// "/proc/<pid>/<leaf>" into `path`, which holds 32 bytes.
DDPRUN_RAW void FormatPath(pid_t pid, const char* leaf, char* path) {
  char digits[12];
  int count = 0;
  for (int rest = pid; rest > 0; rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  char* out = path;
  for (const char* text = "/proc/"; *text != '\0'; ++text) *out++ = *text;
  while (count > 0) *out++ = digits[--count];
  *out++ = '/';
  while (*leaf != '\0') *out++ = *leaf++;
  *out = '\0';
}

DDPRUN_RAW int OpenProcessFile(pid_t pid, const char* leaf) {
  char path[32];
  FormatPath(pid, leaf, path);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
}

DDPRUN_RAW long ReadSome(int fd, char* buffer, size_t size) {
  long result = 0;
  do {
    result = syscall(SYS_read, fd, buffer, size);
  } while (result < 0 && errno == EINTR);
  return result;
}

DDPRUN_RAW pid_t ParsePid(const char*& text) {
  pid_t value = 0;
  while (*text == ' ') ++text;
  while (*text >= '0' && *text <= '9') value = value * 10 + (*text++ - '0');
  return value;
}

// /proc/<pid>/stat: "pid (name) state parent group session ...". The name may hold anything, so the
// fields are counted from the last parenthesis.
DDPRUN_RAW bool ReadFacts(pid_t pid, ProcessFacts* facts) {
  const int fd = OpenProcessFile(pid, "stat");
  if (fd < 0) return false;
  char text[512];
  const long size = ReadSome(fd, text, sizeof(text) - 1);
  syscall(SYS_close, fd);
  if (size <= 0) return false;
  text[size] = '\0';
  long end = size - 1;
  while (end > 0 && text[end] != ')') --end;
  if (end + 3 >= size) return false;
  facts->state = text[end + 2];
  const char* rest = text + end + 3;
  facts->parent = ParsePid(rest);
  ParsePid(rest);
  facts->session = ParsePid(rest);
  return true;
}

// Follows an environment block byte by byte: whether one of its variables is "<prefix><mark>", or
// "<prefix><mark>/..." of a job inside ours.
class MarkMatcher {
 public:
  DDPRUN_RAW explicit MarkMatcher(const char* mark) : mark_(mark), expected_(kPrefix) {}

  DDPRUN_RAW bool Push(char byte) {
    if (expected_ != nullptr && *expected_ == '\0' && !is_in_mark_) {
      is_in_mark_ = true;
      expected_ = mark_;
    }
    if (expected_ != nullptr && is_in_mark_ && *expected_ == '\0' &&
        (byte == '\0' || byte == '/')) {
      return true;
    }
    if (byte == '\0') {
      expected_ = kPrefix;
      is_in_mark_ = false;
    } else if (expected_ != nullptr) {
      expected_ = *expected_ == byte ? expected_ + 1 : nullptr;
    }
    return false;
  }

 private:
  const char* const mark_;
  const char* expected_;  // what must come next; null: not this variable
  bool is_in_mark_ = false;
};

DDPRUN_RAW bool CarriesMark(pid_t pid, const char* mark) {
  const int fd = OpenProcessFile(pid, "environ");
  if (fd < 0) return false;
  MarkMatcher matcher(mark);
  bool is_found = false;
  char bytes[4096];
  long size = 0;
  while (!is_found && (size = ReadSome(fd, bytes, sizeof(bytes))) > 0) {
    for (long i = 0; i < size && !is_found; ++i) is_found = matcher.Push(bytes[i]);
  }
  syscall(SYS_close, fd);
  // A block may end without its last zero when the process has overwritten it.
  return is_found || matcher.Push('\0');
}

// Whether the path of a cgroup of `pid` holds `name`, which begins with its only slash: so a search
// that failed can only begin anew at the next one.
DDPRUN_RAW bool IsInCgroup(pid_t pid, const char* name) {
  const int fd = OpenProcessFile(pid, "cgroup");
  if (fd < 0) return false;
  const char* expected = name;
  char bytes[4096];
  long size = 0;
  while (*expected != '\0' && (size = ReadSome(fd, bytes, sizeof(bytes))) > 0) {
    for (long i = 0; i < size && *expected != '\0'; ++i) {
      if (bytes[i] != *expected) expected = name;
      if (bytes[i] == *expected) ++expected;
    }
  }
  syscall(SYS_close, fd);
  return *expected == '\0';
}

DDPRUN_RAW bool Belongs(pid_t pid, const LeftoverQuery& query) {
  ProcessFacts facts;
  if (!ReadFacts(pid, &facts)) return false;
  if (facts.state == 'Z' || facts.state == 'X' || facts.state == 'x') return false;
  if (query.parent != 0 && facts.parent == query.parent) return true;
  if (query.sessions != nullptr && query.sessions->Meet(facts.session)) return true;
  if (query.mark[0] != '\0' && CarriesMark(pid, query.mark)) return true;
  return query.cgroup[0] != '\0' && IsInCgroup(pid, query.cgroup);
}

// Signals `pid` if it belongs to the job, and not whoever has the number by the time of the signal.
DDPRUN_RAW bool SignalOne(pid_t pid, const LeftoverQuery& query, int signal) {
  if (!Belongs(pid, query)) return false;
  if (signal == 0) return true;
  const long pidfd = syscall(SYS_pidfd_open, pid, 0);
  if (pidfd < 0) {
    if (errno == ESRCH) return false;
    return syscall(SYS_kill, pid, signal) == 0;
  }
  const bool is_same = Belongs(pid, query);
  if (is_same && syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) != 0 &&
      errno == ENOSYS) {
    syscall(SYS_kill, pid, signal);
  }
  syscall(SYS_close, pidfd);
  return is_same;
}

// Whether the process has no child left at all, not even one that has ended. Reaps none.
bool HasNoChild() {
  siginfo_t info{};
  // Without __WALL: the guardian is not meant.
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    if (errno == EINTR) continue;
    DDP_CHECK(errno == ECHILD);
    return true;
  }
  return false;
}

}  // namespace

std::string NewJobMark() {
  uint64_t bits[2] = {};
  DDP_CHECK(getrandom(bits, sizeof(bits), 0) == static_cast<ssize_t>(sizeof(bits)));
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(bits[0]),
                static_cast<unsigned long long>(bits[1]));
  const char* outer = std::getenv(kJobMarkVariable);
  if (outer == nullptr || *outer == '\0' || std::string(outer).size() > kMaxOuterMark) return text;
  return std::string(outer) + "/" + text;
}

DDPRUN_RAW int SignalLeftovers(const LeftoverQuery& query, int signal) {
  const long directory = syscall(SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return 0;
  const pid_t self = static_cast<pid_t>(syscall(SYS_getpid));
  int found = 0;
  alignas(LinuxDirent) char entries[8192];
  long size = 0;
  while ((size = syscall(SYS_getdents64, directory, entries, sizeof(entries))) > 0) {
    for (long at = 0; at < size;) {
      const LinuxDirent* entry = reinterpret_cast<const LinuxDirent*>(entries + at);
      at += entry->size;
      const char* name = entry->name;
      const pid_t pid = ParsePid(name);
      if (pid <= 1 || pid == self || pid == query.spare) continue;
      if (SignalOne(pid, query, signal)) ++found;
    }
  }
  syscall(SYS_close, directory);
  return found;
}

bool KillLeftovers(const std::string& mark, const JobCgroup* cgroup, Duration limit) {
  LeftoverQuery query{.mark = mark.c_str()};
  if (cgroup != nullptr) query.cgroup = cgroup->name().c_str();
  const TimePoint give_up = SteadyNow() + limit;
  for (int empty_walks = 0; empty_walks < 2;) {
    // The agent is a subreaper: without children it has no descendants, hence no leftovers.
    if (HasNoChild()) return true;
    if (cgroup != nullptr) cgroup->Kill();
    const int found = SignalLeftovers(query, SIGKILL);
    empty_walks = found == 0 ? empty_walks + 1 : 0;
    if (found == 0) continue;
    if (SteadyNow() >= give_up) return false;
    const timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};  // a killed process needs about one
    nanosleep(&pause, nullptr);
  }
  return true;
}

}  // namespace ddprun::launcher
