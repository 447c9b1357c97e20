// A neighbour that sends a byte now and then: it must not hold an operation beyond its deadline.
#include "worker_runtime/comm/tcp/chain.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <thread>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"

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

  Link TakeLink() { return Link{std::move(theirs_), 0}; }

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
  const std::unique_ptr<char[]> data(new char[kBytes]);  // untouched pages cost nothing
  const Op op = LongBroadcast(std::chrono::milliseconds(200));
  const absl::Status status = chain.Spread(op, -1, data.get(), kBytes);
  CHECK_MESSAGE(absl::IsDeadlineExceeded(status), std::string(status.message()));
  CHECK(status.message().find("timed out after 200 ms: rank 0") != absl::string_view::npos);
}

TEST_CASE("chain: what ends a wait also ends one in which bytes trickle") {
  Trickle trickle(std::chrono::milliseconds(5));
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
