// What else is said on a connection while the data of a message are on their way.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/net/listening_socket.h"
#include "tests/support/contains.h"
#include "tests/support/loopback.h"
#include "tests/support/no_memory.h"
#include "worker_runtime/comm/messages/messages.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;
using ddprun::testing::Contains;

constexpr std::chrono::seconds kLongest(30);
constexpr size_t kLargeBytes = size_t{32} << 20;  // more than the sockets between two ranks hold

bool SendAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// Carries one connection to the port `to`, in both directions. Of the end that has connected it
// takes the first kPassed bytes and no more until Release(): that end is in the middle of a message
// for so long.
class Wire {
 public:
  static constexpr size_t kPassed = size_t{256} << 10;

  explicit Wire(uint16_t to) : to_(to), wake_(eventfd(0, EFD_CLOEXEC)) {
    auto listener = ddprun::rendezvous::ListenOn("127.0.0.1", 0);
    DDP_CHECK(listener.ok() && wake_.is_open());
    listener_ = *std::move(listener);
    const int bytes = 64 << 10;  // of those that connect
    DDP_CHECK(setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~Wire() {
    is_over_ = true;
    Release();
    thread_.join();
  }

  uint16_t port() const { return ddprun::rendezvous::LocalPort(listener_.get()); }
  // False: it has not come to that by then.
  bool AwaitHeld() { return has_held_.wait_for(kLongest) == std::future_status::ready; }
  void Release() {
    is_released_ = true;
    const uint64_t one = 1;
    DDP_CHECK(write(wake_.get(), &one, sizeof one) == sizeof one);
  }

 private:
  void Run() {
    pollfd polled[] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    DDP_CHECK(poll(polled, 2, std::chrono::milliseconds(kLongest).count()) > 0);
    if (is_over_) return;
    const UniqueFd near(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const UniqueFd far(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = ddprun::testing::Loopback(to_);
    DDP_CHECK(near.is_open() &&
              connect(far.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    size_t passed = 0;
    while (!is_over_) {
      const bool is_held = !is_released_ && passed == kPassed;
      pollfd ends[] = {{is_held ? -1 : near.get(), POLLIN, 0},
                       {far.get(), POLLIN, 0},
                       {is_released_ ? -1 : wake_.get(), POLLIN, 0}};
      DDP_CHECK(poll(ends, 3, std::chrono::milliseconds(kLongest).count()) > 0);
      char bytes[64 << 10];
      if (ends[0].revents != 0) {
        const size_t most = is_released_ ? sizeof bytes : kPassed - passed;
        const ssize_t got = recv(near.get(), bytes, std::min(sizeof bytes, most), 0);
        if (got <= 0 || !SendAll(far.get(), {bytes, static_cast<size_t>(got)})) return;
        passed += static_cast<size_t>(got);
        if (!is_released_ && passed == kPassed) held_.set_value();
      }
      if (ends[1].revents != 0) {
        const ssize_t got = recv(far.get(), bytes, sizeof bytes, 0);
        if (got <= 0 || !SendAll(near.get(), {bytes, static_cast<size_t>(got)})) return;
      }
    }
  }

  const uint16_t to_;
  const UniqueFd wake_;
  UniqueFd listener_;
  std::atomic<bool> is_released_ = false;
  std::atomic<bool> is_over_ = false;
  std::promise<void> held_;
  std::future<void> has_held_ = held_.get_future();
  std::thread thread_;
};

// Three ranks; rank 0 sends to rank 1 through the wire.
struct Ranks {
  std::optional<Wire> wire;
  std::unique_ptr<Messages> ranks[3];

  explicit Ranks(const std::shared_ptr<const LinkKey>& key) {
    MessagePeers peers;
    peers.hello.fill(1);
    peers.answer.fill(2);
    UniqueFd listeners[3];
    for (UniqueFd& listener : listeners) {
      auto opened = ddprun::rendezvous::ListenOn("127.0.0.1", 0);
      REQUIRE(opened.ok());
      listener = *std::move(opened);
      peers.places.push_back({"127.0.0.1", ddprun::rendezvous::LocalPort(listener.get())});
    }
    wire.emplace(peers.places[1].port);
    for (int rank : {0, 1, 2}) {
      MessagePeers told = peers;
      if (rank == 0) told.places[1].port = wire->port();
      ranks[rank] = std::make_unique<Messages>(rank, told, std::move(listeners[rank]), key,
                                               [] { return absl::OkStatus(); });
    }
  }
  std::unique_ptr<Work> Send(int from, int to, std::string& data, uint64_t tag,
                             std::chrono::milliseconds timeout = kLongest) {
    return ranks[from]->Start({.is_send = true,
                               .peer = to,
                               .tag = tag,
                               .data = data.data(),
                               .bytes = data.size(),
                               .timeout = timeout});
  }
  std::unique_ptr<Work> Receive(int at, int from, std::string& data, uint64_t tag,
                                std::chrono::milliseconds timeout = kLongest) {
    return ranks[at]->Start(
        {.peer = from, .tag = tag, .data = data.data(), .bytes = data.size(), .timeout = timeout});
  }
};

std::string Bytes(size_t count, uint32_t first) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>((first + static_cast<uint32_t>(i)) * 2654435761u >> 24);
  }
  return bytes;
}

void CheckOk(const std::unique_ptr<Work>& work) {
  const absl::Status status = work->Wait();
  CHECK_MESSAGE(status.ok(), status.ToString());
}

void ForPlainAndSealed(const std::function<void(Ranks&)>& body) {
  const auto key = LinkKey::Make(std::string(32, 'k'));
  REQUIRE_MESSAGE(key.ok(), key.status().ToString());
  for (const bool is_sealed : {false, true}) {
    CAPTURE(is_sealed);
    Ranks ranks(is_sealed ? *key : nullptr);
    body(ranks);
  }
}

TEST_CASE("driver: a message on its way stays whole when another is sent to the same rank") {
  ForPlainAndSealed([](Ranks& ranks) {
    std::string large = Bytes(kLargeBytes, 1), second = Bytes(1'000'000, 2), reply = Bytes(9999, 3);
    std::string got_large(large.size(), '\0'), got_second(second.size(), '\0');
    std::string got_reply(reply.size(), '\0'), token = "token", got_token(5, '\0');
    const auto receive_second = ranks.Receive(1, 0, got_second, 2);
    const auto receive_large = ranks.Receive(1, 0, got_large, 1);
    const auto send_large = ranks.Send(0, 1, large, 1);
    REQUIRE(ranks.wire->AwaitHeld());
    const auto send_second = ranks.Send(0, 1, second, 2);
    // Its thread takes what is started in order: when this one has gone, the second is offered.
    const auto send_token = ranks.Send(0, 2, token, 3);
    CheckOk(ranks.Receive(2, 0, got_token, 3));
    CheckOk(send_token);
    // What comes from that rank does not wait.
    const auto send_reply = ranks.Send(1, 0, reply, 4);
    CheckOk(ranks.Receive(0, 1, got_reply, 4));
    CheckOk(send_reply);
    CHECK_FALSE(send_large->IsDone());
    ranks.wire->Release();
    for (const auto* work : {&receive_large, &send_large, &receive_second, &send_second}) {
      CheckOk(*work);
    }
    // In parentheses, as nobody wants to read them.
    CHECK((got_large == large));
    CHECK((got_second == second));
    CHECK((got_reply == reply));
    CHECK(got_token == token);
  });
}

TEST_CASE("driver: a message on its way stays whole when another is given up") {
  ForPlainAndSealed([](Ranks& ranks) {
    std::string large = Bytes(kLargeBytes, 4), got_large(large.size(), '\0');
    std::string late = "late", next = "next", got_next(4, '\0');
    const auto receive_large = ranks.Receive(1, 0, got_large, 1);
    const auto send_large = ranks.Send(0, 1, large, 1);
    REQUIRE(ranks.wire->AwaitHeld());
    // lower bound: it stands behind what is held
    const auto send_late = ranks.Send(0, 1, late, 2, std::chrono::milliseconds(50));
    CHECK(absl::IsDeadlineExceeded(send_late->Wait()));
    CHECK_FALSE(send_large->IsDone());
    ranks.wire->Release();
    CheckOk(receive_large);
    CheckOk(send_large);
    CHECK((got_large == large));
    const auto send_next = ranks.Send(0, 1, next, 2);
    CheckOk(ranks.Receive(1, 0, got_next, 2));
    CheckOk(send_next);
    CHECK(got_next == next);
  });
}

TEST_CASE("driver: of a message that is on its way nobody is missing") {
  ForPlainAndSealed([](Ranks& ranks) {
    std::string large = Bytes(kLargeBytes, 4), got_large(large.size(), '\0'), other = "other";
    const auto receive = ranks.Receive(1, -1, got_large, 1);
    CHECK(receive->missing() == "no rank sent it");
    const auto send_other = ranks.Send(1, 2, other, 1);
    const auto send = ranks.Send(0, 1, large, 1);
    REQUIRE(ranks.wire->AwaitHeld());
    CHECK(receive->missing() == "");
    CHECK(send->missing() == "");
    CHECK(send_other->missing() == "rank 2 did not receive it");
    ranks.wire->Release();
    CheckOk(receive);
    CheckOk(send);
  });
}

TEST_CASE("driver: a message that times out on its way names who has not sent all of it") {
  ForPlainAndSealed([](Ranks& ranks) {
    std::string large = Bytes(kLargeBytes, 4), got_large(large.size(), '\0');
    const auto receive = ranks.Receive(1, -1, got_large, 1, std::chrono::seconds(3));
    const auto send = ranks.Send(0, 1, large, 1);
    REQUIRE(ranks.wire->AwaitHeld());
    CHECK(receive->Wait().message() ==
          Contains("timed out after 3 s: rank 0 has not sent all of it"));
  });
}

TEST_CASE("driver: without memory what is under way ends, and what comes later, from others too") {
  auto listener = ddprun::rendezvous::ListenOn("127.0.0.1", 0);
  REQUIRE(listener.ok());
  const uint16_t port = ddprun::rendezvous::LocalPort(listener->get());
  const MessagePeers peers{.places = {{"127.0.0.1", port}, {"127.0.0.1", port}}};
  const auto group_error = [] { return absl::OkStatus(); };
  Messages messages(0, peers, *std::move(listener), nullptr, group_error);
  Messages other(1, peers, UniqueFd(), nullptr, group_error);
  char byte = 0;
  const Message receive{.peer = 1, .data = &byte, .bytes = 1, .timeout = kLongest};
  absl::Status first;
  {
    const ddprun::testing::NoMemoryOnNewThreads none;
    first = messages.Start(receive)->Wait();
  }
  CHECK_MESSAGE(absl::IsResourceExhausted(first), first.ToString());
  CHECK(messages.Start(receive)->Wait() == first);

  const Message send{.is_send = true, .peer = 0, .data = &byte, .bytes = 1, .timeout = kLongest};
  const absl::Status later = other.Start(send)->Wait();
  CHECK_MESSAGE(absl::IsUnavailable(later), later.ToString());
  CHECK(later.message() == Contains("Connection refused"));
}

}  // namespace
}  // namespace ddp::internal
