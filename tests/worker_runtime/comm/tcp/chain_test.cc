// Neighbours on one link: one that sends a byte now and then, one that tampers, one that leaves.
#include "worker_runtime/comm/tcp/chain.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"
#include "worker_runtime/comm/tcp/link_key.h"

namespace ddp::internal {
namespace {

// After which a neighbour that nobody hangs up on gives up, so that the test ends.
constexpr std::chrono::seconds kLongest(10);
constexpr size_t kBytes = size_t{1} << 30;  // far more than come

// Rank 0, the node before ours, which sends byte after byte.
class Trickle {
 public:
  explicit Trickle(std::chrono::milliseconds between_bytes) : between_bytes_(between_bytes) {
    int ends[2];
    DDP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    ours_.Reset(ends[0]);
    theirs_.Reset(ends[1]);
    thread_ = std::thread([this] { Run(); });
  }
  ~Trickle() { thread_.join(); }

  Link TakeLink() { return Link{std::move(theirs_), 0, nullptr}; }

 private:
  void Run() {
    const char byte = 0;
    const Clock::time_point end = Clock::now() + kLongest;
    while (Clock::now() < end) {
      pollfd hang_up{ours_.get(), 0, 0};
      if (poll(&hang_up, 1, static_cast<int>(between_bytes_.count())) > 0) return;
      if (send(ours_.get(), &byte, 1, MSG_NOSIGNAL) != 1) return;
    }
    ours_.Reset();
  }

  const std::chrono::milliseconds between_bytes_;
  ddprun::UniqueFd ours_, theirs_;
  std::thread thread_;
};

Op LongBroadcast(std::chrono::milliseconds timeout) {
  return Op{.kind = OpKind::kBroadcast,
            .count = kBytes,
            .sequence = 7,
            .timeout = timeout,
            .deadline = Clock::now() + timeout};
}

TEST_CASE("chain: a neighbour that trickles does not hold an operation beyond its deadline") {
  Trickle trickle(std::chrono::milliseconds(0));  // something to read at every look
  Chain chain(1, trickle.TakeLink(), {}, {[] { return absl::OkStatus(); }, [](const Op&) {}});
  const std::unique_ptr<char[]> data(new char[kBytes]);         // untouched pages cost nothing
  const Op op = LongBroadcast(std::chrono::milliseconds(200));  // lower bound: it never ends
  const absl::Status status = chain.Spread(op, -1, data.get(), kBytes);
  CHECK_MESSAGE(absl::IsDeadlineExceeded(status), std::string(status.message()));
  CHECK(status.message() == Contains("timed out after 200 ms: rank 0"));
}

TEST_CASE("chain: what was changed on a sealed link ends the operation and names the rank") {
  int ends[2];
  DDP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  ddprun::UniqueFd theirs(ends[0]), ours(ends[1]);
  const auto key = LinkKey::Make(std::string(32, 'k'));
  REQUIRE_MESSAGE(key.ok(), key.status().ToString());
  const LinkSecrets secrets(**key, Nonce{1}, MakeSealedHello(1, 0), Nonce{2});
  const auto sending = secrets.Channel(true);
  sending->out.Seal("some bytes of a broadcast", "");
  std::string record(sending->out.Pending());
  record[10] = static_cast<char>(record[10] ^ 1);
  REQUIRE(send(theirs.get(), record.data(), record.size(), 0) ==
          static_cast<ssize_t>(record.size()));
  Chain chain(1, Link{std::move(ours), 0, secrets.Channel(false)}, {},
              {[] { return absl::OkStatus(); }, [](const Op&) {}});
  std::string data(25, '\0');
  Op op = LongBroadcast(std::chrono::minutes(1));
  const absl::Status status = chain.Spread(op, -1, data.data(), data.size());
  CHECK_MESSAGE(absl::IsDataLoss(status), std::string(status.message()));
  CHECK(status.message() == Contains("what came from rank 0 is not what it has sealed"));
}

// Rank 0 says its last, its goodbye or not, and closes; another thread asks for its end all along.
void CheckLeaving(bool is_sealed, bool is_in_order, const LinkSecrets& secrets) {
  CAPTURE(is_sealed);
  CAPTURE(is_in_order);
  int ends[2];
  DDP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  ddprun::UniqueFd theirs(ends[0]), ours(ends[1]);
  const Chain::Callbacks callbacks{[] { return absl::OkStatus(); }, [](const Op&) {}};
  auto leaving = std::make_unique<Chain>(
      0, Link{}, Link{std::move(theirs), 1, is_sealed ? secrets.Channel(false) : nullptr},
      callbacks);
  Chain chain(1, Link{std::move(ours), 0, is_sealed ? secrets.Channel(true) : nullptr}, {},
              callbacks);
  const Op op = LongBroadcast(std::chrono::minutes(1));
  std::string said = "the last results", heard(said.size(), '\0');
  CHECK(leaving->Spread(op, 0, said.data(), said.size()).ok());
  if (is_in_order) leaving->SayGoodbye();
  leaving.reset();
  CHECK(chain.PeerError().ok());
  std::atomic<bool> is_over = false;
  std::latch has_asked(1);
  absl::Status seen;
  std::thread asking([&] {
    seen = chain.PeerError();
    has_asked.count_down();
    while (seen.ok() && !is_over) seen = chain.PeerError();
  });
  has_asked.wait();
  // Both lie there, and a sealed link reads them at once.
  const absl::Status status = chain.Spread(op, -1, heard.data(), heard.size());
  is_over = true;
  asking.join();
  CHECK_MESSAGE(status.ok(), status.ToString());
  CHECK(heard == said);
  const absl::Status error = chain.PeerError();
  // An operation that speaks first meets a closed connection.
  const absl::Status next = chain.Synchronize(op);
  CHECK(absl::IsUnavailable(next));
  if (is_in_order) {
    CHECK_MESSAGE(seen.ok(), seen.ToString());
    CHECK_MESSAGE(error.ok(), error.ToString());
    CHECK(next.message() ==
          "broadcast #7 (uint8 x 1073741824, root 0) failed: rank 0 has left the group");
  } else {
    CHECK(next.message() == Contains("rank 0 died: its connection "));
    CHECK(absl::IsUnavailable(error));
    CHECK(error.message() == "rank 0 died: its connection was closed");
  }
}

TEST_CASE("chain: a neighbour that has said its goodbye is not dead, another that has gone is") {
  const auto key = LinkKey::Make(std::string(32, 'k'));
  REQUIRE_MESSAGE(key.ok(), key.status().ToString());
  const LinkSecrets secrets(**key, Nonce{1}, MakeSealedHello(0, 1), Nonce{2});
  for (int i = 0; i < 40; ++i) {
    for (const bool is_sealed : {false, true}) {
      for (const bool is_in_order : {true, false}) CheckLeaving(is_sealed, is_in_order, secrets);
    }
  }
}

TEST_CASE("chain: what ends a wait also ends one in which bytes trickle") {
  Trickle trickle(std::chrono::milliseconds(5));  // no limit: an interval
  int asked = 0;
  const auto interrupted = [&asked] {
    return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("aborted");
  };
  bool is_stuck = false;
  Chain chain(1, trickle.TakeLink(), {}, {interrupted, [&](const Op&) { is_stuck = true; }});
  const std::unique_ptr<char[]> data(new char[kBytes]);  // untouched pages cost nothing
  const Op op = LongBroadcast(std::chrono::minutes(10));
  const absl::Status status = chain.Spread(op, -1, data.get(), kBytes);
  CHECK_MESSAGE(absl::IsCancelled(status), std::string(status.message()));
  CHECK_FALSE(is_stuck);
}

}  // namespace
}  // namespace ddp::internal
