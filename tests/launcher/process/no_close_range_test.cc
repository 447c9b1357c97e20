// A kernel before 5.9, which has no close_range.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "launcher/process/process.h"
#include "launcher/process/spawn.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

// From now on close_range is unknown to this process and its children.
bool ForgetCloseRange() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

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
  if (!ForgetCloseRange()) return SkipTest("seccomp filters are not available here");
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
