#include "worker_runtime/parameter_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/fnv1a.h"

namespace ddp::internal {
namespace {

// What each rank says of itself; gathered as int64.
struct Summary {
  int64_t fingerprint = 0;
  int64_t parameters = 0;
  int64_t first_bytes = 0;
  int64_t cap_bytes = 0;
  int64_t wire_type = 0;
  int64_t flags = 0;
};
constexpr size_t kSummaryWords = sizeof(Summary) / sizeof(int64_t);

// What a choice that is a bit of `flags` is called in an error, by bit.
constexpr const char* kFlagNames[] = {"find_unused_parameters", "broadcast_buffers",
                                      "static_graph",           "AddParameter with a gradient",
                                      "rebuild_buckets",        "shard_gradients"};

int64_t FlagsOf(const GradientChoices& choices) {
  return (choices.find_unused_parameters ? 1 : 0) | (choices.broadcast_buffers ? 2 : 0) |
         (choices.static_graph ? 4 : 0) | (choices.adopts_gradients ? 8 : 0) |
         (choices.rebuild_buckets ? 16 : 0) | (choices.shard_gradients ? 32 : 0);
}

absl::Status CompareFlags(const Summary& first, const Summary& other, size_t rank) {
  for (size_t bit = 0; bit < std::size(kFlagNames); ++bit) {
    const int64_t mask = int64_t{1} << bit;
    if ((first.flags & mask) == (other.flags & mask)) continue;
    const bool has_first = (first.flags & mask) != 0;
    return absl::InvalidArgumentError(
        absl::StrCat("options are not the same on all ranks: ", kFlagNames[bit], " is ",
                     has_first ? "true" : "false", " on rank 0 and ", has_first ? "false" : "true",
                     " on rank ", rank));
  }
  return absl::OkStatus();
}

using Text = std::array<char, 256>;

void AddTo(ddprun::Fnv1a& fingerprint, const ParameterDescription& parameter) {
  const uint64_t numbers[] = {parameter.name.size(), parameter.count,
                              static_cast<uint64_t>(parameter.dtype)};
  fingerprint.Add(numbers, sizeof(numbers));
  fingerprint.Add(parameter.name.data(), parameter.name.size());
}

Text Describe(const std::vector<ParameterDescription>& parameters, size_t index) {
  std::string words = absl::StrCat("only ", parameters.size(), " parameters");
  if (index < parameters.size()) {
    const ParameterDescription& parameter = parameters[index];
    words = absl::StrCat("'", parameter.name, "', ", parameter.count, " x ", Name(parameter.dtype));
  }
  Text text{};
  std::memcpy(text.data(), words.data(), std::min(words.size(), text.size() - 1));
  return text;
}

absl::StatusOr<std::vector<Summary>> GatherSummaries(
    Communicator& communicator, const std::vector<ParameterDescription>& parameters,
    const GradientChoices& choices) {
  ddprun::Fnv1a fingerprint;
  for (const ParameterDescription& parameter : parameters) AddTo(fingerprint, parameter);
  const Summary mine{.fingerprint = static_cast<int64_t>(fingerprint.value()),
                     .parameters = static_cast<int64_t>(parameters.size()),
                     .first_bytes = static_cast<int64_t>(choices.limits.first_bytes),
                     .cap_bytes = static_cast<int64_t>(choices.limits.cap_bytes),
                     .wire_type = static_cast<int64_t>(choices.wire_type),
                     .flags = FlagsOf(choices)};
  std::vector<Summary> all(communicator.world_size());
  absl::Status status =
      communicator.AllGather(&mine, all.data(), kSummaryWords, DType::kInt64)->Wait();
  if (!status.ok()) return status;
  return all;
}

// Where this rank's parameters first differ from rank 0's; `length` when they do not.
absl::StatusOr<int64_t> FirstDifferenceFromRank0(
    Communicator& communicator, const std::vector<ParameterDescription>& parameters,
    size_t length) {
  std::vector<int64_t> mine(length, 0);
  for (size_t i = 0; i < parameters.size(); ++i) {
    ddprun::Fnv1a fingerprint;
    AddTo(fingerprint, parameters[i]);
    mine[i] = static_cast<int64_t>(fingerprint.value());
  }
  std::vector<int64_t> theirs = mine;
  absl::Status status =
      communicator.Broadcast(theirs.data(), length, DType::kInt64, /*root=*/0)->Wait();
  if (!status.ok()) return status;
  return std::mismatch(mine.begin(), mine.end(), theirs.begin()).first - mine.begin();
}

absl::Status NameDifference(Communicator& communicator,
                            const std::vector<ParameterDescription>& parameters, size_t length) {
  const absl::StatusOr<int64_t> mine = FirstDifferenceFromRank0(communicator, parameters, length);
  if (!mine.ok()) return mine.status();
  std::vector<int64_t> all(communicator.world_size());
  absl::Status status = communicator.AllGather(&*mine, all.data(), 1, DType::kInt64)->Wait();
  if (!status.ok()) return status;

  const auto first = std::min_element(all.begin(), all.end());
  const int rank = static_cast<int>(first - all.begin());
  Text here = Describe(parameters, *first), there = here;
  status = communicator.Broadcast(here.data(), here.size(), DType::kUint8, /*root=*/0)->Wait();
  if (!status.ok()) return status;
  status = communicator.Broadcast(there.data(), there.size(), DType::kUint8, rank)->Wait();
  if (!status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", *first, " is not the same on all ranks: rank 0 has ", here.data(),
                   ", rank ", rank, " has ", there.data()));
}

}  // namespace

absl::Status CheckSameParameters(Communicator& communicator,
                                 const std::vector<ParameterDescription>& parameters,
                                 const GradientChoices& choices) {
  const absl::StatusOr<std::vector<Summary>> all =
      GatherSummaries(communicator, parameters, choices);
  if (!all.ok()) return all.status();
  // Everything below is decided from what all ranks have gathered alike, so that they stay matched.
  const Summary& first = all->front();
  int64_t longest = 0;
  bool is_same = true;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const Summary& other = (*all)[rank];
    if (other.first_bytes != first.first_bytes || other.cap_bytes != first.cap_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket limits are not the same on all ranks: rank 0 has ",
                       first.first_bytes, " and ", first.cap_bytes, " bytes, rank ", rank, " has ",
                       other.first_bytes, " and ", other.cap_bytes));
    }
    if (other.wire_type != first.wire_type) {
      return absl::InvalidArgumentError(
          absl::StrCat("compression is not the same on all ranks: rank 0 sends gradients as ",
                       Name(static_cast<DType>(first.wire_type)), ", rank ", rank, " as ",
                       Name(static_cast<DType>(other.wire_type))));
    }
    if (absl::Status status = CompareFlags(first, other, rank); !status.ok()) return status;
    longest = std::max(longest, other.parameters);
    is_same &= other.fingerprint == first.fingerprint && other.parameters == first.parameters;
  }
  if (is_same) return absl::OkStatus();
  return NameDifference(communicator, parameters, static_cast<size_t>(longest));
}

}  // namespace ddp::internal
