#include "tests/support/free_port.h"

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/in_child.h"
#include "tests/support/loopback.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// 0, or why the kernel refuses.
int Bind(const UniqueFd& fd, int port, bool is_shared) {
  const int on = is_shared ? 1 : 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = Loopback(static_cast<uint16_t>(port));
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  return bind(fd.get(), raw, sizeof address) == 0 ? 0 : errno;
}

UniqueFd Socket() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

TEST_CASE("free port: who is told of it listens there, and whoever looks for a free one does not") {
  const int port = FreePort();
  const UniqueFd other = Socket(), told = Socket(), late = Socket();
  CHECK(Bind(other, port, /*is_shared=*/false) == EADDRINUSE);
  REQUIRE(Bind(told, port, /*is_shared=*/true) == 0);
  CHECK(listen(told.get(), 1) == 0);
  CHECK(Bind(late, port, /*is_shared=*/true) == EADDRINUSE);
}

// From now on this process has no sockets of IPv6.
bool ForgetIpv6() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_CASE("free port: a machine without IPv6 has free ports, too") {
  const std::string seen = InChild({}, []() -> std::string {
    if (!ForgetIpv6()) return "no filter";
    const int port = FreePort();
    const UniqueFd other = Socket(), told = Socket();
    if (Bind(other, port, /*is_shared=*/false) != EADDRINUSE) return "not held";
    return Bind(told, port, /*is_shared=*/true) == 0 ? "held" : "not to be had";
  });
  if (seen == "no filter") return SkipTest("seccomp filters are not available here");
  CHECK(seen == "held");
}

TEST_CASE("free port: a port that one program holds is not free for another, nor a second time") {
  std::set<int> ports;
  for (int i = 0; i < 20; ++i) ports.insert(FreePort());
  CHECK(ports.size() == 20);
  for (const int port : ports) {
    CHECK(InChild({}, [&] { return std::string(TakePort(port) ? "free" : "held"); }) == "held");
  }
}

}  // namespace
}  // namespace ddprun::testing
