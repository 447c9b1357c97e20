// Who connects to a rank's port is believed only after proof, and costs little until then.
#include "worker_runtime/comm/tcp/acceptor.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "tests/support/descriptors.h"
#include "tests/support/scarce_descriptors.h"
#include "tests/worker_runtime/comm/tcp/intruder.h"

namespace ddp::internal {
namespace {

using ddprun::testing::CountDescriptors;
using ddprun::testing::Intruder;
using ddprun::testing::ScarceDescriptors;

constexpr int kRank = 1;
constexpr Nonce kNonce = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

std::string Bytes(const Hello& hello) {
  return std::string(reinterpret_cast<const char*>(&hello), sizeof hello);
}

// An acceptor that waits on a thread of its own for ranks 0 and 2.
class Waiting {
 public:
  explicit Waiting(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    auto acceptor = Acceptor::Listen("127.0.0.1", kRank, kNonce, nullptr);
    REQUIRE_MESSAGE(acceptor.ok(), acceptor.status().ToString());
    acceptor_ = std::move(*acceptor);
    thread_ = std::thread([this, timeout] {
      peers_ = acceptor_->Await({0, 2}, Clock::now() + timeout);
    });
  }
  ~Waiting() {
    acceptor_->Stop();
    if (thread_.joinable()) thread_.join();
  }

  uint16_t port() const { return acceptor_->port(); }
  void Stop() { acceptor_->Stop(); }
  absl::StatusOr<std::vector<Acceptor::Peer>> Finish() {
    thread_.join();
    return std::move(peers_);
  }
  // Lets the true ranks come, and sees that they are believed.
  void CheckPeersAreTaken() {
    Intruder two(port()), zero(port());
    two.Say(Bytes(MakeHello(kNonce, 2, kRank)));
    zero.Say(Bytes(MakeHello(kNonce, 0, kRank)));
    auto peers = Finish();
    REQUIRE_MESSAGE(peers.ok(), peers.status().ToString());
    REQUIRE(peers->size() == 2);
    CHECK((*peers)[0].rank + (*peers)[1].rank == 2);
    CHECK((*peers)[0].socket.is_open());
  }

 private:
  std::unique_ptr<Acceptor> acceptor_;
  absl::StatusOr<std::vector<Acceptor::Peer>> peers_;
  std::thread thread_;
};

TEST_CASE("acceptor: a connection that says something wrong is dropped, and the ranks are taken") {
  Nonce other_round = kNonce;
  other_round[15] ^= 1;
  Hello old_version = MakeHello(kNonce, 0, kRank);
  old_version.magic[7] = '0';
  const std::pair<const char*, std::string> rows[] = {
      {"garbage", std::string(32, '\xff')},
      {"zeros", std::string(32, '\0')},
      {"HTTP", "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"},
      {"oversized", std::string(8 << 20, 'x')},
      {"another version", Bytes(old_version)},
      {"the nonce of another round", Bytes(MakeHello(other_round, 0, kRank))},
      {"for another rank", Bytes(MakeHello(kNonce, 0, 3))},
      {"from a rank that is no neighbour", Bytes(MakeHello(kNonce, 7, kRank))},
      {"from this rank itself", Bytes(MakeHello(kNonce, kRank, kRank))},
      {"from a negative rank", Bytes(MakeHello(kNonce, -1, kRank))},
      {"oversized after a wrong nonce",
       Bytes(MakeHello(other_round, 0, kRank)) + std::string(1 << 20, 'x')},
  };
  Waiting waiting;
  for (const auto& [what, bytes] : rows) {
    CAPTURE(std::string(what));
    Intruder intruder(waiting.port());
    intruder.Say(bytes);
    std::string heard;
    CHECK(intruder.IsDropped(&heard));
    CHECK(heard == "");  // strangers learn nothing, the rank's nonce least of all
  }
  waiting.CheckPeersAreTaken();
}

TEST_CASE("acceptor: a rank that has come cannot come again") {
  Waiting waiting;
  Intruder first(waiting.port());
  first.Say(Bytes(MakeHello(kNonce, 0, kRank)));
  // Which of two equal ones is believed is the first heard: the other is dropped in any order.
  Intruder wrong(waiting.port());
  wrong.Say(std::string(32, 'x'));
  CHECK(wrong.IsDropped());
  Intruder again(waiting.port());
  again.Say(Bytes(MakeHello(kNonce, 0, kRank)));
  CHECK(again.IsDropped());
  Intruder two(waiting.port());
  two.Say(Bytes(MakeHello(kNonce, 2, kRank)));
  auto peers = waiting.Finish();
  REQUIRE(peers.ok());
  CHECK(peers->size() == 2);
}

TEST_CASE(
    "acceptor: a connection that says nothing or too little is dropped before the ranks come") {
  Waiting waiting;
  std::vector<Intruder> intruders;
  for (int i = 0; i < 3; ++i) intruders.emplace_back(waiting.port());
  intruders[1].Say("d");
  intruders[2].Say(Bytes(MakeHello(kNonce, 0, kRank)).substr(0, 31));
  // Nobody else comes in the meantime, so only the time for a hello can end these.
  static_assert(Acceptor::kHelloTimeout < std::chrono::seconds(5));
  for (Intruder& intruder : intruders) CHECK(intruder.IsDropped());
  waiting.CheckPeersAreTaken();
}

TEST_CASE("acceptor: a hello in pieces is taken") {
  Waiting waiting;
  const std::string zero = Bytes(MakeHello(kNonce, 0, kRank));
  Intruder slow(waiting.port());
  for (char byte : zero) slow.Say(std::string(1, byte));
  Intruder two(waiting.port());
  two.Say(Bytes(MakeHello(kNonce, 2, kRank)));
  CHECK(waiting.Finish().ok());
}

TEST_CASE("acceptor: of a flood of silent connections few are held, and the ranks still come") {
  constexpr size_t kFlood = 180;  // more than are heard together, and more than the queue holds
  Waiting waiting;
  const size_t before = CountDescriptors(getpid());
  std::vector<Intruder> flood;
  for (size_t i = 0; i < kFlood; ++i) flood.emplace_back(waiting.port());
  Intruder two(waiting.port()), zero(waiting.port());
  const size_t ours = before + kFlood + 2;
  size_t most = 0;
  // The last of the flood stand in the kernel's queue behind all others.
  for (Intruder& intruder : flood) {
    most = std::max(most, CountDescriptors(getpid()));
    if (&intruder == &flood[kFlood / 2]) {
      two.Say(Bytes(MakeHello(kNonce, 2, kRank)));
      zero.Say(Bytes(MakeHello(kNonce, 0, kRank)));
    }
    CHECK(intruder.IsDropped());
  }
  auto peers = waiting.Finish();
  REQUIRE_MESSAGE(peers.ok(), peers.status().ToString());
  CHECK(most > before + kFlood);
  CHECK(most <= ours + Acceptor::kMaxStrangers + 1);  // and the folder that is read
}

TEST_CASE("acceptor: the port is closed, with all that hang on it, once the ranks have come") {
  Waiting waiting;
  Intruder silent(waiting.port());
  waiting.CheckPeersAreTaken();
  CHECK(silent.IsDropped());
  CHECK(Intruder(waiting.port()).IsRefused());
}

TEST_CASE("acceptor: ranks that do not come are named when the time is over") {
  auto acceptor = Acceptor::Listen("127.0.0.1", kRank, kNonce, nullptr);
  REQUIRE(acceptor.ok());
  Intruder silent((*acceptor)->port());
  // lower bound: it says nothing
  auto peers = (*acceptor)->Await({0, 2}, Clock::now() + std::chrono::milliseconds(50));
  CHECK(absl::IsDeadlineExceeded(peers.status()));
  CHECK(peers.status().message() == "ranks 0 and 2 did not connect to rank 1");
}

TEST_CASE("acceptor: stopping ends the wait") {
  Waiting waiting(std::chrono::hours(1));
  waiting.Stop();
  CHECK(absl::IsCancelled(waiting.Finish().status()));
}

TEST_CASE("acceptor: an address that is none of ours is refused by name") {
  const auto refusal = [](const std::string& address) {
    const absl::Status status = Acceptor::Listen(address, 3, kNonce, nullptr).status();
    CHECK(absl::IsUnavailable(status));
    return std::string(status.message());
  };
  CHECK(refusal("") == "rank 3 has no address to listen on: \"\"");
  CHECK(refusal("node-7") == "rank 3 has no address to listen on: \"node-7\"");
  CHECK(refusal("192.0.2.1") ==
        "rank 3 cannot listen on 192.0.2.1: Cannot assign requested address (EADDRNOTAVAIL)");
}

// How often this thread has given up the processor by itself.
int64_t RestsOfThread() {
  rusage usage{};
  DDP_CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_nvcsw;
}

// poll() reports the connection that waits at once, again and again.
TEST_CASE("acceptor: without descriptors it rests between its tries") {
  auto acceptor = Acceptor::Listen("127.0.0.1", kRank, kNonce, nullptr);
  REQUIRE(acceptor.ok());
  const ScarceDescriptors scarce;
  const Intruder waiting((*acceptor)->port());  // has the last descriptor
  const int64_t before = RestsOfThread();
  const Clock::time_point give_up = Clock::now() + std::chrono::seconds(30);
  // One that does not rest is only ever made to. A thread that gets no core in this time tries
  // again.
  while (RestsOfThread() == before && Clock::now() < give_up) {
    constexpr std::chrono::milliseconds kAWhile(200);  // lower bound: of some tries
    CHECK(absl::IsDeadlineExceeded((*acceptor)->Await({0}, Clock::now() + kAWhile).status()));
  }
  CHECK(RestsOfThread() > before);
}

TEST_CASE("acceptor: who came while there was no descriptor is taken when there is one") {
  Waiting waiting;
  auto scarce = std::make_unique<ScarceDescriptors>();
  Intruder early(waiting.port());  // has the last descriptor
  early.Say(Bytes(MakeHello(kNonce, 0, kRank)));
  CHECK(early.IsKept(std::chrono::milliseconds(200)));  // lower bound: some tries
  scarce.reset();
  Intruder late(waiting.port());
  late.Say(Bytes(MakeHello(kNonce, 2, kRank)));
  auto peers = waiting.Finish();
  REQUIRE_MESSAGE(peers.ok(), peers.status().ToString());
  CHECK(peers->size() == 2);
}

}  // namespace
}  // namespace ddp::internal
