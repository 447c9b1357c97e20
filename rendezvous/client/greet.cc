#include "rendezvous/client/greet.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/connect_error.h"
#include "rendezvous/net/peer_user.h"
#include "rendezvous/tls/stream.h"
#include "rendezvous/wire/checked_fields.h"

namespace ddprun::rendezvous {
namespace {

using Outcome = Looked::Outcome;
using Identity = std::shared_ptr<const TlsIdentity>;

constexpr Duration kConnectTimeout = std::chrono::seconds(2);
constexpr Duration kKernelTimeout = std::chrono::milliseconds(500);
constexpr Duration kHelloTimeout = std::chrono::seconds(5);
constexpr size_t kMaxForeignBytes = 60;  // of what is shown
// What to do about it.
constexpr char kSameToken[] = "all nodes need the same token (--token-file or DDPRUN_TOKEN)";
constexpr char kOneAuthority[] =
    "all nodes need certificates of one authority (--tls-cert, --tls-key, --tls-ca)";
constexpr char kNewOne[] = "start that side again with a new one, or set the clocks right";

// EINTR: nobody waits for the answer any more.
Looked FromErrno(int error) {
  const bool is_unanswered = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
                             error == EHOSTDOWN || error == ENETDOWN;
  return {.outcome = error == ECONNREFUSED ? Outcome::kRefused : Outcome::kUnreachable,
          .text = ConnectErrorText(error),
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

// A conversation over a connection, in TLS where there is an identity.
class Talk {
 public:
  Talk(int fd, const Identity& identity, TimePoint deadline, const Interrupt& interrupt)
      : fd_(fd),
        deadline_(deadline),
        interrupt_(interrupt),
        is_token_(identity != nullptr && identity->is_token()) {
    if (identity == nullptr) return;
    tls_ = std::make_unique<TlsStream>(identity, TlsStream::Role::kClient, TlsPurpose::kGreeting);
    SendRaw(tls_->TakeOutgoing());
  }

  // Until each side knows the other one; nullopt: it does.
  std::optional<Looked> Prove() {
    while (tls_ != nullptr && !tls_->is_ready()) {
      std::string ignored;
      if (std::optional<Looked> trouble = Hear(ignored)) return trouble;
    }
    return std::nullopt;
  }

  void Say(std::string_view text) {
    if (tls_ == nullptr) return SendRaw(text);
    tls_->Send(text);
    SendRaw(tls_->TakeOutgoing());
  }

  // Appends what comes next. Something: nothing comes any more.
  std::optional<Looked> Hear(std::string& heard) {
    for (;;) {
      const auto ready = interrupt_.WaitForFd(fd_, POLLIN, deadline_);
      if (ready == Interrupt::Ready::kInterrupted) return FromErrno(EINTR);
      if (ready == Interrupt::Ready::kTimeout) return Looked{Outcome::kSilent, kSilentText};
      std::array<char, 4096> bytes;
      const ssize_t size = recv(fd_, bytes.data(), bytes.size(), 0);
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (size <= 0) return Looked{Outcome::kClosed, kClosedText};
      const std::string_view came(bytes.data(), static_cast<size_t>(size));
      if (tls_ == nullptr) {
        heard.append(came);
        return std::nullopt;
      }
      const bool goes_on = tls_->Receive(came, heard);
      SendRaw(tls_->TakeOutgoing());
      if (goes_on) return std::nullopt;
      return FromTls(came);
    }
  }

 private:
  static constexpr char kSilentText[] = "no answer within 5 s";
  static constexpr char kClosedText[] = "the connection was closed without an answer";

  Looked FromTls(std::string_view came) const {
    switch (tls_->trouble()) {
      case TlsStream::Trouble::kNone:
        return {Outcome::kClosed, kClosedText};
      case TlsStream::Trouble::kOtherToken:
        return {Outcome::kDistrusted, absl::StrCat("its token is another one; ", kSameToken)};
      case TlsStream::Trouble::kRefused:
        return {Outcome::kDistrusted,
                is_token_ ? absl::StrCat("it speaks TLS and takes no token; ", kSameToken)
                          : absl::StrCat("it does not believe this node's certificate (",
                                         tls_->error(), "), or has a token; ", kOneAuthority)};
      case TlsStream::Trouble::kDistrusted:
        return {Outcome::kDistrusted,
                is_token_
                    ? absl::StrCat("it has not proved that it has this node's token; ", kSameToken)
                    : absl::StrCat("its certificate is not believed (", tls_->error(), "); ",
                                   kOneAuthority)};
      case TlsStream::Trouble::kExpired:
        return {Outcome::kExpired, absl::StrCat(tls_->error(), "; ", kNewOne)};
      case TlsStream::Trouble::kNoTls:
        break;
    }
    return {Outcome::kForeign, CleanText(std::string(came.substr(0, kMaxForeignBytes)))};
  }

  void SendRaw(std::string_view bytes) const {
    // A fresh connection's buffer takes so little; a peer that is gone shows when reading.
    [[maybe_unused]] const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  const int fd_;
  const TimePoint deadline_;
  const Interrupt& interrupt_;
  const bool is_token_;
  std::unique_ptr<TlsStream> tls_;
};

Greeting Ask(int fd, const Identity& identity, const Interrupt& interrupt) {
  Talk talk(fd, identity, SteadyNow() + kHelloTimeout, interrupt);
  if (std::optional<Looked> trouble = talk.Prove()) return {{}, *std::move(trouble)};
  talk.Say(std::string_view(kHelloRequest, sizeof(kHelloRequest) - 1));
  std::string reply;
  for (;;) {
    Hello hello;
    if (std::optional<Looked> trouble = talk.Hear(reply)) {
      if (ParseOldHelloReply(reply, hello)) return {std::move(hello), {}};
      return {{}, *std::move(trouble)};
    }
    switch (ParseHelloReply(reply, hello)) {
      case HelloAnswer::kIncomplete:
        break;
      case HelloAnswer::kHello:
        return {std::move(hello), {}};
      case HelloAnswer::kForeign:
        if (reply.front() == kTlsAlertByte) {
          return {{},
                  {Outcome::kDistrusted,
                   absl::StrCat(
                       "it asks for TLS, and this node was given no token and no certificate; ",
                       kSameToken, " or certificates of one authority")}};
        }
        return {{}, {Outcome::kForeign, CleanText(reply.substr(0, kMaxForeignBytes))}};
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

Greeting GreetOnce(const SocketAddress& address, const Identity& identity,
                   const Interrupt& interrupt) {
  const UniqueFd fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return {{}, FromErrno(errno)};
  // The last word of the handshake and the first one after it go out together, not 40 ms apart.
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::optional<Looked> trouble =
      Connect(fd.get(), address, SteadyNow() + kConnectTimeout, interrupt);
  if (trouble && trouble->is_unanswered && DoesKernelAnswer(address, interrupt)) {
    return {{}, {Outcome::kSilent, "its port takes no connection"}};
  }
  if (trouble) return {{}, *std::move(trouble)};
  if (identity != nullptr) {
    if (const absl::Status status = identity->Check(); !status.ok()) {
      return {
          {},
          {.outcome = Outcome::kExpired, .text = std::string(status.message()), .is_own = true}};
    }
  }
  Greeting greeting = Ask(fd.get(), identity, interrupt);
  // On loopback the port is whose process was first, and a coordinator of another user closes.
  const bool is_closed = !greeting.hello && greeting.trouble.outcome == Outcome::kClosed;
  if ((!greeting.hello && !is_closed) || !IsLoopback(IpText(address))) return greeting;
  // The connection's other end is half closed behind a greeting: the kernel tells of the listener.
  const uid_t user = PeerUsers().ListenerAt(address).value_or(0);
  if (user == geteuid() || user == 0) return greeting;
  return {{},
          {Outcome::kDistrusted, absl::StrCat("it belongs to another user of this machine (uid ",
                                              user, "); use another port")}};
}

}  // namespace

Greeting Greet(const SocketAddress& address, const Identity& identity, const Interrupt& interrupt) {
  Greeting greeting = GreetOnce(address, identity, interrupt);
  if (identity == nullptr || greeting.hello || greeting.trouble.outcome != Outcome::kClosed) {
    return greeting;
  }
  // A coordinator without a token closes what begins in TLS. Its greeting tells no secret.
  if (GreetOnce(address, nullptr, interrupt).hello) {
    greeting.trouble = {
        Outcome::kDistrusted,
        absl::StrCat("it runs without a ", identity->is_token() ? "token" : "certificate",
                     ", which this node was given; give it to all nodes, or to none")};
  }
  return greeting;
}

}  // namespace ddprun::rendezvous
