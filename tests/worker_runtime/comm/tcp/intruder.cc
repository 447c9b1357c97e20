#include "tests/worker_runtime/comm/tcp/intruder.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "rendezvous/base/check.h"
#include "tests/support/loopback.h"

namespace ddprun::testing {
namespace {

constexpr int kPatienceMs = 30'000;

bool Await(int socket, short events) {
  pollfd polled{socket, events, 0};
  int result;
  do {
    result = poll(&polled, 1, kPatienceMs);
  } while (result < 0 && errno == EINTR);
  return result > 0;
}

}  // namespace

Intruder::Intruder(uint16_t port)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  DDP_CHECK(socket_.is_open());
  const sockaddr_in address = Loopback(port);
  const int result =
      connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  DDP_CHECK(result == 0 || errno == EINPROGRESS || errno == ECONNREFUSED);
}

void Intruder::Say(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size() && Await(socket_.get(), POLLOUT)) {
    const ssize_t result =
        send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (result < 0 && errno != EAGAIN && errno != EINTR) return;
    if (result > 0) sent += static_cast<size_t>(result);
  }
}

bool Intruder::IsDropped(std::string* heard) {
  while (Await(socket_.get(), POLLIN)) {
    char bytes[256];
    const ssize_t result = recv(socket_.get(), bytes, sizeof bytes, 0);
    if (result == 0) return true;
    if (result < 0 && errno != EAGAIN && errno != EINTR) return true;
    if (result > 0 && heard != nullptr) heard->append(bytes, static_cast<size_t>(result));
  }
  return false;
}

bool Intruder::IsKept(std::chrono::milliseconds time) const {
  pollfd polled{socket_.get(), POLLIN, 0};
  return poll(&polled, 1, static_cast<int>(time.count())) == 0;
}

bool Intruder::IsRefused() {
  if (!Await(socket_.get(), POLLOUT)) return false;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  sockaddr_in peer{};
  socklen_t peer_length = sizeof peer;
  return error == ECONNREFUSED ||
         getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0;
}

}  // namespace ddprun::testing
