#include "ddp/replica_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/comm/op.h"
// The header alone: programs link no further library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ddp {
namespace {

constexpr int64_t kLeastShare = 1000;             // of the time that a comparison may cost
constexpr int64_t kMostSteps = int64_t{1} << 20;  // between two
constexpr size_t kNamed = 3;                      // parameters in a message
constexpr absl::string_view kUsualCauses =
    ". Usual causes are other seeds, settings or data-dependent code on some ranks, a parameter "
    "that DistributedDataParallel does not reduce, and faulty memory; ";

// What a rank tells the others. Plain numbers, as they travel as int64.
struct Word {
  int64_t step = 0;
  int64_t hash = 0;
  int64_t parameters = 0;   // -1: they could not be hashed
  int64_t cost_ns = 0;      // of this comparison's hash and the last one's exchange
  int64_t interval_ns = 0;  // since the last comparison
};
constexpr size_t kWordFields = sizeof(Word) / sizeof(int64_t);

int64_t HashOf(const Tensor& tensor) {
  return static_cast<int64_t>(XXH3_64bits(tensor.data, tensor.count * SizeOf(tensor.dtype)));
}

int64_t HashOf(std::span<const int64_t> hashes) {
  return static_cast<int64_t>(XXH3_64bits(hashes.data(), hashes.size_bytes()));
}

int64_t Nanoseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// "rank 2 differs from the others", "ranks 0 and 1 against ranks 2 and 3"; "": all are equal.
// `hashes` by rank.
std::string DifferenceText(const std::vector<int64_t>& hashes) {
  std::map<int64_t, std::vector<int>> groups;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    groups[hashes[rank]].push_back(static_cast<int>(rank));
  }
  if (groups.size() == 1) return "";
  std::vector<std::vector<int>> by_size;
  for (auto& [hash, ranks] : groups) by_size.push_back(std::move(ranks));
  std::sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  if (by_size[0].size() * 2 > hashes.size()) {
    std::vector<int> others;
    for (size_t i = 1; i < by_size.size(); ++i) {
      others.insert(others.end(), by_size[i].begin(), by_size[i].end());
    }
    std::sort(others.begin(), others.end());
    return absl::StrCat(internal::NameRanks(others), others.size() == 1 ? " differs" : " differ",
                        " from the others");
  }
  std::vector<std::string> texts;
  for (const std::vector<int>& ranks : by_size) texts.push_back(internal::NameRanks(ranks));
  constexpr size_t kMostGroups = 4;
  const size_t groups_count = texts.size();
  if (groups_count > kMostGroups) texts.resize(kMostGroups);
  return absl::StrCat(absl::StrJoin(texts, " against "),
                      groups_count > kMostGroups
                          ? absl::StrCat(" and ", groups_count - kMostGroups, " more groups")
                          : "");
}

}  // namespace

ReplicaCheck::ReplicaCheck(Communicator& communicator, ReplicaCheckOptions options)
    : communicator_(communicator),
      on_device_(options.on_device && communicator.device_type() != DeviceType::kCpu),
      grows_(options.every == 0),
      is_wrong_(options.every < 0),
      every_(std::max<int64_t>(1, options.every)) {}

bool ReplicaCheck::CountStep() { return ++steps_ >= every_ && communicator_.world_size() > 1; }

absl::StatusOr<std::vector<int64_t>> ReplicaCheck::HashEach(std::span<const Tensor> parameters,
                                                            Stream stream) {
  if (on_device_) {
    if (!device_hash_) {
      absl::StatusOr<std::unique_ptr<TensorHash>> made = communicator_.MakeTensorHash();
      if (!made.ok()) return made.status();
      device_hash_ = *std::move(made);
    }
    return device_hash_->Of(parameters, stream);
  }
  std::vector<int64_t> hashes;
  for (const Tensor& parameter : parameters) hashes.push_back(HashOf(parameter));
  return hashes;
}

absl::Status ReplicaCheck::Compare(int64_t step, std::span<const Tensor> parameters,
                                   Stream stream) {
  if (is_wrong_) {
    return absl::InvalidArgumentError(
        "compare replicas: ReplicaCheckOptions::every is negative; give a number of steps, or 0 "
        "for as often as costs little");
  }
  const Clock::time_point begin = Clock::now();
  const absl::StatusOr<std::vector<int64_t>> hashes = HashEach(parameters, stream);
  const Clock::time_point hashed = Clock::now();
  const Word mine = {.step = step,
                     .hash = hashes.ok() ? HashOf(*hashes) : 0,
                     .parameters = hashes.ok() ? static_cast<int64_t>(parameters.size()) : -1,
                     .cost_ns = Nanoseconds(hashed - begin + last_exchange_),
                     .interval_ns = Nanoseconds(begin - compared_at_)};
  std::vector<Word> all(static_cast<size_t>(communicator_.world_size()));
  absl::Status status =
      communicator_.host().AllGather(&mine, all.data(), kWordFields, DType::kInt64)->Wait();
  if (!hashes.ok()) return hashes.status();
  if (!status.ok()) return status;
  Word worst = all[0];
  bool is_equal = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Word& word = all[rank];
    if (word.parameters < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("compare replicas after step ", step, ": rank ", rank,
                       " could not hash its parameters, and says why"));
    }
    if (word.parameters != all[0].parameters) {
      return absl::InvalidArgumentError(absl::StrCat(
          "compare replicas after step ", step, ": ", all[0].parameters, " parameters on rank 0, ",
          word.parameters, " on rank ", rank, "; all ranks compare the same"));
    }
    if (word.step != all[0].step) {
      return absl::InvalidArgumentError(absl::StrCat(
          "compare replicas after step ", all[0].step, " on rank 0, ", word.step, " on rank ", rank,
          "; all ranks compare the same step, with the same ReplicaCheckOptions::every"));
    }
    is_equal = is_equal && word.hash == all[0].hash;
    worst.cost_ns = std::max(worst.cost_ns, word.cost_ns);
    worst.interval_ns = std::min(worst.interval_ns, word.interval_ns);
  }
  if (!is_equal) return Locate(step, parameters, *hashes);
  if (grows_) Grow(worst.cost_ns, worst.interval_ns);
  last_equal_ = step;
  steps_ = 0;
  compared_at_ = Clock::now();
  last_exchange_ = compared_at_ - hashed;
  return absl::OkStatus();
}

void ReplicaCheck::Grow(int64_t cost_ns, int64_t interval_ns) {
  const int64_t a_step = interval_ns / std::max<int64_t>(1, steps_);
  if (every_ < kMostSteps && cost_ns > every_ * a_step / kLeastShare) every_ *= 2;
}

absl::Status ReplicaCheck::Locate(int64_t step, std::span<const Tensor> parameters,
                                  const std::vector<int64_t>& mine) {
  const size_t ranks = static_cast<size_t>(communicator_.world_size());
  std::vector<int64_t> all(mine.size() * ranks);
  absl::Status status =
      communicator_.host().AllGather(mine.data(), all.data(), mine.size(), DType::kInt64)->Wait();
  if (!status.ok()) return status;
  std::vector<std::string> texts;
  for (size_t i = 0; i < mine.size(); ++i) {
    std::vector<int64_t> hashes;
    for (size_t rank = 0; rank < ranks; ++rank) hashes.push_back(all[rank * mine.size() + i]);
    const std::string difference = DifferenceText(hashes);
    if (!difference.empty()) {
      texts.push_back(absl::StrCat("parameter '", parameters[i].name, "': ", difference));
    }
  }
  const size_t differing = texts.size();
  if (differing > kNamed) texts.resize(kNamed);
  return absl::DataLossError(absl::StrCat(
      "the replicas differ after step ", step,
      last_equal_ < 0 ? "" : absl::StrCat(", and did not after step ", last_equal_), "; ",
      absl::StrJoin(texts, "; "),
      differing > kNamed ? absl::StrCat("; and ", differing - kNamed, " more parameters") : "",
      kUsualCauses,
      last_equal_ < 0
          ? "no step of this run is known to be good: resume from a checkpoint of an earlier "
            "run, or start over"
          : absl::StrCat("set later checkpoints aside and resume from one of step ", last_equal_,
                         " or before")));
}

}  // namespace ddp
