#include "worker_runtime/comm/tcp/tcp_setup.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/core/rank_assignment.h"
#include "worker_runtime/comm/host_key.h"
#include "worker_runtime/comm/look_for_word.h"
#include "worker_runtime/comm/refused.h"
#include "worker_runtime/comm/tcp/acceptor.h"
#include "worker_runtime/comm/tcp/sockets.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;
using ddprun::rendezvous::IsLoopback;

int LeftMs(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

// How often who listens for a rank asks the store whether that has failed.
constexpr std::chrono::seconds kLookForWord(1);

std::string PortKey(int rank) { return absl::StrCat("port/", rank); }
// What stands there in place of a port.
constexpr char kFailed[] = "failed ";

// The same answer on both sides.
bool Listens(const Endpoint& self, const Endpoint& other) {
  const Endpoint& lower = self.rank < other.rank ? self : other;
  const Endpoint& higher = self.rank < other.rank ? other : self;
  const bool is_unreachable =
      lower.host != higher.host && IsLoopback(lower.address) && !IsLoopback(higher.address);
  return (is_unreachable ? higher.rank : lower.rank) == self.rank;
}

absl::Status Unreachable(const Endpoint& other, absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("connect to rank ", other.rank, " at ", other.address, ": ", why));
}

absl::Status Unreachable(const Endpoint& other, int error) {
  return Unreachable(other, std::strerror(error));
}

absl::Status WaitWritable(int socket, const Endpoint& other, Clock::time_point deadline) {
  pollfd polled{socket, POLLOUT, 0};
  while (poll(&polled, 1, std::min(LeftMs(deadline), 1000)) <= 0) {
    if (Clock::now() < deadline) continue;
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", other.rank, " at ", other.address, " did not answer"));
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? absl::OkStatus() : Unreachable(other, error);
}

// Connects and says hello; the answer comes later, so that no rank waits for another's turn.
absl::StatusOr<UniqueFd> Connect(Store& store, const Hello& hello, const Endpoint& other,
                                 Clock::time_point deadline) {
  auto port = store.Get(PortKey(other.rank), std::chrono::milliseconds(LeftMs(deadline) + 1));
  if (!port.ok()) {
    return absl::Status(
        port.status().code(),
        absl::StrCat("rank ", other.rank, " does not listen: ", port.status().message()));
  }
  if (absl::StartsWith(*port, kFailed)) {
    return absl::UnavailableError(
        absl::StrCat("rank ", other.rank, " does not listen: ", port->substr(sizeof kFailed - 1)));
  }
  absl::StatusOr<UniqueFd> begun = BeginConnect(other.address, *port);
  if (!begun.ok()) return Unreachable(other, begun.status().message());
  UniqueFd socket = *std::move(begun);
  absl::Status status = WaitWritable(socket.get(), other, deadline);
  if (!status.ok()) return status;
  // A fresh connection has room for 32 bytes.
  if (send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
    return Unreachable(other, errno);
  }
  return socket;
}

absl::Status AwaitBytes(int socket, const Endpoint& other, Clock::time_point deadline, void* to,
                        size_t size) {
  size_t received = 0;
  while (received < size) {
    pollfd polled{socket, POLLIN, 0};
    if (poll(&polled, 1, std::min(LeftMs(deadline), 1000)) <= 0) {
      if (Clock::now() < deadline) continue;
      return absl::DeadlineExceededError(absl::StrCat("rank ", other.rank, " did not answer"));
    }
    const ssize_t result = recv(socket, static_cast<char*>(to) + received, size - received, 0);
    if (result < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (result <= 0) return Unreachable(other, result == 0 ? ECONNRESET : errno);
    received += static_cast<size_t>(result);
  }
  return absl::OkStatus();
}

// The listener proves itself with the nonce of the one who connected.
absl::Status AwaitAnswer(int socket, const Endpoint& self, const Endpoint& other,
                         Clock::time_point deadline) {
  Nonce answer;
  absl::Status status = AwaitBytes(socket, other, deadline, answer.data(), answer.size());
  if (!status.ok()) return status;
  if (answer != self.nonce) {
    return absl::UnauthenticatedError(absl::StrCat("who answers at ", other.address,
                                                   " is not rank ", other.rank, " of this round"));
  }
  return absl::OkStatus();
}

// Hears the listener's proof and says ours: it answers on a thread of its own, whatever its rank
// waits for.
absl::StatusOr<std::unique_ptr<SealedChannel>> ProveKey(int socket, const LinkKey& key,
                                                        const Hello& hello, const Endpoint& other,
                                                        Clock::time_point deadline) {
  LinkAnswer answer;
  absl::Status status = AwaitBytes(socket, other, deadline, &answer, sizeof answer);
  if (!status.ok()) return status;
  const LinkSecrets secrets(key, other.nonce, hello, answer.nonce);
  if (!secrets.IsAnswerProof(answer.proof)) {
    return absl::UnauthenticatedError(
        absl::StrCat("who answers at ", other.address, " is not rank ", other.rank,
                     " of this round, or has another key: all ranks of a group are of one job"));
  }
  const Key proof = secrets.HelloProof();
  if (send(socket, proof.data(), proof.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(proof.size())) {
    return Unreachable(other, errno);
  }
  auto channel = secrets.Channel(false);
  if (channel == nullptr) return NoMemory(absl::StrCat("seal the link to rank ", other.rank));
  return channel;
}

// To one that listens. A plain link's answer is still to come.
absl::StatusOr<Link> MakeLink(Store& store, const Endpoint& self, const Endpoint& other,
                              const LinkKey* key, Clock::time_point deadline) {
  const Hello hello = key != nullptr ? MakeSealedHello(self.rank, other.rank)
                                     : MakeHello(other.nonce, self.rank, other.rank);
  auto socket = Connect(store, hello, other, deadline);
  if (!socket.ok()) return socket.status();
  Link link{std::move(*socket), other.rank, nullptr};
  if (key == nullptr) return link;
  auto sealed = ProveKey(link.socket.get(), *key, hello, other, deadline);
  if (!sealed.ok()) return sealed.status();
  link.sealed = std::move(*sealed);
  return link;
}

// The rank's own port while its links are made. Heard on a thread of its own, so that strangers are
// dropped in time also while this rank still waits for others.
class Listener {
 public:
  using Peers = absl::StatusOr<std::vector<Acceptor::Peer>>;

  Listener(std::unique_ptr<Acceptor> acceptor, std::vector<int> expected,
           Clock::time_point deadline)
      : acceptor_(std::move(acceptor)),
        thread_(ddprun::StartQuietThread([this, expected = std::move(expected), deadline] {
          try {
            peers_ = acceptor_->Await(expected, deadline);
          } catch (const std::bad_alloc&) {  // which peers_ says already
          }
          has_ended_.set_value();
        })) {}
  ~Listener() {
    acceptor_->Stop();
    if (thread_.joinable()) thread_.join();
  }

  bool is_running() const { return thread_.joinable(); }
  // Waits for all that are expected, or until `look` has an error. Once. REQUIRES: it is running.
  Peers Finish(const std::function<absl::Status()>& look) {
    const std::future<void> ended = has_ended_.get_future();
    while (ended.wait_for(kLookForWord) != std::future_status::ready) {
      if (absl::Status status = look(); !status.ok()) return status;
    }
    thread_.join();
    return std::move(peers_);
  }

 private:
  const std::unique_ptr<Acceptor> acceptor_;
  Peers peers_ = NoMemory("take the links to other nodes");  // of thread_ until it is joined
  std::promise<void> has_ended_;
  std::thread thread_;
};

// Ok: none of `ranks` has said that it cannot connect, or the store does not answer.
absl::Status WordOf(const Store& store, const std::vector<int>& ranks, Clock::time_point deadline) {
  for (const int rank : ranks) {
    const auto word = LookForWord(store, PortKey(rank), deadline);
    if (!word.has_value() || !absl::StartsWith(*word, kFailed)) continue;
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, " did not connect: ", word->substr(sizeof kFailed - 1)));
  }
  return absl::OkStatus();
}

// As ConnectChain(), and tells nobody of an error.
absl::StatusOr<ChainLinks> MakeLinks(Store& store, const Endpoint& self, const Endpoint& previous,
                                     const Endpoint& next,
                                     const std::shared_ptr<const LinkKey>& key,
                                     Clock::time_point deadline) {
  std::vector<const Endpoint*> to_connect;
  std::vector<int> to_accept;
  for (const Endpoint* other : {&previous, &next}) {
    if (other->rank < 0) continue;
    if (Listens(self, *other)) {
      to_accept.push_back(other->rank);
    } else {
      to_connect.push_back(other);
    }
  }
  std::unique_ptr<Listener> listener;
  if (!to_accept.empty()) {
    auto acceptor = Acceptor::Listen(self.address, self.rank, self.nonce, key);
    if (!acceptor.ok()) return acceptor.status();
    const uint16_t port = (*acceptor)->port();
    listener = std::make_unique<Listener>(std::move(*acceptor), to_accept, deadline);
    if (!listener->is_running()) return NoThread("listen for the links to other nodes");
    absl::Status status = store.Set(PortKey(self.rank), absl::StrCat(port));
    if (!status.ok()) return status;
  }
  std::vector<Link> links;
  for (const Endpoint* other : to_connect) {
    auto link = MakeLink(store, self, *other, key.get(), deadline);
    if (!link.ok()) return link.status();
    links.push_back(std::move(*link));
  }
  if (listener != nullptr) {
    auto peers = listener->Finish([&] { return WordOf(store, to_accept, deadline); });
    if (!peers.ok()) return peers.status();
    for (Acceptor::Peer& peer : *peers) {
      const Endpoint& other = peer.rank == previous.rank ? previous : next;
      if (peer.sealed == nullptr &&
          send(peer.socket.get(), other.nonce.data(), other.nonce.size(), MSG_NOSIGNAL) !=
              static_cast<ssize_t>(other.nonce.size())) {
        return Unreachable(other, errno);
      }
      links.push_back({std::move(peer.socket), peer.rank, std::move(peer.sealed)});
    }
  }
  for (size_t i = 0; i < to_connect.size() && key == nullptr; ++i) {
    absl::Status status = AwaitAnswer(links[i].socket.get(), self, *to_connect[i], deadline);
    if (!status.ok()) return status;
  }
  ChainLinks chain;
  for (Link& link : links) {
    Tune(link.socket.get());
    (link.rank == previous.rank ? chain.previous : chain.next) = std::move(link);
  }
  return chain;
}

}  // namespace

void TellNoLinks(Store& store, int rank, const absl::Status& why) {
  try {
    (void)store.Set(PortKey(rank), absl::StrCat(kFailed, why.message()));
  } catch (const std::bad_alloc&) {  // which may be what it would tell
  }
}

absl::StatusOr<ChainLinks> ConnectChain(Store& store, const Endpoint& self,
                                        const Endpoint& previous, const Endpoint& next,
                                        const std::shared_ptr<const LinkKey>& key,
                                        Clock::time_point deadline) {
  auto links = MakeLinks(store, self, previous, next, key, deadline);
  if (!links.ok()) TellNoLinks(store, self.rank, links.status());
  return links;
}

}  // namespace ddp::internal
