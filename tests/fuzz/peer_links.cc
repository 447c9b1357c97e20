// What a rank hears of its neighbours: who connects to it, and what they say in its operations.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "tests/fuzz/loopback.h"
#include "tests/fuzz/promise.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/tcp/acceptor.h"
#include "worker_runtime/comm/tcp/chain.h"
#include "worker_runtime/comm/tcp/link_key.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;
using ddprun::fuzz::ConnectTo;
using ddprun::fuzz::Input;
using ddprun::fuzz::IsPlain;
using ddprun::fuzz::Promise;
using std::chrono::milliseconds;

constexpr int kRank = 5, kPrevious = 3, kNext = 8;  // of the group
constexpr Nonce kNonce = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
// No wait comes to its end: all that is said is there, or the connection is closed.
constexpr milliseconds kTimeout(60'000);
constexpr milliseconds kStrangerAlone(2);  // lower bound: it is never believed
constexpr size_t kMaxCount = 40;
constexpr uint32_t kHelloWord = 0x31706464;  // of a Greeting

const std::shared_ptr<const LinkKey>& TheKey() {
  static const auto& key =
      *new std::shared_ptr<const LinkKey>(LinkKey::Make(std::string(sizeof(Key), 'k')).value());
  return key;
}

template <typename Value>
std::string BytesOf(const Value& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

uint16_t PortOf(int socket, decltype(getsockname)* of) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  DDP_CHECK(of(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

// Says this and stays.
UniqueFd ConnectAndSay(uint16_t port, std::string_view words) {
  UniqueFd socket = ConnectTo(port);
  (void)send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
  return socket;
}

void CheckStranger(std::string_view words, bool has_key) {
  const std::string hello = BytesOf(MakeHello(kNonce, kNext, kRank));
  auto acceptor = Acceptor::Listen("127.0.0.1", kRank, kNonce, has_key ? TheKey() : nullptr);
  DDP_CHECK(acceptor.ok());
  const UniqueFd stranger = ConnectAndSay((*acceptor)->port(), words);
  if (has_key) {
    const auto peers = (*acceptor)->Await({kNext}, Clock::now() + kStrangerAlone);
    Promise(absl::IsDeadlineExceeded(peers.status()), "who has not the key is not believed");
    return;
  }
  const UniqueFd neighbour = ConnectAndSay((*acceptor)->port(), hello);
  const auto peers = (*acceptor)->Await({kNext}, Clock::now() + kTimeout);
  Promise(peers.ok() && peers->size() == 1 && peers->front().rank == kNext,
          "the neighbour is believed, whoever comes before it", peers.status().ToString());
  if (words.substr(0, hello.size()) == hello) return;
  Promise(PortOf(peers->front().socket.get(), getpeername) == PortOf(neighbour.get(), getsockname),
          "who cannot say the secret is not believed");
}

// A neighbour, and all that it ever says.
struct Neighbour {
  bool is_there = false;
  std::string said;
};

struct Case {
  Neighbour previous, next;
  bool is_sealed = false;
  uint64_t action = 0;
  Op op;
};

std::string GreetingOf(const Case& one, int rank) {
  return BytesOf(Greeting{kHelloWord, rank, RecordOf(one.op)});
}

Neighbour ReadNeighbour(Input& input, const Case& one, int rank, bool greets) {
  Neighbour neighbour{.is_there = true, .said = {}};
  if (greets) neighbour.said = GreetingOf(one, rank);
  const size_t size = input.Number(2) % 4096;
  neighbour.said += input.Text(size);
  return neighbour;
}

enum Flag : uint64_t {
  kHasPrevious = 1,
  kHasNext = 2,
  kPreviousGreets = 4,
  kNextGreets = 8,
  kSealed = 16
};
constexpr uint64_t kActions = 7;  // Reduce, Synchronize, Spread and Carry from either side

Case ReadCase(Input& input) {
  const uint64_t flags = input.Number(1);
  Case one;
  one.is_sealed = (flags & kSealed) != 0;
  one.action = input.Number(1) % kActions;
  constexpr OpKind kKinds[kActions] = {OpKind::kAllReduce, OpKind::kBarrier,   OpKind::kBroadcast,
                                       OpKind::kBroadcast, OpKind::kBroadcast, OpKind::kScatter,
                                       OpKind::kScatter};
  one.op.kind = kKinds[one.action];
  one.op.dtype = static_cast<DType>(input.Number(1) % 8);
  one.op.count = 1 + input.Number(1) % kMaxCount;
  one.op.sequence = 7;
  one.op.timeout = kTimeout;
  one.op.deadline = Clock::now() + kTimeout;
  if ((flags & kHasPrevious) != 0 || (flags & kHasNext) == 0) {
    one.previous = ReadNeighbour(input, one, kPrevious, (flags & kPreviousGreets) != 0);
  }
  if ((flags & kHasNext) != 0) {
    one.next = ReadNeighbour(input, one, kNext, (flags & kNextGreets) != 0);
  }
  return one;
}

// The other end: it stays open, so that what we say has somewhere to go.
struct Wired {
  Link link;
  UniqueFd other;
};

Wired Wire(const Case& one, const Neighbour& neighbour, int rank) {
  if (!neighbour.is_there) return {};
  int ends[2];
  DDP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  Wired wired{{UniqueFd(ends[0]), rank, nullptr}, UniqueFd(ends[1])};
  std::string bytes = neighbour.said;
  if (one.is_sealed) {
    const LinkSecrets secrets(*TheKey(), kNonce, MakeSealedHello(kRank, rank), kNonce);
    wired.link.sealed = secrets.Channel(false);
    const auto theirs = secrets.Channel(true);
    bytes.clear();
    // Records of uneven sizes: a greeting comes in several.
    for (std::string_view rest = neighbour.said; !rest.empty();) {
      const std::string_view piece = rest.substr(0, 1 + rest.size() % 61);
      theirs->out.Seal(piece, "");
      bytes += theirs->out.Pending();
      theirs->out.Sent(theirs->out.Pending().size());
      rest.remove_prefix(piece.size());
    }
  }
  DDP_CHECK(send(wired.other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  shutdown(wired.other.get(), SHUT_WR);
  return wired;
}

struct Ended {
  absl::Status status;
  std::string data;
};

Ended Run(const Case& one) {
  Wired previous = Wire(one, one.previous, kPrevious), next = Wire(one, one.next, kNext);
  Chain chain(kRank, std::move(previous.link), std::move(next.link),
              {[] { return absl::OkStatus(); }, [](const Op&) {}});
  Ended ended;
  const size_t bytes = one.op.bytes();
  ended.data.assign(bytes, 'o');
  std::string input(bytes, 'i');
  char* data = ended.data.data();
  const int side = one.previous.is_there ? -1 : 1;
  switch (one.action) {
    case 0: {
      ReduceJob job;
      job.dtype = one.op.dtype;
      job.count = one.op.count;
      job.inputs = {input.data()};
      job.outputs = {data};
      ended.status = chain.Reduce(one.op, job, true);
      break;
    }
    case 1:
      ended.status = chain.Synchronize(one.op);
      break;
    case 2:
    case 3:
    case 4:
      ended.status = chain.Spread(one.op, one.action == 4 ? 0 : side, data, bytes);
      break;
    default: {
      const bool is_between = one.previous.is_there && one.next.is_there && one.action == 6;
      ended.status = chain.Carry(one.op, side, is_between ? -side : 0, data, bytes);
    }
  }
  return ended;
}

// Bytes that the neighbour must say, and how, for the operation to succeed.
struct Wanted {
  bool greets = false;
  size_t bytes = 0;
};

bool Does(const Case& one, const Neighbour& neighbour, int rank, Wanted wanted) {
  if (!neighbour.is_there) return true;
  if (!wanted.greets) return neighbour.said.size() >= wanted.bytes;
  if (neighbour.said.size() < sizeof(Greeting) + wanted.bytes) return false;
  std::string greeting = neighbour.said.substr(0, sizeof(Greeting));
  Greeting said;
  std::memcpy(&said, greeting.data(), sizeof said);
  // What a rank sends to whom is its own affair.
  said.record.destination = one.op.destination;
  said.record.source = one.op.source;
  said.record.unused = 0;
  return BytesOf(said) == GreetingOf(one, rank);
}

bool MaySucceed(const Case& one) {
  const size_t bytes = one.op.bytes();
  Wanted from_previous{true, one.op.count * AccumulatorSize(one.op.dtype)};
  Wanted from_next{true, bytes};
  if (one.action == 1) from_previous.bytes = AccumulatorSize(DType::kUint8), from_next.bytes = 1;
  if (one.action > 1) {
    const bool has_previous = one.previous.is_there;
    from_previous = {false, one.action != 4 && has_previous ? bytes : 0};
    from_next = {false, one.action != 4 && !has_previous ? bytes : 0};
  }
  return Does(one, one.previous, kPrevious, from_previous) && Does(one, one.next, kNext, from_next);
}

void CheckEnd(const Case& one, const Ended& ended) {
  const std::string why(ended.status.message());
  Promise(ended.status.ok() == MaySucceed(one),
          "an operation succeeds where the neighbours say all that belongs to it", why);
  if (ended.status.ok()) {
    const bool is_carried = one.action == 2 || one.action == 3 || one.action == 5;
    const Neighbour& from = one.previous.is_there ? one.previous : one.next;
    Promise(!is_carried || ended.data == from.said.substr(0, ended.data.size()),
            "what a neighbour carries here is what it said");
    return;
  }
  Promise(absl::IsUnavailable(ended.status) || absl::IsInternal(ended.status) ||
              absl::IsInvalidArgument(ended.status),
          "a neighbour leaves, says nonsense, or calls another operation", why);
  Promise(IsPlain(why, false), "an error is one plain line", why);
  const std::optional<int> left = LeftPeerOf(ended.status);
  Promise(!left || *left == kPrevious || *left == kNext, "who left is a neighbour", why);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint64_t what = input.Number(1);
  if (what % 4 == 0) {
    CheckStranger(input.Text(size), what % 64 == 0);
    return 0;
  }
  // Sealed or not, the same ends are promised.
  const Case one = ReadCase(input);
  CheckEnd(one, Run(one));
  return 0;
}

}  // namespace ddp::internal
