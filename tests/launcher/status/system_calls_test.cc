#include "launcher/status/system_calls.h"

#include <sys/syscall.h>

#include <string>

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

TEST_CASE("system calls: named on both machines, with the descriptor") {
  CHECK(ParseSystemCall("202 0x7f01 0x189 0x0 0x0 0x0 0x7f 0x7ffe 0x7f90\n", Machine::kX8664) ==
        SystemCall{"futex"});
  CHECK(ParseSystemCall("98 0x7f01 0x189", Machine::kArm64) == SystemCall{"futex"});
  CHECK(ParseSystemCall("0 0x3 0x7f01 0x1", Machine::kX8664) == SystemCall{"read", 3});
  CHECK(ParseSystemCall("63 0x3 0x7f01 0x1", Machine::kArm64) == SystemCall{"read", 3});
  CHECK(ParseSystemCall("9999 0x3", Machine::kX8664) == SystemCall{"system call 9999"});
}

TEST_CASE("system calls: what is none") {
  for (const char* text :
       {"", "running\n", "-1 0x7ffe 0x7f90\n", " ", "x 0x1", "99999999999 0x1"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseSystemCall(text, Machine::kX8664));
  }
  CHECK(ParseSystemCall("0", Machine::kX8664) == SystemCall{"read"});
  CHECK(ParseSystemCall("0 junk", Machine::kX8664) == SystemCall{"read"});
  CHECK(ParseSystemCall("0 0xffffffffffffffff", Machine::kX8664) == SystemCall{"read"});
}

// The headers of the machine that we are built for.
TEST_CASE("system calls: the numbers are this machine's") {
  const auto name = [](long number) { return ParseSystemCall(std::to_string(number))->name; };
  CHECK(name(SYS_read) == "read");
  CHECK(name(SYS_recvmsg) == "recvmsg");
  CHECK(name(SYS_futex) == "futex");
  CHECK(name(SYS_epoll_pwait) == "epoll_pwait");
  CHECK(name(SYS_clock_nanosleep) == "clock_nanosleep");
  CHECK(name(SYS_pselect6) == "pselect6");
  CHECK(name(SYS_ppoll) == "ppoll");
  CHECK(name(SYS_ioctl) == "ioctl");
  CHECK(name(SYS_wait4) == "wait4");
  CHECK(name(SYS_waitid) == "waitid");
  CHECK(name(SYS_flock) == "flock");
  CHECK(name(SYS_fsync) == "fsync");
  CHECK(name(SYS_fdatasync) == "fdatasync");
  CHECK(name(SYS_accept4) == "accept4");
  CHECK(name(SYS_rt_sigtimedwait) == "rt_sigtimedwait");
  CHECK(name(SYS_rt_sigsuspend) == "rt_sigsuspend");
  CHECK(name(SYS_restart_syscall) == "restart_syscall");
  CHECK(name(SYS_recvmmsg) == "recvmmsg");
  CHECK(name(SYS_sendmmsg) == "sendmmsg");
  CHECK(name(SYS_semtimedop) == "semtimedop");
  CHECK(name(SYS_membarrier) == "membarrier");
  CHECK(name(SYS_splice) == "splice");
  CHECK(name(SYS_syncfs) == "syncfs");
}

}  // namespace
}  // namespace ddprun::launcher
