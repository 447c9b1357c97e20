#include "rendezvous/server/port_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::rendezvous {

absl::StatusOr<std::unique_ptr<PortListener>> PortListener::Start(UniqueFd listening_socket,
                                                                  Handlers handlers) {
  auto listener = std::unique_ptr<PortListener>(
      new PortListener(std::move(listening_socket), std::move(handlers)));
  if (!listener->stop_.is_open()) return absl::ErrnoToStatus(errno, "watch the rendezvous port");
  listener->thread_ = StartQuietThread([raw = listener.get()] { raw->Run(); });
  if (!listener->thread_.joinable()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("start a thread for the rendezvous port: ", kNoThreadText));
  }
  return listener;
}

PortListener::~PortListener() {
  if (!thread_.joinable()) return;
  stop_.Set();
  thread_.join();
}

void PortListener::Run() {
  std::vector<pollfd> polled;
  for (;;) {
    const TimePoint before = SteadyNow();
    const bool accepts = !is_crowded() && before >= accept_again_at_;
    // poll passes over a negative descriptor.
    polled = {{stop_.fd(), POLLIN, 0}, {accepts ? listening_socket_.get() : -1, POLLIN, 0}};
    for (const Connection& silent : silent_) polled.push_back({silent.fd.get(), POLLIN, 0});
    poll(polled.data(), polled.size(), MillisecondsToWait(before));
    if (polled[0].revents != 0) return;
    const TimePoint now = SteadyNow();
    auto next = silent_.begin();
    for (size_t i = 2; i < polled.size(); ++i) {
      const auto connection = next++;
      if (polled[i].revents != 0) OnReadable(connection);
    }
    DropSilent(now);
    if (polled[1].revents != 0) AcceptAll(now);
    look_at_connections_at_ = handlers_.connections.DropLate(now);
  }
}

int PortListener::MillisecondsToWait(TimePoint now) const {
  Duration wait = std::chrono::hours(1);
  if (!silent_.empty()) {
    wait = std::min(wait, Duration(silent_.front().since + silence_limit() - now));
  }
  if (look_at_connections_at_) wait = std::min(wait, Duration(*look_at_connections_at_ - now));
  if (accept_again_at_ > now) wait = std::min(wait, Duration(accept_again_at_ - now));
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return static_cast<int>(std::max<int64_t>(0, milliseconds));
}

void PortListener::AcceptAll(TimePoint now) {
  while (!is_crowded()) {
    UniqueFd fd(accept4(listening_socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      accept_again_at_ = now + kAcceptRest;
      if (handlers_.on_no_descriptor) handlers_.on_no_descriptor();
      return;
    }
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    silent_.push_back(Connection{.fd = std::move(fd), .since = now});
    // Mostly the first byte is here already; that saves a turn of the loop.
    OnReadable(std::prev(silent_.end()));
  }
}

void PortListener::OnReadable(std::list<Connection>::iterator connection) {
  char first = 0;
  const int fd = connection->fd.get();
  if (connection->is_answered) {
    std::array<char, 256> ignored;
    const ssize_t size = recv(fd, ignored.data(), ignored.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) silent_.erase(connection);
    return;
  }
  const ssize_t size = recv(fd, &first, 1, MSG_PEEK);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (size == 1 && first == kHelloFirstByte) {
    AnswerHello(*connection);
    return;
  }
  UniqueFd taken = std::move(connection->fd);
  const TimePoint until = connection->since + handlers_.silence_limit;
  silent_.erase(connection);
  if (size != 1) return;
  if (first == 0x00 && handlers_.on_store) {
    handlers_.on_store(std::move(taken));
  } else if (first == 'P' && handlers_.connections.Add(taken.get(), until)) {
    handlers_.on_http2(std::move(taken));
  }
}

void PortListener::AnswerHello(Connection& connection) {
  // The request is taken off the socket before the reply: closing with unread bytes would reset the
  // connection, and the reply could be lost with it.
  std::array<char, 256> request;
  [[maybe_unused]] const ssize_t taken =
      recv(connection.fd.get(), request.data(), request.size(), 0);
  // A fresh connection's send buffer takes so little at once; if not, the other side asks again.
  const std::string reply = handlers_.hello_reply();
  [[maybe_unused]] const ssize_t sent =
      send(connection.fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
  shutdown(connection.fd.get(), SHUT_WR);
  connection.is_answered = true;
}

void PortListener::DropSilent(TimePoint now) {
  while (!silent_.empty()) {
    if (now < silent_.front().since + silence_limit()) return;
    silent_.pop_front();
  }
}

}  // namespace ddprun::rendezvous
