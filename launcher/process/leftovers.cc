#include "launcher/process/leftovers.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/process.h"
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
  bool is_kernel_thread = false;
  uint64_t start = 0;  // in clock ticks since the machine's boot
};

// One process as a walk meets it.
struct Met {
  int proc = -1;  // the open /proc
  pid_t pid = 0;
};

// "<pid>/<leaf>" into `path`, which holds 32 bytes.
DDPRUN_RAW void FormatPath(pid_t pid, const char* leaf, char* path) {
  char digits[12];
  int count = 0;
  for (int rest = pid; rest > 0; rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  char* out = path;
  while (count > 0) *out++ = digits[--count];
  *out++ = '/';
  while (*leaf != '\0') *out++ = *leaf++;
  *out = '\0';
}

DDPRUN_RAW int OpenProcessFile(Met met, const char* leaf) {
  char path[32];
  FormatPath(met.pid, leaf, path);
  return static_cast<int>(syscall(SYS_openat, met.proc, path, O_RDONLY | O_CLOEXEC));
}

DDPRUN_RAW long ReadSome(int fd, char* buffer, size_t size) {
  long result = 0;
  do {
    result = syscall(SYS_read, fd, buffer, size);
  } while (result < 0 && errno == EINTR);
  return result;
}

DDPRUN_RAW uint64_t ParseNumber(const char*& text) {
  uint64_t value = 0;
  while (*text == ' ' || *text == '-') ++text;  // a terminal's group may be -1
  while (*text >= '0' && *text <= '9') value = value * 10 + static_cast<uint64_t>(*text++ - '0');
  return value;
}

DDPRUN_RAW pid_t ParsePid(const char*& text) { return static_cast<pid_t>(ParseNumber(text)); }

// /proc/<pid>/stat: "pid (name) state parent group session ...". The name may hold anything, so the
// fields are counted from the last parenthesis.
DDPRUN_RAW bool ReadFacts(Met met, ProcessFacts* facts) {
  constexpr uint64_t kKernelThreadFlag = 0x00200000;  // PF_KTHREAD
  const int fd = OpenProcessFile(met, "stat");
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
  for (int field = 7; field <= 8; ++field) ParseNumber(rest);
  facts->is_kernel_thread = (ParseNumber(rest) & kKernelThreadFlag) != 0;
  for (int field = 10; field <= 21; ++field) ParseNumber(rest);
  facts->start = ParseNumber(rest);
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

// kUnknown: the environment cannot be read, or is empty, as it is for a moment during exec.
enum class Sign { kNo, kYes, kUnknown };

DDPRUN_RAW Sign CarriesMark(Met met, const char* mark) {
  const int fd = OpenProcessFile(met, "environ");
  if (fd < 0) return Sign::kUnknown;
  MarkMatcher matcher(mark);
  bool is_found = false;
  bool is_empty = true;
  char bytes[4096];
  long size = 0;
  while (!is_found && (size = ReadSome(fd, bytes, sizeof(bytes))) > 0) {
    is_empty = false;
    for (long i = 0; i < size && !is_found; ++i) is_found = matcher.Push(bytes[i]);
  }
  syscall(SYS_close, fd);
  // A block may end without its last zero when the process has overwritten it.
  if (is_found || matcher.Push('\0')) return Sign::kYes;
  return is_empty ? Sign::kUnknown : Sign::kNo;
}

// Whether the path of a cgroup of `pid` holds `name`, which begins with its only slash: so a search
// that failed can only begin anew at the next one.
DDPRUN_RAW bool IsInCgroup(Met met, const char* name) {
  const int fd = OpenProcessFile(met, "cgroup");
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

DDPRUN_RAW bool Belongs(Met met, const LeftoverQuery& query, pid_t self) {
  ProcessFacts facts;
  if (!ReadFacts(met, &facts)) return false;
  if (facts.state == 'Z' || facts.state == 'X' || facts.state == 'x') return false;
  if (facts.is_kernel_thread) return false;
  if (query.parent != 0 && facts.parent == query.parent) return true;
  if (query.sessions != nullptr && query.sessions->Meet(facts.session)) return true;
  if (query.foreign != nullptr && query.foreign->Knows(met.pid, facts.start)) return false;
  const Sign sign = query.mark[0] != '\0' ? CarriesMark(met, query.mark) : Sign::kNo;
  if (sign == Sign::kYes) return true;
  if (query.cgroup[0] != '\0' && IsInCgroup(met, query.cgroup)) return true;
  // A child of ours that is being started still shows our own environment.
  if (query.foreign != nullptr && sign == Sign::kNo && facts.parent != self) {
    query.foreign->Add(met.pid, facts.start);
  }
  return false;
}

// Signals the process if it belongs to the job, and not whoever has the number by the time of the
// signal.
DDPRUN_RAW bool SignalOne(Met met, const LeftoverQuery& query, int signal, pid_t self) {
  if (!Belongs(met, query, self)) return false;
  if (signal == 0) return true;
  const long pidfd = syscall(SYS_pidfd_open, met.pid, 0);
  if (pidfd < 0) {
    if (errno == ESRCH) return false;
    return syscall(SYS_kill, met.pid, signal) == 0;
  }
  const bool is_same = Belongs(met, query, self);
  if (is_same && syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) != 0 &&
      errno == ENOSYS) {
    syscall(SYS_kill, met.pid, signal);
  }
  syscall(SYS_close, pidfd);
  return is_same;
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

bool ForeignProcesses::Knows(pid_t pid, uint64_t start) {
  const Process process{pid, start};
  if (!std::binary_search(known_.begin(), known_.end(), process)) return false;
  met_.push_back(process);
  return true;
}

void ForeignProcesses::EndWalk() {
  known_.swap(met_);
  met_.clear();
  std::sort(known_.begin(), known_.end());
}

DDPRUN_RAW int SignalLeftovers(const LeftoverQuery& query, int signal) {
  const int directory = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, query.proc, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
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
      if (SignalOne({directory, pid}, query, signal, self)) ++found;
    }
  }
  syscall(SYS_close, directory);
  if (query.foreign != nullptr) query.foreign->EndWalk();
  return found;
}

bool KillLeftovers(const std::string& mark, const JobCgroup* cgroup, Duration limit) {
  ForeignProcesses foreign;
  LeftoverQuery query{.mark = mark.c_str(), .foreign = &foreign};
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
