#include "worker_runtime/comm/tcp/failure_board.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

constexpr char kFailureKey[] = "failure";
constexpr std::chrono::milliseconds kPatience(2000);

std::string ArrivedKey(int rank) { return absl::StrCat("arrived/", rank); }

std::string Encode(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", std::string(status.message()));
}

absl::Status Decode(const std::string& text) {
  const size_t space = text.find(' ');
  const int code = std::atoi(text.c_str());
  if (space == std::string::npos || code <= 0 || code > 16) return absl::UnknownError(text);
  return absl::Status(static_cast<absl::StatusCode>(code), text.substr(space + 1));
}

}  // namespace

Store* FailureBoard::Connected() {
  if (store_ == nullptr && !has_failed_) {
    auto store = connect_(kPatience);
    if (store.ok()) {
      store_ = std::move(*store);
    } else {
      has_failed_ = true;
    }
  }
  return store_.get();
}

absl::Status FailureBoard::Publish(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  if (store == nullptr) return status;
  auto first = store->CompareSet(kFailureKey, "", Encode(status));
  return first.ok() ? Decode(*first) : status;
}

absl::Status FailureBoard::Read(std::chrono::milliseconds patience) {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  if (store == nullptr) return absl::OkStatus();
  auto text = store->Get(kFailureKey, patience);
  return text.ok() ? Decode(*text) : absl::OkStatus();
}

void FailureBoard::SayArrived(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  // Best effort: at worst this rank is named as well.
  if (store != nullptr) (void)store->Set(ArrivedKey(rank_), absl::StrCat(sequence));
}

std::vector<int> FailureBoard::MissingAt(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  std::vector<int> missing;
  if (store == nullptr) return missing;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank == rank_) continue;
    auto has = store->Check({ArrivedKey(rank)});
    if (!has.ok()) return {};
    uint64_t arrived = 0;
    if (*has) {
      auto text = store->Get(ArrivedKey(rank), kPatience);
      if (!text.ok() || !absl::SimpleAtoi(*text, &arrived)) return {};
    }
    if (arrived < sequence) missing.push_back(rank);
  }
  return missing;
}

}  // namespace ddp::internal
