// Sandboxes in which the kernel does not tell whose a connection on loopback is.
#include <doctest/doctest.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"
#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/seccomp.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr char kWarning[] = "the kernel does not say who owns a connection on loopback";

bool HasSockDiag() {
  return UniqueFd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)).is_open();
}

// From now on sock_diag is unknown to this process and its children.
bool ForgetSockDiag() {
  return FailSyscall(SYS_socket, EPROTONOSUPPORT, {{0, AF_NETLINK}, {2, NETLINK_SOCK_DIAG}}) &&
         !HasSockDiag();
}

// A shell's words that take the tables from the process that goes on with what follows.
constexpr char kHideTables[] =
    "mount -t tmpfs none /proc/$$/net && test ! -e /proc/net/tcp || exit 1; exec \"$@\"";

Strings InSandbox(const Strings& command) {
  Strings argv = {"/usr/bin/unshare", "--mount", "/bin/sh", "-c", kHideTables, "sh"};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

// One case: the filter stays.
TEST_CASE("other users: where neither sock_diag nor /proc tells of them one is warned once") {
  if (!HasSockDiag()) return SkipTest("this kernel has no sock_diag");
  if (!ForgetSockDiag()) return SkipTest("seccomp filters are not available here");
  Subprocess sandbox(InSandbox({"/bin/true"}));
  if (sandbox.Wait() != 0) return SkipTest("nothing can be mounted in /proc: " + sandbox.err());
  Job job;
  const std::string token =
      WriteFile(job.File("token"), "6b1f0c8e5a7d4b2390e1f4a6c8d7b5e3\n", 0600);
  const std::string worker = Runfile("tests/e2e/toy_worker");
  const Strings alone = {Runfile("ddprun"), "--standalone", worker, "connect"};
  const Strings secret = {Runfile("ddprun"), "--nnodes=1", "--token-file=" + token, worker,
                          "connect"};
  const Strings open = {Runfile("ddprun"),
                        "--nnodes=1",
                        "--rdzv-id=open",
                        "--rdzv-backend=c10d",
                        "--rdzv-endpoint=" + job.endpoint(),
                        worker,
                        "connect"};
  for (const Strings& command : {alone, secret, open}) {
    const Node told = job.RunProgram(command);
    CHECK_MESSAGE(told->Wait() == 0, told->Describe());
    CHECK(told->err() != Contains(kWarning));
    const Node untold = job.RunProgram(InSandbox(command));
    CHECK_MESSAGE(untold->Wait() == 0, untold->Describe());
    CHECK_MESSAGE(untold->out() == "connected\n", untold->Describe());
    const size_t at = untold->err().find(kWarning);
    CHECK_MESSAGE(at != std::string::npos, untold->Describe());
    CHECK_MESSAGE(untold->err().rfind(kWarning) == at, untold->Describe());
  }
  // Whose network is trusted need not be told of users.
  Strings trusting = open;
  trusting[4] = "--rdzv-endpoint=" + rendezvous::HostName() + ":" + std::to_string(job.port());
  const Node trusts = job.RunProgram(InSandbox(trusting));
  CHECK_MESSAGE(trusts->Wait() == 0, trusts->Describe());
  CHECK(trusts->err() != Contains(kWarning));
  Subprocess coordinator(InSandbox(
      {Runfile("ddprun"), "coordinator", "--bind=127.0.0.1:" + std::to_string(job.port())}));
  CHECK_MESSAGE(coordinator.WaitForErr(kWarning), coordinator.Describe());
}

}  // namespace
}  // namespace ddprun::testing
