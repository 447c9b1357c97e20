#include "launcher/process/leftovers.h"

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "launcher/process/folder_note.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/process.h"
#include "launcher/process/session_table.h"
#include "process/raw_syscall.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// An outer mark longer than this is dropped, which bounds the nesting of jobs within jobs at about
// ten.
constexpr size_t kMaxOuterMark = 200;
constexpr char kPrefix[] = "DDPRUN_JOB_MARK=";

struct ProcessFacts {
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  bool is_exiting = false;
  bool is_zombie = false;
  bool is_gone = false;
};

DDPRUN_RAW uint64_t ParseNumber(const char*& text) {
  uint64_t value = 0;
  while (*text == ' ' || *text == '-') ++text;  // a terminal's group may be -1
  while (*text >= '0' && *text <= '9') value = value * 10 + static_cast<uint64_t>(*text++ - '0');
  return value;
}

DDPRUN_RAW pid_t ParsePid(const char*& text) { return static_cast<pid_t>(ParseNumber(text)); }

DDPRUN_RAW int OpenFile(int process, const char* name) {
  return static_cast<int>(syscall(SYS_openat, process, name, O_RDONLY | O_CLOEXEC));
}

// /proc/<pid>/stat: "pid (name) state parent group session ...". The name may hold anything, so the
// fields are counted from the last parenthesis. False for what is no living process of a user, or
// not any more, and that is noted.
DDPRUN_RAW bool ReadFacts(int process, ProcessFacts* facts) {
  constexpr uint64_t kKernelThreadFlag = 0x00200000;  // PF_KTHREAD
  constexpr uint64_t kExitingFlag = 0x00000004;       // PF_EXITING
  const int fd = OpenFile(process, "stat");
  char text[512];
  const long size = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof(text) - 1);
  if (fd >= 0) syscall(SYS_close, fd);
  if (size <= 0) {
    facts->is_gone = true;
    return false;
  }
  text[size] = '\0';
  long end = size - 1;
  while (end > 0 && text[end] != ')') --end;
  if (end + 3 >= size) return false;
  const char state = text[end + 2];
  facts->is_zombie = state == 'Z' || state == 'X' || state == 'x';
  const char* rest = text + end + 3;
  facts->parent = ParsePid(rest);
  facts->group = ParsePid(rest);
  facts->session = ParsePid(rest);
  for (int field = 7; field <= 8; ++field) ParseNumber(rest);
  const uint64_t flags = ParseNumber(rest);
  facts->is_exiting = (flags & kExitingFlag) != 0;
  return (flags & kKernelThreadFlag) == 0 && !facts->is_zombie;
}

// Whether `matcher` finds what it looks for in a file of the process.
template <typename Matcher>
DDPRUN_RAW bool FindIn(int process, const char* name, Matcher matcher) {
  const int fd = OpenFile(process, name);
  if (fd < 0) return false;
  bool is_found = false;
  char bytes[4096];
  long size = 0;
  while (!is_found && (size = syscall(SYS_read, fd, bytes, sizeof(bytes))) > 0) {
    for (long i = 0; i < size && !is_found; ++i) is_found = matcher.Push(bytes[i]);
  }
  syscall(SYS_close, fd);
  // A block may end without its last zero when the process has overwritten it.
  return is_found || matcher.Push('\0');
}

// Whether a variable of an environment block is "<prefix><mark>", or "<prefix><mark>/..." of a job
// inside ours.
class MarkMatcher {
 public:
  DDPRUN_RAW explicit MarkMatcher(const char* mark) : mark_(mark) {}

  DDPRUN_RAW bool Push(char byte) {
    const bool is_end = byte == '\0';
    if (matched_ >= 0 && Expected() == '\0' && (is_end || byte == '/')) return true;
    if (is_end) {
      matched_ = 0;
    } else if (matched_ >= 0) {
      matched_ = Expected() == byte ? matched_ + 1 : -1;
    }
    return false;
  }

 private:
  DDPRUN_RAW char Expected() const {
    constexpr int kPrefixSize = sizeof(kPrefix) - 1;
    return matched_ < kPrefixSize ? kPrefix[matched_] : mark_[matched_ - kPrefixSize];
  }

  const char* const mark_;
  int matched_ = 0;  // bytes; -1: not this variable
};

// Whether a text holds `name`, which begins with its only slash: so a search that failed can only
// begin anew at the next one.
class NameMatcher {
 public:
  DDPRUN_RAW explicit NameMatcher(const char* name) : name_(name), expected_(name) {}

  DDPRUN_RAW bool Push(char byte) {
    if (byte != *expected_) expected_ = name_;
    if (byte == *expected_) ++expected_;
    return *expected_ == '\0';
  }

 private:
  const char* const name_;
  const char* expected_;
};

// Whether a list that ends with a 0 holds it; null: an empty one.
DDPRUN_RAW bool IsIn(const pid_t* list, pid_t pid) {
  for (; list != nullptr && *list != 0; ++list) {
    if (*list == pid) return true;
  }
  return false;
}

DDPRUN_RAW bool Belongs(int process, pid_t pid, const LeftoverQuery& query) {
  ProcessFacts facts;
  if (!ReadFacts(process, &facts)) {
    // A child of ours may have ended behind the names that were read.
    const bool is_dead_child = facts.is_zombie && facts.parent == query.exiting_parent;
    if ((facts.is_gone || is_dead_child) && query.vanished != nullptr) {
      query.vanished->is_any = true;
    }
    return false;
  }
  if (IsIn(query.helpers, facts.session)) return false;
  for (const pid_t* group = query.groups; group != nullptr && *group != 0; ++group) {
    if (facts.group == *group && pid != *group) return true;
  }
  if (query.parent != 0 && facts.parent == query.parent) return true;
  const bool is_exiting_child = facts.is_exiting && facts.parent == query.exiting_parent;
  if (query.exiting_parent != 0 && is_exiting_child) return true;
  if (query.sessions != nullptr && query.sessions->Meet(facts.session)) return true;
  if (query.mark[0] != '\0' && FindIn(process, "environ", MarkMatcher(query.mark))) return true;
  return query.cgroup[0] != '\0' && FindIn(process, "cgroup", NameMatcher(query.cgroup));
}

// Signals the process if it belongs to the job, and not whoever has the number by the time of the
// signal: `process` is its folder, which is nobody else's later.
DDPRUN_RAW bool SignalOne(int process, pid_t pid, const LeftoverQuery& query, int signal) {
  if (!Belongs(process, pid, query)) return false;
  if (signal == 0) return true;
  bool is_there = true;
  const long pidfd = syscall(SYS_pidfd_open, pid, 0);
  if (pidfd < 0) {
    is_there = errno != ESRCH && syscall(SYS_kill, pid, signal) == 0;
  } else {
    is_there = Belongs(process, pid, query);
    if (is_there && syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) != 0 &&
        errno == ENOSYS) {
      syscall(SYS_kill, pid, signal);
    }
    syscall(SYS_close, pidfd);
  }
  if (!is_there && query.vanished != nullptr) query.vanished->is_ours = true;
  return true;
}

}  // namespace

std::string NewJobMark() {
  uint64_t bits[2] = {};
  DDP_CHECK(getrandom(bits, sizeof(bits), 0) == static_cast<ssize_t>(sizeof(bits)));
  const std::string own =
      absl::StrCat(absl::Hex(bits[0], absl::kZeroPad16), absl::Hex(bits[1], absl::kZeroPad16));
  const char* outer = std::getenv(kJobMarkVariable);
  if (outer == nullptr || *outer == '\0' || std::string(outer).size() > kMaxOuterMark) return own;
  return absl::StrCat(outer, "/", own);
}

DDPRUN_RAW int SignalLeftovers(const LeftoverQuery& query, int signal) {
  const int proc = OpenFolder(AT_FDCWD, query.proc);
  if (proc < 0) return 0;
  const pid_t self = static_cast<pid_t>(syscall(SYS_getpid));
  int found = 0;
  RawEntries entries(proc);
  while (const char* name = entries.Next()) {
    const char* digits = name;
    const pid_t pid = ParsePid(digits);
    if (pid <= 1 || pid == self || pid == query.spare || IsIn(query.helpers, pid)) continue;
    const int process = OpenFolder(proc, name);
    if (process < 0) {
      if (query.vanished != nullptr) query.vanished->is_any = true;
      continue;
    }
    if (SignalOne(process, pid, query, signal)) {
      ++found;
      if (query.visit != nullptr) query.visit(query.context, pid);
    }
    syscall(SYS_close, process);
  }
  syscall(SYS_close, proc);
  return found;
}

bool KillLeftovers(const std::string& mark, const JobCgroup* cgroup, Duration limit) {
  LeftoverQuery query{.mark = mark.c_str()};
  if (cgroup != nullptr) query.cgroup = cgroup->name().c_str();
  const TimePoint give_up = SteadyNow() + limit;
  for (int empty_walks = 0; empty_walks < 2;) {
    // The agent is a subreaper: without children it has no descendants, hence no leftovers.
    if (!HasChildren()) return true;
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
