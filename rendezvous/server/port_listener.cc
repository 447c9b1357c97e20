#include "rendezvous/server/port_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::rendezvous {
namespace {

// What epoll knows the descriptors by; from kFirstId on twice a connection's id, and one more for
// gRPC's end of it.
constexpr uint64_t kDoor = 0, kCloseDoor = 1, kStop = 2, kFirstId = 2;
constexpr size_t kScratchBytes = 64 * 1024;
// In one turn, so that a flood of connections does not hold up those that are there.
constexpr int kAcceptsPerTurn = 64;

}  // namespace

PortListener::PortListener(std::vector<UniqueFd> listening_sockets, Handlers handlers,
                           const Clock& clock)
    : handlers_(std::move(handlers)), clock_(clock), next_id_(kFirstId), scratch_(kScratchBytes) {
  for (UniqueFd& fd : listening_sockets) doors_.push_back({.fd = std::move(fd)});
  if (handlers_.is_for_own_user) users_.emplace();
}

absl::StatusOr<std::unique_ptr<PortListener>> PortListener::Start(
    std::vector<UniqueFd> listening_sockets, Handlers handlers, const Clock& clock) {
  auto listener = std::unique_ptr<PortListener>(
      new PortListener(std::move(listening_sockets), std::move(handlers), clock));
  const bool is_open = listener->watch_.is_open() &&
                       listener->watch_.Watch(listener->close_door_.fd(), kCloseDoor, EPOLLIN) &&
                       listener->watch_.Watch(listener->stop_.fd(), kStop, EPOLLIN);
  if (!is_open) return absl::ErrnoToStatus(errno, "watch the rendezvous port");
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

void PortListener::CloseDoor() {
  close_door_.Set();
  door_closed_.get_future().wait();
}

void PortListener::Run() {
  while (!ends_at_ || (!connections_.empty() && clock_.Now() < *ends_at_)) {
    const TimePoint before = clock_.Now();
    WatchDoors(before);
    const std::span<epoll_event> events = watch_.Wait(clock_.Left(NextDeadline(before)));
    const TimePoint now = clock_.Now();
    bool is_someone_there = false;
    for (const epoll_event& event : events) {
      switch (event.data.u64) {
        case kDoor:
          is_someone_there = true;
          break;
        case kCloseDoor:
          OnCloseDoor();
          break;
        case kStop:
          OnStop(now);
          break;
        default:
          OnEvent(event.data.u64, event.events, now);
      }
    }
    LookAtStrangers(now);
    KeepStrangersFew(now);
    for (size_t i = 0; is_someone_there && i < doors_.size(); ++i) AcceptAll(doors_[i].fd, now);
  }
}

void PortListener::WatchDoors(TimePoint now) {
  const bool accepts = !is_full() && now >= accept_again_at_;
  for (Door& door : doors_) {
    watch_.Watch(door.fd.get(), kDoor, accepts ? EPOLLIN : 0U, &door.events);
  }
}

void PortListener::OnCloseDoor() {
  watch_.Unwatch(close_door_.fd());
  for (const Door& door : doors_) watch_.Unwatch(door.fd.get());
  doors_.clear();
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto connection = it++;
    if (connection->second.pipe == nullptr) Drop(connection);
  }
  door_closed_.set_value();
}

void PortListener::OnStop(TimePoint now) {
  watch_.Unwatch(stop_.fd());
  ends_at_ = now + handlers_.end_limit;
  doors_.clear();
  LookAtStrangers(now);  // who has joined meanwhile is none
  while (!strangers_.empty()) Drop(connections_.find(*strangers_.begin()));
}

TimePoint PortListener::NextDeadline(TimePoint now) const {
  TimePoint next = ends_at_.value_or(TimePoint::max());
  for (const Id id : strangers_) {
    next = std::min(next, connections_.at(id).since + handlers_.silence_limit);
  }
  if (is_full()) next = std::min(next, room_at_);
  if (accept_again_at_ > now) next = std::min(next, accept_again_at_);
  return next;
}

void PortListener::AcceptAll(const UniqueFd& door, TimePoint now) {
  for (int i = 0; i < kAcceptsPerTurn && !is_full(); ++i) {
    UniqueFd fd(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      return Rest(now);
    }
    if (users_ && users_->IsOfOthers(fd.get())) continue;
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const Id id = next_id_++;
    if (!watch_.Watch(fd.get(), 2 * id, EPOLLIN)) continue;
    Connection connection;
    connection.fd = std::move(fd);
    connection.since = now;
    connection.ip = IpText(PeerAddress(connection.fd.get()));
    strangers_.insert(id);
    connections_.emplace(id, std::move(connection));
    // Mostly the first bytes are here already; that saves a turn of the loop.
    OnEvent(2 * id, EPOLLIN, now);
    KeepStrangersFew(now);
  }
}

void PortListener::Rest(TimePoint now) {
  accept_again_at_ = now + kAcceptRest;
  if (handlers_.on_no_descriptor) handlers_.on_no_descriptor();
}

void PortListener::KeepStrangersFew(TimePoint now) {
  if (!is_full()) return;
  LookAtStrangers(now);  // who has joined meanwhile is none
  if (!is_full()) return;
  room_at_ = joined_at_ + kJoinPatience;
  if (now < room_at_) return;
  // Of those that may go, first who has said least, then the oldest of the address with most.
  std::map<std::pair<Duration, std::string>, size_t> counts;
  room_at_ = TimePoint::max();
  for (const Id id : strangers_) {
    const Connection& connection = connections_.at(id);
    const Duration patience = PatienceWith(connection);
    room_at_ = std::min(room_at_, connection.since + patience);
    if (now >= connection.since + patience) ++counts[{patience, connection.ip}];
  }
  if (counts.empty()) return;
  std::optional<Id> leaves;
  std::pair<Duration, size_t> best;
  for (const Id id : strangers_) {
    const Connection& connection = connections_.at(id);
    const Duration patience = PatienceWith(connection);
    if (now < connection.since + patience) continue;
    const size_t count = counts[{patience, connection.ip}];
    const bool is_better =
        !leaves || patience < best.first || (patience == best.first && count > best.second);
    if (!is_better) continue;
    leaves = id;
    best = {patience, count};
  }
  Drop(connections_.find(*leaves));
}

Duration PortListener::PatienceWith(const Connection& connection) const {
  if (connection.pipe == nullptr) {
    const bool is_begun = connection.tls != nullptr && connection.tls->is_begun();
    return is_begun ? handlers_.silence_limit / 5 : kFirstBytePatience;
  }
  return connection.pipe->has_call() ? handlers_.silence_limit / 5 : kCallPatience;
}

void PortListener::OnEvent(uint64_t tag, uint32_t events, TimePoint now) {
  const Id id = tag / 2;
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // dropped earlier in this turn
  Connection& connection = found->second;
  if (connection.pipe == nullptr) return OnReadable(found, now);
  switch (watch_.Serve(tag, events, now, connection, scratch_)) {
    case PipeWatch::Outcome::kGoesOn:
      return;
    case PipeWatch::Outcome::kInnerClosed:
      // Who does not read what gRPC has said last is a stranger from now on.
      connection.since = now;
      strangers_.insert(id);
      return;
    case PipeWatch::Outcome::kOver:
      return Drop(found);
  }
}

void PortListener::OnReadable(Connections::iterator found, TimePoint now) {
  Connection& connection = found->second;
  const int fd = connection.fd.get();
  if (connection.is_answered) {
    std::array<char, 256> ignored;
    const ssize_t size = recv(fd, ignored.data(), ignored.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) Drop(found);
    return;
  }
  if (handlers_.identity != nullptr) return OnSecret(found, now);
  char first = 0;
  const ssize_t size = recv(fd, &first, 1, MSG_PEEK);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (size != 1) return Drop(found);
  OnFirstByte(found, first, "", now);
}

std::string PortListener::WhyRefused(const Connection& connection) const {
  if (handlers_.identity == nullptr) return "it asks for TLS, and this job has no token";
  const bool is_token = handlers_.identity->is_token();
  if (connection.tls == nullptr) {
    return is_token ? "it does not speak TLS, as a node that was given no token"
                    : "it does not speak TLS, as a node that was given no certificate";
  }
  if (is_token && connection.tls->is_ready()) {
    return "it has the job's token and runs a release of another protocol";
  }
  if (is_token && connection.tls->trouble() == TlsStream::Trouble::kOtherToken) {
    return "it did not prove that it has the job's token";
  }
  if (is_token) {
    return "it did not prove that it has the job's token for this run: it has no token, another "
           "run "
           "id, or a release of another protocol";
  }
  if (connection.tls->trouble() == TlsStream::Trouble::kExpired) {
    const absl::Status own = handlers_.identity->Check();
    return own.ok() ? connection.tls->error() : std::string(own.message());
  }
  return connection.tls->trouble() == TlsStream::Trouble::kRefused
             ? "it does not believe this node's certificate"
             : "it showed no certificate that is believed here";
}

void PortListener::TellRefused(const Connection& connection) {
  if (!handlers_.on_refused || told_refusals_.size() == kMaxToldRefusals) return;
  std::string text =
      absl::StrCat("a connection from ", connection.ip, " was refused: ", WhyRefused(connection));
  if (!told_refusals_.insert(text).second) return;
  if (told_refusals_.size() == kMaxToldRefusals) text += "; more of this is not told";
  handlers_.on_refused(text);
}

void PortListener::OnSecret(Connections::iterator found, TimePoint now) {
  Connection& connection = found->second;
  const int fd = connection.fd.get();
  const ssize_t size = recv(fd, scratch_.data(), scratch_.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (size <= 0) return Drop(found);
  const std::string_view bytes(scratch_.data(), static_cast<size_t>(size));
  if (connection.tls == nullptr) {
    if (bytes.front() != kTlsHandshakeByte) {
      send(fd, kTlsAlert.data(), kTlsAlert.size(), MSG_NOSIGNAL);
      TellRefused(connection);
      return Drop(found);
    }
    connection.tls = std::make_unique<TlsStream>(handlers_.identity, TlsStream::Role::kServer);
  }
  std::string plain;
  const bool goes_on = connection.tls->Receive(bytes, plain);
  const std::string reply = connection.tls->TakeOutgoing();
  // A handshake is smaller than a fresh connection's send buffer. After a reset nothing can be
  // said, and what came before it counts.
  const bool is_sent = reply.empty() || send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) ==
                                            static_cast<ssize_t>(reply.size());
  if (!goes_on && connection.tls->trouble() != TlsStream::Trouble::kNone) TellRefused(connection);
  if (!goes_on || !is_sent) return Drop(found);
  if (plain.empty()) return;
  const char first = plain.front();
  OnFirstByte(found, first, std::move(plain), now);
}

bool PortListener::IsMisused(const Connection& connection, char first) const {
  if (connection.tls == nullptr) return false;
  const TlsPurpose purpose = first == kHelloFirstByte ? TlsPurpose::kGreeting
                             : first == 0x00          ? TlsPurpose::kStore
                                                      : TlsPurpose::kRendezvous;
  return !connection.tls->is_for(purpose);
}

void PortListener::OnFirstByte(Connections::iterator found, char first, std::string plain,
                               TimePoint now) {
  Connection& connection = found->second;
  const bool is_secret = connection.tls != nullptr;
  if (IsMisused(connection, first)) {
    TellRefused(connection);
    return Drop(found);
  }
  UniqueFd for_user;
  if (first == kHelloFirstByte && handlers_.hello_reply) return AnswerHello(connection);
  if (first == 'P' && handlers_.on_http2) {
    connection.pipe = Pipe::Open(std::move(connection.fd), std::move(connection.tls),
                                 *handlers_.connections, for_user);
  } else if (first == 0x00 && handlers_.on_store && is_secret) {
    UniqueFd inner;
    if (MakeSocketPair(inner, for_user)) {
      connection.pipe = std::make_unique<Pipe>(std::move(connection.fd), std::move(inner),
                                               std::move(connection.tls));
    }
  } else {
    if (first == kTlsHandshakeByte && !is_secret) TellRefused(connection);
    UniqueFd taken = std::move(connection.fd);
    watch_.Unwatch(taken.get());
    Drop(found);
    if (first == 0x00 && handlers_.on_store) handlers_.on_store(std::move(taken));
    return;
  }
  if (connection.pipe == nullptr) {
    if (errno == EMFILE || errno == ENFILE) Rest(now);  // the agent comes again
    return Drop(found);
  }
  (first == 'P' ? handlers_.on_http2 : handlers_.on_store)(std::move(for_user));
  if (!connection.pipe->CarryFirst(now, std::move(plain))) return Drop(found);
  OnEvent(2 * found->first, EPOLLIN, now);
}

void PortListener::AnswerHello(Connection& connection) {
  // A fresh connection's send buffer takes so little at once; if not, the other side asks again.
  std::string reply = handlers_.hello_reply();
  if (connection.tls != nullptr) {
    connection.tls->Send(reply);
    reply = connection.tls->TakeOutgoing();
  } else {
    // The request is taken off the socket before the reply: closing with unread bytes would reset
    // the connection, and the reply could be lost with it.
    std::array<char, 256> request;
    [[maybe_unused]] const ssize_t taken =
        recv(connection.fd.get(), request.data(), request.size(), 0);
  }
  [[maybe_unused]] const ssize_t sent =
      send(connection.fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
  shutdown(connection.fd.get(), SHUT_WR);
  connection.is_answered = true;
}

void PortListener::LookAtStrangers(TimePoint now) {
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    const Id id = *it++;  // Drop takes it out
    const auto found = connections_.find(id);
    const Connection& connection = found->second;
    if (connection.pipe != nullptr && connection.pipe->has_joined()) {
      joined_at_ = now;
      strangers_.erase(id);
    } else if (now >= connection.since + handlers_.silence_limit) {
      Drop(found);
    }
  }
}

void PortListener::Drop(Connections::iterator found) {
  const Connection& connection = found->second;
  if (connection.fd.is_open()) watch_.Unwatch(connection.fd.get());
  if (connection.pipe != nullptr) watch_.Unwatch(connection);
  strangers_.erase(found->first);
  connections_.erase(found);
}

}  // namespace ddprun::rendezvous
