#include "worker_runtime/store_client.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/steady_clock.h"

namespace ddp {
namespace internal {
namespace {

using ddprun::rendezvous::AppendRequest;
using ddprun::rendezvous::kCheckReady;
using ddprun::rendezvous::kStopWaiting;
using ddprun::rendezvous::kStoreMagic;
using ddprun::rendezvous::kWaitCanceled;
using ddprun::rendezvous::StoreCommand;
using ddprun::rendezvous::StoreLimits;
using ddprun::rendezvous::StoreOp;
using Milliseconds = Store::Milliseconds;

// How long a store may take to confirm that a wait is cancelled.
constexpr Milliseconds kCancelTimeout{5000};
// APPEND can make a value longer than one payload; a length beyond this is no store's.
constexpr uint64_t kMaxValueBytes = uint64_t{1} << 30;
// Keys that a message names.
constexpr size_t kNamedKeys = 16;

// A deadline that cannot overflow, however large the timeout.
Deadline After(Milliseconds timeout, const ddprun::Clock& clock) {
  return clock.Now() +
         std::clamp(timeout, Milliseconds(0), Milliseconds(std::chrono::hours(24 * 365)));
}

// PyTorch's client puts a slash before every user key.
std::vector<std::string> WireKeys(const std::vector<std::string>& keys) {
  std::vector<std::string> wire;
  wire.reserve(keys.size());
  for (const std::string& key : keys) wire.push_back(absl::StrCat("/", key));
  return wire;
}

std::vector<std::string_view> Views(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

std::string NameKeys(const std::vector<std::string>& keys) {
  const size_t named = std::min(keys.size(), kNamedKeys);
  std::string text =
      absl::StrJoin(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(named), ", ");
  if (named < keys.size()) absl::StrAppend(&text, " and ", keys.size() - named, " more");
  return text;
}

absl::Status WaitTimedOut(const std::vector<std::string>& keys, Milliseconds timeout) {
  return absl::DeadlineExceededError(
      absl::StrCat("store: wait timeout after ", timeout.count(), " ms, keys: ", NameKeys(keys)));
}

absl::Status CheckLimits(StoreOp op, const std::vector<std::string_view>& fields) {
  const StoreLimits limits;
  const bool is_pairs = op == StoreOp::kMultiSet;
  const bool is_keys = op == StoreOp::kWait || op == StoreOp::kCheck || op == StoreOp::kMultiGet;
  if (fields.size() / (is_pairs ? 2 : 1) > limits.keys_per_command) {
    return absl::InvalidArgumentError(absl::StrCat("store: ", fields.size(),
                                                   " fields in one command, at most ",
                                                   limits.keys_per_command, " keys"));
  }
  uint64_t total = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    const bool is_key = is_keys || i == 0 || (is_pairs && i % 2 == 0);
    const uint64_t limit = is_key ? limits.key_bytes : limits.payload_bytes;
    total += fields[i].size();
    if (fields[i].size() <= limit) continue;
    return absl::InvalidArgumentError(absl::StrCat("store: a ", is_key ? "key" : "value", " of ",
                                                   fields[i].size(), " bytes, at most ", limit));
  }
  if (total > limits.command_bytes / 2) {
    return absl::InvalidArgumentError(absl::StrCat("store: ", total, " bytes in one command"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::Greet(ddprun::UniqueFd connection,
                                                                Milliseconds timeout,
                                                                Deadline deadline,
                                                                const ddprun::Clock& clock) {
  std::unique_ptr<StoreClient> client(new StoreClient(std::move(connection), timeout, clock));
  const auto nonce = static_cast<uint32_t>(getpid());
  std::string greeting;
  AppendRequest({.op = StoreOp::kValidate, .word = kStoreMagic}, &greeting);
  AppendRequest({.op = StoreOp::kPing, .word = nonce}, &greeting);
  if (auto status = client->socket_.Send(greeting, deadline); !status.ok()) return status;
  uint32_t answer = 0;
  if (auto status = client->socket_.Receive(&answer, sizeof(answer), deadline); !status.ok()) {
    return status;
  }
  if (answer != nonce) return absl::UnavailableError("it is no store: wrong answer to a ping");
  return client;
}

Deadline StoreClient::DefaultDeadline() const { return After(timeout_, clock_); }

absl::Status StoreClient::Lost(absl::Status status) {
  if (!status.ok()) lost_ = absl::UnavailableError(status.message());
  return status;
}

absl::Status StoreClient::Send(StoreOp op, const std::vector<std::string_view>& fields,
                               Deadline deadline, int64_t number) {
  if (!lost_.ok()) return lost_;
  if (absl::Status status = CheckLimits(op, fields); !status.ok()) return status;
  StoreCommand command{.op = op, .number = number, .fields = fields};
  std::string bytes;
  AppendRequest(command, &bytes);
  return Lost(socket_.Send(bytes, deadline));
}

absl::StatusOr<uint8_t> StoreClient::ReceiveByte(Deadline deadline) {
  uint8_t byte = 0;
  if (auto status = Lost(socket_.Receive(&byte, 1, deadline)); !status.ok()) return status;
  return byte;
}

absl::StatusOr<int64_t> StoreClient::ReceiveNumber(Deadline deadline) {
  int64_t number = 0;
  auto status = Lost(socket_.Receive(&number, sizeof(number), deadline));
  if (!status.ok()) return status;
  return number;
}

absl::StatusOr<std::string> StoreClient::ReceivePayload(Deadline deadline) {
  auto length = ReceiveNumber(deadline);
  if (!length.ok()) return length.status();
  if (*length < 0 || static_cast<uint64_t>(*length) > kMaxValueBytes) {
    return Lost(absl::UnavailableError(absl::StrCat("store: a reply of ", *length, " bytes")));
  }
  std::string payload;
  auto status = Lost(socket_.ReceiveInto(&payload, static_cast<size_t>(*length), deadline));
  if (!status.ok()) return status;
  return payload;
}

absl::Status StoreClient::Set(const std::string& key, const std::string& value) {
  return Send(StoreOp::kSet, {absl::StrCat("/", key), value}, DefaultDeadline());
}

absl::StatusOr<std::string> StoreClient::Get(const std::string& key, Milliseconds timeout) {
  if (absl::Status status = Wait({key}, timeout); !status.ok()) return status;
  const Deadline deadline = DefaultDeadline();
  auto status = Send(StoreOp::kGet, {absl::StrCat("/", key)}, deadline);
  if (!status.ok()) return status;
  return ReceivePayload(deadline);
}

absl::StatusOr<int64_t> StoreClient::Add(const std::string& key, int64_t amount) {
  const Deadline deadline = DefaultDeadline();
  auto status = Send(StoreOp::kAdd, {absl::StrCat("/", key)}, deadline, amount);
  if (!status.ok()) return status;
  return ReceiveNumber(deadline);
}

absl::StatusOr<bool> StoreClient::Check(const std::vector<std::string>& keys) {
  const Deadline deadline = DefaultDeadline();
  auto status = Send(StoreOp::kCheck, Views(WireKeys(keys)), deadline);
  if (!status.ok()) return status;
  auto answer = ReceiveByte(deadline);
  if (!answer.ok()) return answer.status();
  return *answer == kCheckReady;
}

absl::Status StoreClient::Wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  if (keys.empty()) return lost_;
  const Deadline deadline = After(timeout, clock_);
  // A wait that may not wait still needs its answer brought here.
  auto status = Send(StoreOp::kWait, Views(WireKeys(keys)), DefaultDeadline());
  if (!status.ok()) return status;
  uint8_t answer = 0;
  status = socket_.Receive(&answer, 1, deadline);
  if (absl::IsDeadlineExceeded(status)) return CancelWait(keys, timeout);
  if (!status.ok()) return Lost(status);
  if (answer == kStopWaiting) return absl::OkStatus();
  return Lost(absl::UnavailableError(absl::StrCat("store: answered a wait with ", answer)));
}

// The keys may appear while the cancellation travels: then STOP_WAITING comes before the answer.
absl::Status StoreClient::CancelWait(const std::vector<std::string>& keys, Milliseconds timeout) {
  const Deadline deadline = After(kCancelTimeout, clock_);
  if (auto status = Send(StoreOp::kCancelWait, {}, deadline); !status.ok()) return status;
  auto answer = ReceiveByte(deadline);
  if (!answer.ok()) return answer.status();
  const bool have_appeared = *answer == kStopWaiting;
  if (have_appeared) answer = ReceiveByte(deadline);
  if (!answer.ok()) return answer.status();
  if (*answer != kWaitCanceled) {
    return Lost(absl::UnavailableError(absl::StrCat("store: answered a cancel with ", *answer)));
  }
  return have_appeared ? absl::OkStatus() : WaitTimedOut(keys, timeout);
}

absl::StatusOr<std::string> StoreClient::CompareSet(const std::string& key,
                                                    const std::string& expected,
                                                    const std::string& desired) {
  const Deadline deadline = DefaultDeadline();
  auto status = Send(StoreOp::kCompareSet, {absl::StrCat("/", key), expected, desired}, deadline);
  if (!status.ok()) return status;
  return ReceivePayload(deadline);
}

absl::StatusOr<bool> StoreClient::Delete(const std::string& key) {
  const Deadline deadline = DefaultDeadline();
  auto status = Send(StoreOp::kDeleteKey, {absl::StrCat("/", key)}, deadline);
  if (!status.ok()) return status;
  auto count = ReceiveNumber(deadline);
  if (!count.ok()) return count.status();
  return *count > 0;
}

absl::StatusOr<int64_t> StoreClient::KeyCount() {
  const Deadline deadline = DefaultDeadline();
  if (auto status = Send(StoreOp::kGetNumKeys, {}, deadline); !status.ok()) return status;
  return ReceiveNumber(deadline);
}

absl::StatusOr<std::vector<std::string>> StoreClient::MultiGet(const std::vector<std::string>& keys,
                                                               Milliseconds timeout) {
  if (absl::Status status = Wait(keys, timeout); !status.ok()) return status;
  std::vector<std::string> values;
  if (keys.empty()) return values;
  const Deadline deadline = DefaultDeadline();
  auto status = Send(StoreOp::kMultiGet, Views(WireKeys(keys)), deadline);
  if (!status.ok()) return status;
  values.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    auto value = ReceivePayload(deadline);
    if (!value.ok()) return value.status();
    values.push_back(*std::move(value));
  }
  return values;
}

absl::Status StoreClient::MultiSet(const std::vector<std::string>& keys,
                                   const std::vector<std::string>& values) {
  if (keys.size() != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("store: MultiSet: ", keys.size(), " keys, ", values.size(), " values"));
  }
  const std::vector<std::string> wire = WireKeys(keys);
  std::vector<std::string_view> fields;
  fields.reserve(2 * keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    fields.push_back(wire[i]);
    fields.push_back(values[i]);
  }
  return Send(StoreOp::kMultiSet, fields, DefaultDeadline());
}

absl::StatusOr<std::unique_ptr<Store>> ConnectStore(const std::string& host, uint16_t port,
                                                    Milliseconds timeout,
                                                    const ddprun::Clock& clock) {
  const Deadline deadline = After(timeout, clock);
  std::minstd_rand random(static_cast<uint32_t>(getpid() ^ clock.Now().time_since_epoch().count()));
  Milliseconds pause{5};
  while (true) {
    absl::Status status;
    auto connection = ConnectOnce(host, port, deadline, clock);
    if (connection.ok()) {
      auto client = StoreClient::Greet(*std::move(connection), timeout, deadline, clock);
      if (client.ok()) {
        (*client)->set_place(host, port);
        return client;
      }
      status = client.status();
    } else {
      status = connection.status();
    }
    // No descriptor is left in this process: what uses them up here does not go by waiting.
    if (absl::IsResourceExhausted(status)) return status;
    // Half to all of the pause: thousands of ranks start in the same instant.
    const Milliseconds jittered(
        std::uniform_int_distribution<int64_t>(pause.count() / 2, pause.count())(random));
    const Deadline next = clock.Now() + jittered;
    if (next >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("connect to the store at ", host, ":", port,
                                                      ": gave up after ", timeout.count(),
                                                      " ms; last error: ", status.message()));
    }
    while (clock.Now() < next) std::this_thread::sleep_for(clock.Left(next));
    pause = std::min(2 * pause, Milliseconds(500));
  }
}

}  // namespace internal

absl::StatusOr<std::unique_ptr<Store>> Store::Connect(const std::string& host, uint16_t port,
                                                      Milliseconds timeout) {
  return internal::ConnectStore(host, port, timeout, ddprun::SteadyClock());
}

}  // namespace ddp
