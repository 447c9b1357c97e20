// What a store, or whoever listens in its place, replies to its client.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/store/wire.h"
#include "tests/fuzz/promise.h"
#include "worker_runtime/store_client.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;
using ddprun::fuzz::Input;
using ddprun::fuzz::Promise;
using std::chrono::milliseconds;

// No wait comes to its end: all that is said is there, or the connection is closed.
constexpr milliseconds kTimeout(60'000);
constexpr int64_t kMaxValueBytes = int64_t{1} << 30;
constexpr size_t kMaxCalls = 8;
constexpr size_t kMaxPieces = 64;
constexpr char kLost[] = "lost";
constexpr char kLate[] = "late";

enum class Call {
  kSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kCompareSet,
  kDelete,
  kKeyCount,
  kMultiGet,
  kMultiSet
};
constexpr uint64_t kCalls = 10;

// Who answers. Each piece is one message, and so comes alone.
class Replier {
 public:
  Replier() {
    int ends[2];
    const int kind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
    DDP_CHECK(socketpair(AF_UNIX, kind, 0, ends) == 0);
    ours_.Reset(ends[0]);
    theirs_.Reset(ends[1]);
  }
  UniqueFd TakeClientEnd() { return std::move(theirs_); }
  void Say(std::string_view piece) const {
    DDP_CHECK(send(ours_.get(), piece.data(), piece.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(piece.size()));
  }
  void SayAll(std::string_view bytes, size_t piece) const {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
      Say(bytes.substr(0, piece));
    }
    shutdown(ours_.get(), SHUT_WR);
  }
  void AwaitRequest() const {
    pollfd polled{ours_.get(), POLLIN, 0};
    char request[4096];
    while (poll(&polled, 1, static_cast<int>(kTimeout.count())) < 0) {
      DDP_CHECK(errno == EINTR);  // libFuzzer's alarm
    }
    DDP_CHECK(recv(ours_.get(), request, sizeof request, 0) > 0);
  }

 private:
  UniqueFd ours_, theirs_;
};

// What the client must make of these bytes.
class Expected {
 public:
  explicit Expected(std::string_view bytes) : rest_(bytes) {}

  std::string Of(Call call) {
    if (is_lost_) return kLost;
    switch (call) {
      case Call::kSet:
      case Call::kMultiSet:
        return "ok";
      case Call::kGet:
        return OfWait() == "ok" ? OfPayload() : kLost;
      case Call::kMultiGet:
        return OfWait() == "ok" ? OfPayloads() : kLost;
      case Call::kCompareSet:
        return OfPayload();
      case Call::kAdd:
      case Call::kKeyCount: {
        const std::optional<int64_t> number = Number();
        return number ? absl::StrCat(*number) : kLost;
      }
      case Call::kDelete: {
        const std::optional<int64_t> number = Number();
        return number ? absl::StrCat(*number > 0) : kLost;
      }
      case Call::kCheck: {
        const std::optional<char> byte = Byte();
        return byte ? absl::StrCat(*byte == ddprun::rendezvous::kCheckReady) : kLost;
      }
      case Call::kWait:
        return OfWait();
    }
    return kLost;
  }

  // The reply comes after the wait's time is over, behind the client's word that it is.
  std::string OfLateWait() {
    const std::optional<char> first = Byte();
    const bool has_appeared = first == ddprun::rendezvous::kStopWaiting;
    const std::optional<char> last = has_appeared ? Byte() : first;
    if (last != ddprun::rendezvous::kWaitCanceled) return Lose();
    return has_appeared ? "ok" : kLate;
  }

 private:
  const char* Lose() {
    is_lost_ = true;
    return kLost;
  }
  std::string OfWait() { return Byte() == ddprun::rendezvous::kStopWaiting ? "ok" : Lose(); }
  std::string OfPayload() {
    const std::optional<int64_t> size = Number();
    const bool is_size = size && *size >= 0 && *size <= kMaxValueBytes;
    const std::optional<std::string_view> text =
        is_size ? Take(static_cast<size_t>(*size)) : std::nullopt;
    return text ? "=" + std::string(*text) : Lose();
  }
  std::string OfPayloads() {
    const std::string first = OfPayload();
    const std::string second = is_lost_ ? kLost : OfPayload();
    return is_lost_ ? kLost : first + "," + second;
  }
  std::optional<std::string_view> Take(size_t size) {
    if (size > rest_.size()) {
      Lose();
      return std::nullopt;
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::optional<char> Byte() {
    const std::optional<std::string_view> byte = Take(1);
    return byte ? std::optional<char>(byte->front()) : std::nullopt;
  }
  std::optional<int64_t> Number() {
    const std::optional<std::string_view> bytes = Take(sizeof(int64_t));
    if (!bytes) return std::nullopt;
    int64_t number = 0;
    std::memcpy(&number, bytes->data(), sizeof number);
    return number;
  }

  std::string_view rest_;
  bool is_lost_ = false;
};

std::string TextOf(const absl::Status& status) {
  if (status.ok()) return "ok";
  if (absl::IsDeadlineExceeded(status)) return kLate;
  Promise(absl::IsUnavailable(status), "a store that cannot be used is unavailable",
          status.ToString());
  return kLost;
}

template <typename Value, typename ToText>
std::string TextOf(const absl::StatusOr<Value>& value, const ToText& to_text) {
  return value.ok() ? to_text(*value) : TextOf(value.status());
}

std::string Make(Call call, StoreClient& client) {
  const auto number = [](auto value) { return absl::StrCat(value); };
  const auto payload = [](const std::string& text) { return "=" + text; };
  switch (call) {
    case Call::kSet:
      return TextOf(client.Set("key", "value"));
    case Call::kGet:
      return TextOf(client.Get("key", kTimeout), payload);
    case Call::kAdd:
      return TextOf(client.Add("key", 1), number);
    case Call::kCheck:
      return TextOf(client.Check({"key", "other"}), number);
    case Call::kWait:
      return TextOf(client.Wait({"key"}, kTimeout));
    case Call::kCompareSet:
      return TextOf(client.CompareSet("key", "old", "new"), payload);
    case Call::kDelete:
      return TextOf(client.Delete("key"), number);
    case Call::kKeyCount:
      return TextOf(client.KeyCount(), number);
    case Call::kMultiGet:
      return TextOf(client.MultiGet({"key", "other"}, kTimeout),
                    [](const auto& values) { return "=" + absl::StrJoin(values, ",="); });
    case Call::kMultiSet:
      return TextOf(client.MultiSet({"key"}, {"value"}));
  }
  return "";
}

absl::StatusOr<std::unique_ptr<StoreClient>> Greet(Replier& replier) {
  return StoreClient::Greet(replier.TakeClientEnd(), kTimeout, ddprun::SteadyNow() + kTimeout,
                            ddprun::SteadyClock());
}

std::string Nonce() {
  const auto nonce = static_cast<uint32_t>(getpid());
  return std::string(reinterpret_cast<const char*>(&nonce), sizeof nonce);
}

std::vector<std::string> Hear(const std::vector<Call>& calls, bool is_late, std::string_view said,
                              size_t piece) {
  Replier replier;
  replier.Say(Nonce());
  if (!is_late) replier.SayAll(said, piece);
  const auto client = Greet(replier);
  Promise(client.ok(), "who answers the ping is a store", client.status().ToString());
  std::vector<std::string> heard;
  if (is_late) {
    std::thread answering([&] {
      for (int request = 0; request < 3; ++request) replier.AwaitRequest();
      replier.SayAll(said, piece);
    });
    heard.push_back(TextOf((*client)->Wait({"key"}, milliseconds(0))));
    answering.join();
  }
  for (const Call call : calls) heard.push_back(Make(call, **client));
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const bool is_late = input.Number(1) % 8 == 7;
  std::vector<Call> calls(input.Number(1) % (kMaxCalls + 1));
  for (Call& call : calls) call = static_cast<Call>(input.Number(1) % kCalls);
  const std::string_view said = input.Text(size);
  {
    Replier stranger;
    stranger.SayAll(said, 1 + said.size());
    const auto client = Greet(stranger);
    Promise(client.ok() == (said.substr(0, 4) == Nonce()), "who does not answer is no store");
    if (!client.ok()) TextOf(client.status());
  }
  Expected expected(said);
  std::vector<std::string> wanted;
  if (is_late) wanted.push_back(expected.OfLateWait());
  for (const Call call : calls) wanted.push_back(expected.Of(call));
  for (const size_t piece : {1 + said.size(), 1 + said.size() / kMaxPieces}) {
    const std::vector<std::string> heard = Hear(calls, is_late, said, piece);
    Promise(heard == wanted, "replies are heard as they were said, however they come",
            absl::StrCat(absl::StrJoin(heard, "|"), " instead of ", absl::StrJoin(wanted, "|")));
  }
  return 0;
}

}  // namespace ddp::internal
