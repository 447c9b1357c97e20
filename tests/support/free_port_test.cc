#include "tests/support/free_port.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <set>
#include <string>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/in_child.h"
#include "tests/support/loopback.h"
#include "tests/support/seccomp.h"
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

TEST_CASE("free port: a machine without IPv6 has free ports, too") {
  const std::string seen = InChild({}, []() -> std::string {
    if (!FailSyscall(SYS_socket, EAFNOSUPPORT, {{0, AF_INET6}})) return "no filter";
    if (socket(AF_INET6, SOCK_STREAM, 0) >= 0) return "it has IPv6";
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
