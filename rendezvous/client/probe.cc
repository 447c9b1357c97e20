// How one address answers a connection and a hello.

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/look.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::rendezvous {
namespace {

using Outcome = Looked::Outcome;

Looked FromErrno(int error) {
  return {error == ECONNREFUSED ? Outcome::kRefused : Outcome::kUnreachable,
          std::generic_category().message(error)};
}

// Nobody waits for the answer any more.
Looked Interrupted() { return {Outcome::kUnreachable, "interrupted"}; }

Looked Connect(int fd, const SocketAddress& address, const Interrupt& interrupt) {
  if (connect(fd, address.get(), address.size) == 0) return {Outcome::kOurs, ""};
  if (errno != EINPROGRESS && errno != EINTR) return FromErrno(errno);
  switch (interrupt.WaitForFd(fd, POLLOUT, SteadyNow() + kConnectTimeout)) {
    case Interrupt::Ready::kInterrupted:
      return Interrupted();
    case Interrupt::Ready::kTimeout:
      return FromErrno(ETIMEDOUT);
    case Interrupt::Ready::kFd:
      break;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return FromErrno(error);
  // A port of our own range that nobody listens on can connect to itself: nobody is there.
  if (AddressText(LocalAddress(fd)) == AddressText(address)) return FromErrno(ECONNREFUSED);
  return {Outcome::kOurs, ""};
}

Looked ReadReply(int fd, const std::string& run_id, const Interrupt& interrupt) {
  const TimePoint deadline = SteadyNow() + kHelloTimeout;
  std::string reply;
  for (;;) {
    const Interrupt::Ready ready = interrupt.WaitForFd(fd, POLLIN, deadline);
    if (ready == Interrupt::Ready::kInterrupted) return Interrupted();
    if (ready == Interrupt::Ready::kTimeout) return {Outcome::kSilent, "no answer within 5 s"};
    std::array<char, kMaxHelloReplyBytes> bytes;
    const ssize_t size = recv(fd, bytes.data(), bytes.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return {Outcome::kClosed, "the connection was closed without an answer"};
    reply.append(bytes.data(), static_cast<size_t>(size));
    Hello hello;
    switch (ParseHelloReply(reply, hello)) {
      case HelloAnswer::kIncomplete:
        break;
      case HelloAnswer::kHello:
        if (!Serves(hello, run_id)) return {Outcome::kOtherRun, CleanText(hello.run_id)};
        return {.outcome = Outcome::kOurs, .is_apart = hello.is_apart};
      case HelloAnswer::kForeign:
        return {Outcome::kForeign, CleanText(reply.substr(0, 60))};
    }
  }
}

}  // namespace

Looked Probe(const SocketAddress& address, const std::string& run_id, const Interrupt& interrupt) {
  const UniqueFd fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return FromErrno(errno);
  Looked connected = Connect(fd.get(), address, interrupt);
  if (connected.outcome != Outcome::kOurs) return connected;
  constexpr size_t kRequestBytes = sizeof(kHelloRequest) - 1;
  // A fresh connection's buffer takes a line; a peer that is gone already shows when reading.
  [[maybe_unused]] const ssize_t sent = send(fd.get(), kHelloRequest, kRequestBytes, MSG_NOSIGNAL);
  return ReadReply(fd.get(), CleanText(run_id), interrupt);
}

}  // namespace ddprun::rendezvous
