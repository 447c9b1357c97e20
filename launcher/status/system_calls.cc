#include "launcher/status/system_calls.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;

// Those in which a program waits. arm64 has the kernel's generic numbers, and none of the old calls
// (-1) that newer ones took the place of.
struct Row {
  const char* name;
  int x86_64;
  int arm64;
  bool takes_descriptor;  // as its first argument
};

constexpr Row kRows[] = {
    {"read", 0, 63, true},
    {"write", 1, 64, true},
    {"openat", 257, 56, false},
    {"open", 2, -1, false},
    {"close", 3, 57, true},
    {"poll", 7, -1, false},
    {"ioctl", 16, 29, true},
    {"pread64", 17, 67, true},
    {"pwrite64", 18, 68, true},
    {"readv", 19, 65, true},
    {"writev", 20, 66, true},
    {"select", 23, -1, false},
    {"sched_yield", 24, 124, false},
    {"pause", 34, -1, false},
    {"nanosleep", 35, 101, false},
    {"sendfile", 40, 71, true},
    {"connect", 42, 203, true},
    {"accept", 43, 202, true},
    {"sendto", 44, 206, true},
    {"recvfrom", 45, 207, true},
    {"sendmsg", 46, 211, true},
    {"recvmsg", 47, 212, true},
    {"wait4", 61, 260, false},
    {"semop", 65, 193, false},
    {"msgrcv", 70, 188, false},
    {"fcntl", 72, 25, true},
    {"flock", 73, 32, true},
    {"fsync", 74, 82, true},
    {"fdatasync", 75, 83, true},
    {"rt_sigtimedwait", 128, 137, false},
    {"rt_sigsuspend", 130, 133, false},
    {"futex", 202, 98, false},
    {"io_getevents", 208, 4, false},
    {"semtimedop", 220, 192, false},
    {"restart_syscall", 219, 128, false},
    {"clock_nanosleep", 230, 115, false},
    {"epoll_wait", 232, -1, true},
    {"waitid", 247, 95, false},
    {"pselect6", 270, 72, false},
    {"ppoll", 271, 73, false},
    {"splice", 275, 76, true},
    {"epoll_pwait", 281, 22, true},
    {"accept4", 288, 242, true},
    {"preadv", 295, 69, true},
    {"pwritev", 296, 70, true},
    {"recvmmsg", 299, 243, true},
    {"syncfs", 306, 267, true},
    {"sendmmsg", 307, 269, true},
    {"membarrier", 324, 283, false},
    {"io_uring_enter", 426, 426, true},
    {"epoll_pwait2", 441, 441, true},
    {"futex_waitv", 449, 449, false},
};

}  // namespace

std::optional<SystemCall> ParseSystemCall(std::string_view given, Machine machine) {
  const string_view text = absl::StripAsciiWhitespace(string_view(given.data(), given.size()));
  const size_t end = text.find(' ');
  int number = -1;
  if (!absl::SimpleAtoi(text.substr(0, end), &number) || number < 0) return std::nullopt;
  for (const Row& row : kRows) {
    if ((machine == Machine::kArm64 ? row.arm64 : row.x86_64) != number) continue;
    SystemCall call{.name = row.name};
    if (!row.takes_descriptor || end == string_view::npos) return call;
    const string_view rest = text.substr(end + 1);
    uint64_t argument = 0;
    if (absl::SimpleHexAtoi(rest.substr(0, rest.find(' ')), &argument) && argument < (1U << 30)) {
      call.descriptor = static_cast<int>(argument);
    }
    return call;
  }
  return SystemCall{.name = absl::StrCat("system call ", number)};
}

}  // namespace ddprun::launcher
