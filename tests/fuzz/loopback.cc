#include "tests/fuzz/loopback.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "tests/fuzz/promise.h"

namespace ddprun::fuzz {
namespace {

// No wait comes to its end.
constexpr int kTimeoutMs = 60'000;

int FinishConnect(int fd) {
  pollfd polled{fd, POLLOUT, 0};
  int ready = -1;
  while ((ready = poll(&polled, 1, kTimeoutMs)) < 0) {
    if (errno != EINTR) return errno;
  }
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

UniqueFd ConnectTo(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int error = connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ? 0 : errno;
  // libFuzzer's alarm interrupts a connect, which goes on.
  if (error == EINTR) error = FinishConnect(fd.get());
  Promise(error == 0, "a port that listens takes a connection",
          std::generic_category().message(error));
  return fd;
}

}  // namespace ddprun::fuzz
