// A kernel before 5.9, which has no close_range.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/seccomp.h"
#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

std::string DescriptorsWith(int counters_fd, int round_key_fd = -1) {
  SpawnRequest request = {
      .executable = ToyWorker(), .argv = {"toy_worker", "fds"}, .env = TestEnvironment()};
  CapturePipe output;
  request.stdout_fd = output.write_end();
  request.counters_fd = counters_fd;
  request.round_key_fd = round_key_fd;
  const SpawnResult result = Spawn(request, TestBaseline());
  REQUIRE_MESSAGE(result.ok(), result.text);
  std::string text = output.ReadAll();
  ReapChild(result.pid);
  return text;
}

// One case: the filter stays.
TEST_CASE("spawn: without close_range a worker has no other descriptors either") {
  if (!FailSyscall(SYS_close_range, ENOSYS))
    return SkipTest("seccomp filters are not available here");
  REQUIRE(syscall(SYS_close_range, ~0U, ~0U, 0) == -1);
  const UniqueFd low(open("/dev/null", O_RDONLY));
  const UniqueFd high(fcntl(low.get(), F_DUPFD, 200));
  CHECK(DescriptorsWith(-1) == "0 1 2\n");
  CHECK(DescriptorsWith(low.get()) == "0 1 2 198\n");
  const UniqueFd at_number(fcntl(low.get(), F_DUPFD_CLOEXEC, 198));
  REQUIRE(at_number.get() == 198);
  CHECK(DescriptorsWith(at_number.get()) == "0 1 2 198\n");
  CHECK(DescriptorsWith(-1) == "0 1 2\n");
  CHECK(DescriptorsWith(-1, low.get()) == "0 1 2 199\n");
  CHECK(DescriptorsWith(low.get(), at_number.get()) == "0 1 2 198 199\n");
}

}  // namespace
}  // namespace ddprun::launcher
