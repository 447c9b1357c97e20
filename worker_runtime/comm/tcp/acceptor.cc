#include "worker_runtime/comm/tcp/acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/net/listening_socket.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/refused.h"

namespace ddp::internal {
namespace {

constexpr int kBacklog = 128;
// How often Await() looks whether it was stopped.
constexpr int kLookMs = 100;
constexpr std::chrono::milliseconds kAcceptRest(20);

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const std::string& address, int rank,
                                                           const Nonce& nonce,
                                                           std::shared_ptr<const LinkKey> key) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), "0", &hints, &found) != 0) {
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, " has no address to listen on: \"", address, "\""));
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  ddprun::UniqueFd socket =
      ddprun::rendezvous::OpenListeningSocket(found->ai_addr, found->ai_addrlen, kBacklog);
  if (!socket.is_open()) {
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, " cannot listen on ", address, ": ", RefusedText(errno)));
  }
  const uint16_t port = ddprun::rendezvous::LocalPort(socket.get());
  return std::unique_ptr<Acceptor>(
      new Acceptor(std::move(socket), port, rank, nonce, std::move(key)));
}

absl::StatusOr<std::vector<Acceptor::Peer>> Acceptor::Await(std::vector<int> expected,
                                                            Clock::time_point deadline) {
  expected_ = std::move(expected);
  while (!expected_.empty()) {
    if (is_stopped_) return absl::CancelledError("stopped listening");
    if (!failure_.ok()) return failure_;
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(NameRanks(expected_), " did not connect to rank ", rank_,
                       refused_ == 0 ? "" : absl::StrCat(": accept: ", RefusedText(refused_))));
    }
    Poll(deadline);
  }
  socket_.Reset();
  strangers_.clear();
  return std::move(peers_);
}

void Acceptor::Poll(Clock::time_point deadline) {
  std::vector<pollfd> polled;
  Clock::time_point until = deadline;
  const bool is_full = strangers_.size() >= kMaxStrangers;
  for (const Stranger& stranger : strangers_) {
    polled.push_back({stranger.socket.get(), POLLIN, 0});
    until = std::min(until, stranger.since + (is_full ? kPatience : kHelloTimeout));
  }
  polled.push_back({is_full ? -1 : socket_.get(), POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  const int timeout = static_cast<int>(std::clamp<int64_t>(left, 0, kLookMs));
  if (poll(polled.data(), polled.size(), timeout) > 0) HearAll(polled);
  // They stand in the order of their coming.
  const Clock::time_point now = Clock::now();
  std::erase_if(strangers_, [now](const Stranger& s) { return now >= s.since + kHelloTimeout; });
  if (strangers_.size() >= kMaxStrangers && now >= strangers_.front().since + kPatience) {
    strangers_.erase(strangers_.begin());
  }
  if (!is_full && polled.back().revents != 0) AcceptAll();
}

void Acceptor::HearAll(const std::vector<pollfd>& polled) {
  std::vector<Stranger> remaining;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    Stranger& stranger = strangers_[i];
    switch (polled[i].revents != 0 ? Hear(stranger) : Verdict::kWaiting) {
      case Verdict::kWaiting:
        remaining.push_back(std::move(stranger));
        break;
      case Verdict::kProved:
        Welcome(std::move(stranger));
        break;
      case Verdict::kDropped:
        break;
    }
  }
  strangers_ = std::move(remaining);
}

void Acceptor::Welcome(Stranger stranger) {
  std::unique_ptr<SealedChannel> channel;
  if (stranger.secrets != nullptr) {
    channel = stranger.secrets->Channel(true);
    // Without one the link would be plain.
    if (channel == nullptr) {
      failure_ = NoMemory(absl::StrCat("seal the link to rank ", stranger.hello.from));
      return;
    }
  }
  std::erase(expected_, stranger.hello.from);
  peers_.push_back({stranger.hello.from, std::move(stranger.socket), std::move(channel)});
}

void Acceptor::AcceptAll() {
  while (strangers_.size() < kMaxStrangers) {
    Stranger stranger{};
    stranger.socket.Reset(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!stranger.socket.is_open()) {
      // EMFILE, ENFILE, ENOBUFS, ENOMEM: it stays in the queue and poll() would say so at once.
      const bool is_passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      if (!is_passing) {
        refused_ = errno;
        std::this_thread::sleep_for(kAcceptRest);
      }
      return;
    }
    stranger.since = Clock::now();
    strangers_.push_back(std::move(stranger));
  }
}

Acceptor::Verdict Acceptor::Hear(Stranger& stranger) {
  if (stranger.secrets != nullptr) return HearProof(stranger);
  char* to = reinterpret_cast<char*>(&stranger.hello) + stranger.received;
  const ssize_t result =
      recv(stranger.socket.get(), to, sizeof stranger.hello - stranger.received, 0);
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return Verdict::kWaiting;
  if (result <= 0) return Verdict::kDropped;
  stranger.received += static_cast<size_t>(result);
  if (stranger.received < sizeof stranger.hello) return Verdict::kWaiting;
  if (!IsExpected(stranger.hello.from)) return Verdict::kDropped;
  if (key_ != nullptr) return Answer(stranger);
  const Hello wanted = MakeHello(nonce_, stranger.hello.from, rank_);
  return std::memcmp(&wanted, &stranger.hello, sizeof wanted) == 0 ? Verdict::kProved
                                                                   : Verdict::kDropped;
}

// What is answered tells who has no key nothing.
Acceptor::Verdict Acceptor::Answer(Stranger& stranger) {
  if (!IsSealed(stranger.hello) || stranger.hello.to != rank_) return Verdict::kDropped;
  LinkAnswer answer{MakeNonce(), {}};
  stranger.secrets = std::make_unique<LinkSecrets>(*key_, nonce_, stranger.hello, answer.nonce);
  answer.proof = stranger.secrets->AnswerProof();
  // A fresh connection has room for 48 bytes.
  const ssize_t sent = send(stranger.socket.get(), &answer, sizeof answer, MSG_NOSIGNAL);
  return sent == sizeof answer ? Verdict::kWaiting : Verdict::kDropped;
}

Acceptor::Verdict Acceptor::HearProof(Stranger& stranger) {
  const ssize_t result =
      recv(stranger.socket.get(), stranger.proof.data() + stranger.proof_received,
           stranger.proof.size() - stranger.proof_received, 0);
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return Verdict::kWaiting;
  if (result <= 0) return Verdict::kDropped;
  stranger.proof_received += static_cast<size_t>(result);
  if (stranger.proof_received < stranger.proof.size()) return Verdict::kWaiting;
  // Another connection of that rank may have come first.
  return IsExpected(stranger.hello.from) && stranger.secrets->IsHelloProof(stranger.proof)
             ? Verdict::kProved
             : Verdict::kDropped;
}

bool Acceptor::IsExpected(int rank) const {
  return std::find(expected_.begin(), expected_.end(), rank) != expected_.end();
}

}  // namespace ddp::internal
