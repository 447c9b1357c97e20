#include "worker_runtime/comm/failure_board.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/left_peer.h"

namespace ddp::internal {
namespace {

constexpr char kFailureKey[] = "failure";
constexpr std::chrono::milliseconds kPatience(2000);
// A watchdog that has nothing under way looks every 200 ms.
constexpr std::chrono::milliseconds kSecondLook(500);
constexpr size_t kMostAskedTwice = 64;
// What is left for it: seven questions on a path of 20 ms.
constexpr std::chrono::milliseconds kSecondSurvey(200);

std::string Encode(const absl::Status& status) {
  const std::optional<int> left_peer = LeftPeerOf(status);
  return absl::StrCat(static_cast<int>(status.code()),
                      left_peer ? absl::StrCat("@", *left_peer) : "", " ",
                      std::string(status.message()));
}

std::string Encode(const OpRecord& record) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(&record), sizeof(record)));
}

bool IsKnown(const OpRecord& record) {
  return record.kind <= OpKind::kReplay && record.dtype <= DType::kInt8 &&
         record.reduce <= ReduceOp::kBitXor;
}

absl::StatusOr<OpRecord> DecodeRecord(const std::string& text) {
  OpRecord record;
  const bool is_hex =
      std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); });
  if (text.size() != 2 * sizeof(record) || !is_hex) {
    return absl::DataLossError("no record of an operation");
  }
  std::memcpy(&record, absl::HexStringToBytes(text).data(), sizeof(record));
  if (!IsKnown(record)) return absl::DataLossError("no record of an operation");
  return record;
}

// Garbage blames nobody.
bool IsMissing(const std::optional<std::string>& arrival, uint64_t sequence) {
  if (!arrival.has_value()) return true;
  const absl::StatusOr<OpRecord> record = DecodeRecord(*arrival);
  return record.ok() && record->sequence < sequence;
}

absl::Status DecodeFailure(const std::string& text) {
  const size_t space = text.find(' ');
  const int code = std::atoi(text.c_str());
  if (space == std::string::npos || code <= 0 || code > 16) {
    return absl::UnknownError(
        absl::StrCat("the store holds no failure: \"", text.substr(0, 100), "\""));
  }
  const absl::Status status(static_cast<absl::StatusCode>(code), text.substr(space + 1));
  const size_t mark = text.find('@');
  int left_peer = -1;
  if (mark > space || !absl::SimpleAtoi(text.substr(mark + 1, space - mark - 1), &left_peer)) {
    return status;
  }
  return left_peer < 0 ? status : WithLeftPeer(status, left_peer);
}

}  // namespace

std::string FailureBoard::ArrivedKey(int rank) const {
  return absl::StrCat("arrived/", name_, "/", rank);
}

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
  return first.ok() ? DecodeFailure(*first) : status;
}

absl::Status FailureBoard::Read(std::chrono::milliseconds patience) {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  if (store == nullptr) return absl::OkStatus();
  auto text = store->Get(kFailureKey, patience);
  return text.ok() ? DecodeFailure(*text) : absl::OkStatus();
}

void FailureBoard::SayArrived(const Op& op) {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  // Best effort: at worst this rank is named as well.
  if (store != nullptr) (void)store->Set(ArrivedKey(rank_), Encode(RecordOf(op)));
}

int FailureBoard::ClaimSurvey() {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  if (store == nullptr) return -1;
  const auto first = store->CompareSet(absl::StrCat("survey/", name_), "", absl::StrCat(rank_));
  int surveyor = -1;
  const bool is_rank =
      first.ok() && absl::SimpleAtoi(*first, &surveyor) && surveyor >= 0 && surveyor < world_size_;
  return is_rank ? surveyor : -1;
}

Survey FailureBoard::MissingAt(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  Survey survey{.missing = {}, .asked = 0, .world_size = world_size_};
  Store* store = Connected();
  if (store == nullptr) return survey;
  const Clock::time_point deadline = Clock::now() + kSurveyTime;
  const auto answers = AskRanks(
      *store, world_size_, [this](int rank) { return ArrivedKey(rank); },
      deadline - kSecondLook - kSecondSurvey);
  survey.asked = static_cast<int>(answers.size());
  for (int rank = 0; rank < survey.asked; ++rank) {
    if (rank != rank_ && IsMissing(answers[static_cast<size_t>(rank)], sequence)) {
      survey.missing.push_back(rank);
    }
  }
  if (survey.missing.empty() || survey.missing.size() > kMostAskedTwice) return survey;
  std::this_thread::sleep_for(kSecondLook);
  const std::vector<int> asked = std::exchange(survey.missing, {});
  const auto news = AskRanks(
      *store, static_cast<int>(asked.size()),
      [&](int index) { return ArrivedKey(asked[static_cast<size_t>(index)]); }, deadline);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (i >= news.size() || IsMissing(news[i], sequence)) survey.missing.push_back(asked[i]);
  }
  return survey;
}

absl::Status FailureBoard::MismatchAt(const Op& op) {
  std::lock_guard lock(mutex_);
  Store* store = Connected();
  if (store == nullptr) return absl::OkStatus();
  const int next = (rank_ + 1) % world_size_;
  const auto arrival = ArrivalOf(*store, next);
  if (!arrival.ok() || !arrival->has_value() || (*arrival)->sequence != op.sequence) {
    return absl::OkStatus();
  }
  return CheckSame(rank_, RecordOf(op), next, **arrival);
}

absl::StatusOr<std::optional<OpRecord>> FailureBoard::ArrivalOf(Store& store, int rank) {
  auto has = store.Check({ArrivedKey(rank)});
  if (!has.ok()) return has.status();
  if (!*has) return std::nullopt;
  auto text = store.Get(ArrivedKey(rank), kPatience);
  if (!text.ok()) return text.status();
  const absl::StatusOr<OpRecord> record = DecodeRecord(*text);
  if (!record.ok()) return record.status();
  return *record;
}

}  // namespace ddp::internal
