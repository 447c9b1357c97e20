#include "rendezvous/client/look.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::rendezvous {
namespace {

using Outcome = Looked::Outcome;

constexpr Duration kConnectTimeout = std::chrono::seconds(2);
constexpr Duration kKernelTimeout = std::chrono::milliseconds(500);
constexpr Duration kHelloTimeout = std::chrono::seconds(5);

// EINTR: nobody waits for the answer any more.
Looked FromErrno(int error) {
  const bool is_unanswered = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
                             error == EHOSTDOWN || error == ENETDOWN;
  return {.outcome = error == ECONNREFUSED ? Outcome::kRefused : Outcome::kUnreachable,
          .text = std::generic_category().message(error),
          .is_unanswered = is_unanswered};
}

// What keeps the connection from being made; nullopt: it is.
std::optional<Looked> Connect(int fd, const SocketAddress& address, TimePoint deadline,
                              const Interrupt& interrupt) {
  if (connect(fd, address.get(), address.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return FromErrno(errno);
    const auto ready = interrupt.WaitForFd(fd, POLLOUT, deadline);
    if (ready == Interrupt::Ready::kInterrupted) return FromErrno(EINTR);
    if (ready == Interrupt::Ready::kTimeout) return FromErrno(ETIMEDOUT);
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return FromErrno(error);
  // A port of our own range that nobody listens on can connect to itself: nobody is there.
  if (AddressText(LocalAddress(fd)) == AddressText(address)) return FromErrno(ECONNREFUSED);
  return std::nullopt;
}

Looked ReadReply(int fd, const ContactOptions& options, const Interrupt& interrupt) {
  const std::string run_id = CleanText(options.policy.run_id);
  const TimePoint deadline = SteadyNow() + kHelloTimeout;
  std::string reply;
  for (;;) {
    const auto ready = interrupt.WaitForFd(fd, POLLIN, deadline);
    if (ready == Interrupt::Ready::kInterrupted) return FromErrno(EINTR);
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
        // One that takes any run was started for another job than ours, which hosts its own.
        if (!Serves(hello, run_id) || (hello.run_id.empty() && !options.more_ports.empty())) {
          return {Outcome::kOtherRun, CleanText(hello.run_id)};
        }
        return {.outcome = Outcome::kOurs, .is_apart = hello.is_apart};
      case HelloAnswer::kForeign:
        return {Outcome::kForeign, CleanText(reply.substr(0, 60))};
    }
  }
}

// Whether the machine's kernel answers a connect to a port on which nobody listens. A stopped
// process takes no connection from its queue, and when that is full its kernel answers nothing
// there.
bool DoesKernelAnswer(SocketAddress address, const Interrupt& interrupt) {
  constexpr uint16_t kUnusedPort = 1;
  const std::optional<SocketAddress> unused = ParseIp(IpText(address), kUnusedPort);
  if (!unused) return false;
  const UniqueFd fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return false;
  const std::optional<Looked> trouble =
      Connect(fd.get(), *unused, SteadyNow() + kKernelTimeout, interrupt);
  return !trouble || trouble->outcome == Outcome::kRefused;
}

// Connects to one address and exchanges the greeting of rendezvous/wire/hello.h.
Looked Probe(const SocketAddress& address, const ContactOptions& options,
             const Interrupt& interrupt) {
  const UniqueFd fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return FromErrno(errno);
  std::optional<Looked> trouble =
      Connect(fd.get(), address, SteadyNow() + kConnectTimeout, interrupt);
  if (trouble && trouble->is_unanswered && DoesKernelAnswer(address, interrupt)) {
    return {Outcome::kSilent, "its port takes no connection"};
  }
  if (trouble) return *std::move(trouble);
  constexpr size_t kRequestBytes = sizeof(kHelloRequest) - 1;
  // A fresh connection's buffer takes a line; a peer that is gone already shows when reading.
  [[maybe_unused]] const ssize_t sent = send(fd.get(), kHelloRequest, kRequestBytes, MSG_NOSIGNAL);
  return ReadReply(fd.get(), options, interrupt);
}

// A loopback address, or one of this machine's interfaces. Debian maps a machine's own name to
// 127.0.1.1.
bool IsThisMachine(const SocketAddress& address) {
  return IsLoopback(IpText(address)) || !InterfaceOf(address).empty();
}

Looked NotFound(const std::string& name, const Resolution& names) {
  return {.outcome = names.outcome == Resolution::Outcome::kNoSuchName ? Outcome::kNoName
                                                                       : Outcome::kNameLater,
          .text = "cannot resolve \"" + name + "\": " + names.error};
}

}  // namespace

Looked LookUp(const std::string& name, const Resolver& resolve) {
  const Resolution names = resolve(name, 0);
  if (names.outcome != Resolution::Outcome::kFound) return NotFound(name, names);
  return {.outcome = Outcome::kFound};
}

LookResult LookAt(const ContactOptions& options, bool is_port_here, const Resolver& resolve,
                  const Interrupt& interrupt) {
  const uint16_t port = options.endpoint_port;
  std::vector<SocketAddress> addresses;
  if (is_port_here) addresses = ResolveName("localhost", port).addresses;
  const Resolution names = resolve(options.endpoint_host, port);
  if (names.outcome != Resolution::Outcome::kFound && addresses.empty()) {
    return {NotFound(options.endpoint_host, names), {}};
  }
  addresses.insert(addresses.end(), names.addresses.begin(), names.addresses.end());
  LookResult result;
  for (const SocketAddress& address : addresses) {
    Looked seen = Probe(address, options, interrupt);
    const bool says_nothing =
        seen.outcome == Outcome::kRefused || seen.outcome == Outcome::kUnreachable;
    // "localhost" is ::1 and 127.0.0.1: an answer on the one is not hidden by a refusal on the
    // other, nor a refusal by silence.
    const bool is_kernels_word =
        seen.outcome == Outcome::kRefused && result.seen.outcome == Outcome::kUnreachable;
    if (result.address.size == 0 || !says_nothing || is_kernels_word) result = {seen, address};
    if (seen.outcome == Outcome::kOurs || interrupt.is_set()) break;
  }
  result.seen.ip = IpText(result.address);
  result.seen.is_this_host =
      std::any_of(names.addresses.begin(), names.addresses.end(), IsThisMachine);
  return result;
}

}  // namespace ddprun::rendezvous
