#include "launcher/process/exit_status.h"

#include <csignal>

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

TEST_CASE("exit_status: every exit code passes through unchanged") {
  for (int code = 0; code < 256; ++code) {
    const ExitStatus status = DecodeWaitInfo(CLD_EXITED, code);
    CHECK(ExitCodeOf(status) == code);
    CHECK(status.is_success() == (code == 0));
    CHECK(ToString(status) == "exit code " + std::to_string(code));
  }
}

TEST_CASE("exit_status: a signal counts as 128+n, with a core file too") {
  for (int signal = 1; signal <= 64; ++signal) {
    CHECK(ExitCodeOf(DecodeWaitInfo(CLD_KILLED, signal)) == 128 + signal);
    CHECK(ExitCodeOf(DecodeWaitInfo(CLD_DUMPED, signal)) == 128 + signal);
    CHECK_FALSE(DecodeWaitInfo(CLD_KILLED, signal).is_success());
  }
}

TEST_CASE("exit_status: the words name the signal and the core file") {
  CHECK(ToString(DecodeWaitInfo(CLD_KILLED, 9)) == "killed by signal 9 (SIGKILL)");
  CHECK(ToString(DecodeWaitInfo(CLD_DUMPED, 11)) == "killed by signal 11 (SIGSEGV), core dumped");
  CHECK(ToString(DecodeWaitInfo(CLD_KILLED, 40)) == "killed by signal 40");
  CHECK(SignalName(15) == "SIGTERM");
  CHECK(SignalName(40) == "signal 40");
}

TEST_CASE("exit_status: an end that something else reaped is a bug's, and no success") {
  const ExitStatus status{.is_unknown = true};
  CHECK(ExitCodeOf(status) == kExitBug);
  CHECK_FALSE(status.is_success());
  CHECK(ToString(status) == "ended, but its exit status was taken by another waiter in ddprun");
}

TEST_CASE("exit_status: the table is ascending and holds the documented numbers") {
  const int documented[] = {0, 2, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128};
  REQUIRE(kExitCodes.size() == std::size(documented));
  for (size_t i = 0; i < kExitCodes.size(); ++i) {
    CHECK(kExitCodes[i].code == documented[i]);
    CHECK_FALSE(kExitCodes[i].meaning.empty());
  }
}

}  // namespace
}  // namespace ddprun::launcher
