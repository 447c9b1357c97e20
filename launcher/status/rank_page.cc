#include "launcher/status/rank_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rendezvous/base/check.h"
#include "worker_runtime/counters_page.h"

namespace ddprun::launcher {
namespace {

using namespace ddp::internal;  // NOLINT(google-build-using-namespace): the layout's names

uint64_t Load(const uint64_t& word) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}

GroupCounts ReadGroup(const uint64_t* slot) {
  GroupCounts group;
  group.key = Load(slot[kGroupKeyWord]);
  if (group.key == 0) return group;
  const uint64_t place = Load(slot[kGroupPlaceWord]);
  // The slot is being filled or given back.
  if (place == 0) return {};
  group.rank = static_cast<uint32_t>(place >> 32);
  group.size = static_cast<uint32_t>(place);
  // The end first: one that is read later than its call is never before it.
  group.done = Load(slot[kGroupDoneWord]);
  group.called = Load(slot[kGroupCalledWord]);
  group.called_at_ns = static_cast<int64_t>(Load(slot[kGroupCalledAtWord]));
  group.done_at_ns = static_cast<int64_t>(Load(slot[kGroupDoneAtWord]));
  group.busy_since_ns = static_cast<int64_t>(Load(slot[kGroupBusySinceWord]));
  group.op = Load(slot[kGroupOpWord]);
  char name[kGroupNameBytes];
  for (size_t i = 0; i < kGroupNameBytes / sizeof(uint64_t); ++i) {
    const uint64_t word = Load(slot[kGroupNameWord + i]);
    std::memcpy(name + i * sizeof word, &word, sizeof word);
  }
  group.name.assign(name, strnlen(name, sizeof name));
  return group;
}

// One attempt; false: the worker was writing meanwhile.
bool ReadPass(const uint64_t* words, RankCounts& counts) {
  const uint64_t told = Load(words[kPassWord]);
  counts.buckets = static_cast<uint32_t>(told);
  counts.backward_ns = static_cast<int64_t>(Load(words[kBackwardWord]));
  counts.bucket_words.clear();
  const size_t of_word = BucketsOfWord(counts.buckets);
  for (size_t first = 0; first < counts.buckets; first += of_word) {
    const uint64_t word = Load(words[kFirstBucketWord + first / of_word]);
    counts.bucket_words.push_back({static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)});
  }
  return told != 0 && Load(words[kPassWord]) == told;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankPage>> RankPage::Make() {
  UniqueFd fd(memfd_create("ddprun-counters", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) return absl::ErrnoToStatus(errno, "make memory for a worker's counters");
  // fallocate: where memory is short this fails, and not a later write by SIGBUS.
  if (const int error = posix_fallocate(fd.get(), 0, kCountersBytes); error != 0) {
    return absl::ErrnoToStatus(error, "make room for a worker's counters");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ErrnoToStatus(errno, "seal a worker's counters");
  }
  void* memory = mmap(nullptr, kCountersBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "map a worker's counters");
  auto* words = static_cast<uint64_t*>(memory);
  words[kMagicWord] = kCountersMagic;
  words[kVersionWord] = kCountersVersion;
  return std::unique_ptr<RankPage>(new RankPage(std::move(fd), words));
}

RankPage::~RankPage() { DDP_CHECK(munmap(words_, kCountersBytes) == 0); }

RankCounts RankPage::Read() const {
  RankCounts counts;
  // Written last of a report, so read first: the other words are then of it or of a newer one.
  counts.steps = Load(words_[kStepsWord]);
  const auto signed_word = [this](size_t word) { return static_cast<int64_t>(Load(words_[word])); };
  // These in the order that the page asks for.
  counts.evaluation_ns = signed_word(kEvaluationTimeWord);
  counts.checkpoint_ns = signed_word(kCheckpointTimeWord);
  counts.phase = Load(words_[kPhaseWord]);
  counts.phase_since_ns = signed_word(kPhaseSinceWord);
  counts.step = signed_word(kStepWord);
  counts.step_at_ns = signed_word(kStepAtWord);
  counts.samples = signed_word(kSamplesWord);
  counts.first_step_at_ns = signed_word(kFirstStepAtWord);
  counts.longest_step_ns = signed_word(kLongestStepWord);
  counts.step_time_ns = signed_word(kStepTimeWord);
  counts.waited_ns = signed_word(kWaitedWord);
  counts.exposed_ns = signed_word(kExposedWord);
  // A writer is through in no time, unless it has died.
  constexpr int kAttempts = 3;
  bool is_whole = false;
  for (int i = 0; i < kAttempts && !is_whole; ++i) is_whole = ReadPass(words_, counts);
  if (!is_whole) counts.bucket_words.clear();
  for (size_t i = 0; i < kGroupSlots; ++i) {
    GroupCounts group = ReadGroup(words_ + kFirstGroupWord + i * kGroupWords);
    if (group.key != 0) counts.groups.push_back(std::move(group));
  }
  return counts;
}

}  // namespace ddprun::launcher
