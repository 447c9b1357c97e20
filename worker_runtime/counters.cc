#include "worker_runtime/counters.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

namespace ddp::internal {
namespace {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

constexpr uint64_t kTrain = static_cast<uint64_t>(Phase::kTrain);

// This process was forked from one that has a page.
std::atomic<bool> is_forked = false;

bool IsForked() { return is_forked.load(std::memory_order_relaxed); }

int64_t Nanoseconds(std::chrono::steady_clock::time_point at) {
  return std::chrono::nanoseconds(at.time_since_epoch()).count();
}

constexpr int64_t kBetweenPasses_ns = 1'000'000'000;

// As half a word holds it.
uint64_t Microseconds(std::chrono::nanoseconds time) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  return static_cast<uint64_t>(std::clamp<int64_t>(time.count() / 1000, 0, kMost));
}

int64_t Now() { return Nanoseconds(std::chrono::steady_clock::now()); }

int64_t Load(const uint64_t* words, size_t word) {
  auto& item = const_cast<uint64_t&>(words[word]);  // atomic_ref takes no const before C++26
  return static_cast<int64_t>(std::atomic_ref<uint64_t>(item).load(std::memory_order_relaxed));
}

void Store(uint64_t* words, size_t word, int64_t value,
           std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<uint64_t>(words[word]).store(static_cast<uint64_t>(value), order);
}

// Of several threads.
void Add(uint64_t* words, size_t word, int64_t value,
         std::memory_order order = std::memory_order_relaxed) {
  if (value <= 0) return;
  std::atomic_ref<uint64_t>(words[word]).fetch_add(static_cast<uint64_t>(value), order);
}

// The word with a phase's time; 0: it is part of a step.
size_t TimeWord(uint64_t phase) {
  if (phase == static_cast<uint64_t>(Phase::kEvaluation)) return kEvaluationTimeWord;
  if (phase == static_cast<uint64_t>(Phase::kCheckpoint)) return kCheckpointTimeWord;
  return 0;
}

bool Lives(uint64_t pid) {
  // What is no pid was written by something that we do not understand.
  if (pid > static_cast<uint64_t>(std::numeric_limits<pid_t>::max())) return true;
  return kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

// Whether the page is this process's, another copy of this library and Python's module included.
bool Claim(uint64_t* words) {
  const auto own = static_cast<uint64_t>(getpid());
  const std::atomic_ref<uint64_t> owner(words[kWriterWord]);
  uint64_t writer = 0;
  if (owner.compare_exchange_strong(writer, own) || writer == own) return true;
  if (Lives(writer) || !owner.compare_exchange_strong(writer, own)) return false;
  // The dead one's: all is of the one writer.
  for (size_t word = kStepsWord; word < kCounterWords; ++word) Store(words, word, 0);
  Store(words, kPhaseWord, 0);
  Store(words, kPhaseSinceWord, 0);
  return true;
}

// What can be written to without a SIGBUS; null: the descriptor is none of that kind.
uint64_t* MapPage(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  if (status.st_size < static_cast<off_t>(kCountersBytes)) return nullptr;
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return nullptr;
  void* memory = mmap(nullptr, kCountersBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint64_t*>(memory);
}

bool IsOfOurVersion(const uint64_t* words) {
  if (static_cast<uint64_t>(Load(words, kMagicWord)) != kCountersMagic) return false;
  const auto version = static_cast<uint64_t>(Load(words, kVersionWord));
  if (version == kCountersVersion) return true;
  std::fprintf(stderr,
               "ddp: this library counts its steps in a page of version %llu, and the launcher "
               "has made one of version %llu: no step is reported\n",
               static_cast<unsigned long long>(kCountersVersion),
               static_cast<unsigned long long>(version));
  return false;
}

void BeSilentInChildren() {
  static const int result = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
  (void)result;  // without memory for it a child may write as well
}

// `text` as at most kGroupNameBytes - 1 bytes of whole characters.
std::string_view Cut(std::string_view text) {
  if (text.size() < kGroupNameBytes) return text;
  size_t end = kGroupNameBytes - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

void StoreName(uint64_t* slot, std::string_view name) {
  std::array<uint64_t, kGroupNameBytes / sizeof(uint64_t)> bytes{};
  name = Cut(name);
  std::memcpy(bytes.data(), name.data(), name.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    Store(slot, kGroupNameWord + i, static_cast<int64_t>(bytes[i]));
  }
}

}  // namespace

Counters* Counters::OfThisProcess() {
  // Never destroyed: a thread may report while the process ends.
  static Counters* const counters = Open(std::getenv(kCountersVar)).release();
  return IsForked() ? nullptr : counters;
}

std::unique_ptr<Counters> Counters::Open(const char* descriptor) {
  const std::string_view text = descriptor == nullptr ? "" : descriptor;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return nullptr;
  if (IsForked()) return nullptr;
  uint64_t* words = MapPage(number);
  if (words == nullptr) return nullptr;
  if (!IsOfOurVersion(words) || !Claim(words)) {
    munmap(words, kCountersBytes);
    return nullptr;
  }
  (void)fcntl(number, F_SETFD, FD_CLOEXEC);
  BeSilentInChildren();
  return std::unique_ptr<Counters>(new Counters(words));
}

// Where another copy in this process has reported steps, what lies between them and is no part of
// them was left out.
Counters::Counters(uint64_t* words)
    : words_(words),
      left_out_(Load(words, kStepAtWord) - Load(words, kFirstStepAtWord) -
                Load(words, kStepTimeWord)) {}

Counters::~Counters() { munmap(words_, kCountersBytes); }

// All time so far in phases that are no part of a step.
int64_t Counters::LeftOut(int64_t now) const {
  const int64_t ended = Load(words_, kEvaluationTimeWord) + Load(words_, kCheckpointTimeWord);
  const bool is_in_one = TimeWord(static_cast<uint64_t>(Load(words_, kPhaseWord))) != 0;
  return ended + (is_in_one ? now - Load(words_, kPhaseSinceWord) : 0);
}

void Counters::ReportStep(int64_t step, int64_t samples) {
  if (IsForked()) return;
  const int64_t now = Now();
  if (static_cast<uint64_t>(Load(words_, kPhaseWord)) < kTrain) ChangePhase(kTrain, now);
  const int64_t left_out = LeftOut(now);
  const int64_t steps = Load(words_, kStepsWord);
  if (steps == 0) {
    Store(words_, kFirstStepAtWord, now);
  } else {
    const int64_t in_between = left_out - left_out_.load(std::memory_order_relaxed);
    const int64_t took = now - Load(words_, kStepAtWord) - in_between;
    Store(words_, kStepTimeWord, Load(words_, kStepTimeWord) + took);
    if (took > Load(words_, kLongestStepWord)) Store(words_, kLongestStepWord, took);
  }
  left_out_.store(left_out, std::memory_order_relaxed);
  int64_t all = 0;
  if (__builtin_add_overflow(Load(words_, kSamplesWord), std::max<int64_t>(samples, 0), &all)) {
    all = std::numeric_limits<int64_t>::max();
  }
  Store(words_, kSamplesWord, all);
  Store(words_, kStepWord, step);
  Store(words_, kStepAtWord, now);
  Store(words_, kStepsWord, steps + 1, std::memory_order_release);
}

void Counters::SetPhase(Phase phase) {
  if (IsForked()) return;
  const auto number = static_cast<uint64_t>(phase);
  if (number != static_cast<uint64_t>(Load(words_, kPhaseWord))) ChangePhase(number, Now());
}

void Counters::ChangePhase(uint64_t phase, int64_t now) {
  const size_t time_word = TimeWord(static_cast<uint64_t>(Load(words_, kPhaseWord)));
  const int64_t took = now - Load(words_, kPhaseSinceWord);
  Store(words_, kPhaseSinceWord, now);
  // Whoever sees the new sum sees the new moment, and counts no time twice.
  if (time_word != 0) Add(words_, time_word, took, std::memory_order_release);
  Store(words_, kPhaseWord, static_cast<int64_t>(phase), std::memory_order_release);
}

void Counters::AddWaited(std::chrono::nanoseconds time) {
  if (!IsForked()) Add(words_, kWaitedWord, time.count());
}

void Counters::AddExposed(std::chrono::nanoseconds time) {
  if (!IsForked()) Add(words_, kExposedWord, time.count());
}

bool Counters::IsPassDue(Clock::time_point at) {
  if (IsForked()) return false;
  int64_t told_at = pass_told_at_.load(std::memory_order_relaxed);
  if (told_at != 0 && Nanoseconds(at) < told_at + kBetweenPasses_ns) return false;
  return pass_told_at_.compare_exchange_strong(told_at, Nanoseconds(at));
}

// Each store is a release: whoever has seen one of these words sees that the first had become 0.
void Counters::TellPass(std::chrono::nanoseconds backward, std::span<const BucketSpan> times) {
  if (IsForked()) return;
  constexpr auto kRelease = std::memory_order_release;
  const uint64_t number = (pass_number_.fetch_add(1, std::memory_order_relaxed) + 1) << 32;
  Store(words_, kPassWord, 0);
  Store(words_, kBackwardWord, backward.count(), kRelease);
  const size_t of_word = std::max<size_t>(BucketsOfWord(times.size()), 1);
  for (size_t first = 0; first < times.size(); first += of_word) {
    BucketSpan all = times[first];
    for (const BucketSpan& each : times.subspan(first, std::min(of_word, times.size() - first))) {
      all = {std::min(all.start, each.start), std::max(all.end, each.end)};
    }
    const uint64_t word = Microseconds(all.start) << 32 | Microseconds(all.end);
    Store(words_, kFirstBucketWord + first / of_word, static_cast<int64_t>(word), kRelease);
  }
  const uint64_t told = number | static_cast<uint32_t>(times.size());
  Store(words_, kPassWord, static_cast<int64_t>(told), kRelease);
}

GroupCounters* Counters::OpenGroup(uint64_t key, std::string_view name, int rank, int size) {
  if (key == 0 || IsForked()) return nullptr;
  for (size_t i = 0; i < kGroupSlots; ++i) {
    uint64_t* slot = words_ + kFirstGroupWord + i * kGroupWords;
    // Another copy of this library in the process takes slots of the same page.
    uint64_t free = 0;
    if (!std::atomic_ref<uint64_t>(slot[kGroupKeyWord]).compare_exchange_strong(free, key)) {
      continue;
    }
    for (size_t word = kGroupCalledWord; word < kGroupNameWord; ++word) Store(slot, word, 0);
    StoreName(slot, name);
    // Never 0, so it says that the slot is whole.
    const uint64_t place = static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(size);
    Store(slot, kGroupPlaceWord, static_cast<int64_t>(place), std::memory_order_release);
    groups_[i].slot_ = slot;
    return &groups_[i];
  }
  return nullptr;
}

// Who of Called() and Done() comes second sees the other's number, by the one order of all
// sequentially consistent accesses. So a group with an operation under way never stays without a
// moment since when, nor one without with it.
void GroupCounters::Called(uint64_t sequence, int op, Clock::time_point at) {
  if (IsForked()) return;
  const std::atomic_ref<uint64_t> called(slot_[kGroupCalledWord]);
  const std::atomic_ref<uint64_t> done(slot_[kGroupDoneWord]);
  const uint64_t before = called.load(std::memory_order_relaxed);
  Store(slot_, kGroupOpWord, op);
  Store(slot_, kGroupCalledAtWord, Nanoseconds(at));
  called.store(sequence);
  if (done.load() >= before) Store(slot_, kGroupBusySinceWord, Nanoseconds(at));
}

void GroupCounters::Done(uint64_t sequence, Clock::time_point at) {
  if (IsForked()) return;
  const std::atomic_ref<uint64_t> called(slot_[kGroupCalledWord]);
  const std::atomic_ref<uint64_t> done(slot_[kGroupDoneWord]);
  Store(slot_, kGroupDoneAtWord, Nanoseconds(at));
  done.store(sequence);
  if (called.load() > sequence) return Store(slot_, kGroupBusySinceWord, Nanoseconds(at));
  Store(slot_, kGroupBusySinceWord, 0, std::memory_order_seq_cst);
  if (called.load() > sequence) Store(slot_, kGroupBusySinceWord, Load(slot_, kGroupCalledAtWord));
}

void GroupCounters::Close() {
  if (IsForked()) return;
  Store(slot_, kGroupPlaceWord, 0);
  Store(slot_, kGroupKeyWord, 0, std::memory_order_release);
}

}  // namespace ddp::internal
