// How the connections of MessageDriver come, prove themselves, and go.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/messages/message_driver.h"
#include "worker_runtime/comm/refused.h"
#include "worker_runtime/comm/tcp/sockets.h"

namespace ddp::internal {
namespace {

constexpr std::chrono::milliseconds kAcceptRest(20);

absl::Status Unreachable(const MessagePeers::Place& place, absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("connect to ", place.address, ":", place.port, ": ", why));
}

}  // namespace

absl::StatusOr<MessageDriver::Outgoing*> MessageDriver::OutgoingTo(int rank) {
  const auto found = outgoing_.find(rank);
  if (found != outgoing_.end()) return &found->second;
  const MessagePeers::Place& place = owner_.peers_.places[static_cast<size_t>(rank)];
  absl::StatusOr<ddprun::UniqueFd> fd = BeginConnect(place.address, absl::StrCat(place.port));
  if (!fd.ok()) return Unreachable(place, fd.status().message());
  Tune(fd->get());
  const bool is_sealed = owner_.key_ != nullptr;
  Outgoing link{.socket = MessageSocket(*std::move(fd), is_sealed),
                .hello = is_sealed ? MakeSealedHello(owner_.rank_, rank)
                                   : MakeHello(owner_.peers_.hello, owner_.rank_, rank)};
  link.socket.Greet(&link.hello, sizeof link.hello);
  return &outgoing_.emplace(rank, std::move(link)).first->second;
}

// Until the connection stands: Ok while it may still come to.
absl::Status MessageDriver::ReadAnswer(int rank, Outgoing& link) {
  const MessagePeers::Place& place = owner_.peers_.places[static_cast<size_t>(rank)];
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(link.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return Unreachable(place, std::strerror(error));
  sockaddr_storage peer;
  length = sizeof peer;
  if (getpeername(link.socket.fd(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) {
    return absl::OkStatus();  // connecting
  }
  const absl::StatusOr<bool> is_flushed = link.socket.Flush();
  if (!is_flushed.ok()) return is_flushed.status();
  const size_t size = owner_.key_ == nullptr ? sizeof link.answer.nonce : sizeof link.answer;
  const auto is_whole =
      link.socket.Read(reinterpret_cast<char*>(&link.answer), size, &link.answer_read);
  if (!is_whole.ok() || !*is_whole) return is_whole.status();
  if (owner_.key_ != nullptr) {
    const LinkSecrets secrets(*owner_.key_, owner_.peers_.hello, link.hello, link.answer.nonce);
    if (!secrets.IsAnswerProof(link.answer.proof)) {
      return absl::UnauthenticatedError("who answers there has not this round's key");
    }
    const Key proof = secrets.HelloProof();
    link.socket.Greet(proof.data(), proof.size());
    auto channel = secrets.Channel(false);
    if (channel == nullptr) return NoMemory("seal a connection");
    link.socket.Seal(std::move(channel));
  } else if (link.answer.nonce != owner_.peers_.answer) {
    return absl::UnauthenticatedError("who answers there is no rank of this group");
  }
  link.is_connected = true;
  return absl::OkStatus();
}

absl::Status MessageDriver::Serve(int rank, Outgoing& link) {
  if (!link.is_connected) {
    absl::Status status = ReadAnswer(rank, link);
    if (!status.ok() || !link.is_connected) return status;
  }
  absl::Status status = Hear(link);
  return status.ok() ? WriteData(link) : status;
}

absl::Status MessageDriver::Serve(Incoming& link) {
  if (link.rank < 0) {
    absl::Status status = ReadHello(link);
    if (!status.ok() || link.rank < 0) return status;
  }
  absl::Status status = Hear(link);
  return status.ok() ? link.socket.Flush().status() : status;
}

absl::Status MessageDriver::ReadHello(Incoming& link) {
  if (link.secrets != nullptr) return ReadProof(link);
  const auto is_whole =
      link.socket.Read(reinterpret_cast<char*>(&link.hello), sizeof link.hello, &link.hello_read);
  if (!is_whole.ok() || !*is_whole) return is_whole.status();
  const int world_size = static_cast<int>(owner_.peers_.places.size());
  const Hello wanted = MakeHello(owner_.peers_.hello, link.hello.from, owner_.rank_);
  const bool is_rank = link.hello.from >= 0 && link.hello.from < world_size;
  const bool is_wanted = owner_.key_ != nullptr
                             ? IsSealed(link.hello) && link.hello.to == owner_.rank_
                             : std::memcmp(&wanted, &link.hello, sizeof wanted) == 0;
  if (!is_rank || !is_wanted) return absl::UnauthenticatedError("it is no rank of this group");
  if (owner_.key_ == nullptr) {
    Believe(link);
    link.socket.Greet(owner_.peers_.answer.data(), owner_.peers_.answer.size());
    return absl::OkStatus();
  }
  LinkAnswer answer{MakeNonce(), {}};
  link.secrets =
      std::make_unique<LinkSecrets>(*owner_.key_, owner_.peers_.hello, link.hello, answer.nonce);
  answer.proof = link.secrets->AnswerProof();
  link.socket.Greet(&answer, sizeof answer);
  const absl::StatusOr<bool> is_flushed = link.socket.Flush();
  if (!is_flushed.ok()) return is_flushed.status();
  // A fresh connection has room for 48 bytes, and ReadProof() writes nothing.
  return *is_flushed ? ReadProof(link) : absl::UnavailableError("it takes no answer");
}

absl::Status MessageDriver::ReadProof(Incoming& link) {
  const auto is_whole = link.socket.Read(reinterpret_cast<char*>(link.proof.data()),
                                         link.proof.size(), &link.proof_read);
  if (!is_whole.ok() || !*is_whole) return is_whole.status();
  if (!link.secrets->IsHelloProof(link.proof)) {
    return absl::UnauthenticatedError("it has not this round's key");
  }
  auto channel = link.secrets->Channel(true);
  if (channel == nullptr) return NoMemory("seal a connection");
  link.socket.Seal(std::move(channel));
  Believe(link);
  return absl::OkStatus();
}

void MessageDriver::Believe(Incoming& link) {
  for (const auto& other : incoming_) {
    if (other->rank == link.hello.from) other->is_replaced = true;
  }
  matching_.DropOffers(link.hello.from);
  link.rank = link.hello.from;
}

size_t MessageDriver::Strangers() const {
  return static_cast<size_t>(std::count_if(incoming_.begin(), incoming_.end(),
                                           [](const auto& link) { return link->rank < 0; }));
}

void MessageDriver::AcceptConnections() {
  while (Strangers() < Acceptor::kMaxStrangers) {
    ddprun::UniqueFd fd(
        accept4(owner_.listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      // EMFILE, ENFILE, ENOBUFS, ENOMEM: it stays in the queue and poll() would say so at once.
      const bool is_passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      if (!is_passing) std::this_thread::sleep_for(kAcceptRest);
      return;
    }
    Tune(fd.get());
    incoming_.push_back(std::unique_ptr<Incoming>(new Incoming{
        .socket = MessageSocket(std::move(fd), owner_.key_ != nullptr), .since = Clock::now()}));
  }
}

void MessageDriver::DropOldStrangers() {
  const Clock::time_point now = Clock::now();
  const bool is_full = Strangers() >= Acceptor::kMaxStrangers;
  std::erase_if(incoming_, [&](const auto& link) {
    const auto patience = is_full ? Acceptor::kPatience : Acceptor::kHelloTimeout;
    return link->rank < 0 && now >= link->since + patience;
  });
}

void MessageDriver::DropOutgoing(int rank, const std::string& why) {
  const auto found = outgoing_.find(rank);
  std::vector<Pending> ended;
  for (const auto& [id, message] : found->second.offered) ended.push_back(message);
  ended.insert(ended.end(), found->second.accepted.begin(), found->second.accepted.end());
  if (found->second.moving != nullptr) ended.push_back(found->second.moving);
  outgoing_.erase(found);
  for (const Pending& message : ended) Lose(message, why);
}

void MessageDriver::DropIncoming(Incoming& link, const std::string& why) {
  std::vector<Pending> ended;
  for (const auto& [id, message] : link.accepted) ended.push_back(message);
  if (link.moving != nullptr) ended.push_back(link.moving);
  if (link.rank >= 0) matching_.DropOffers(link.rank);
  std::erase_if(incoming_, [&](const auto& other) { return other.get() == &link; });
  for (const Pending& message : ended) Lose(message, why);
}

}  // namespace ddp::internal
