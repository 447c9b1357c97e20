// What a worker tells its agent of itself, in memory that both share. [pure]
//
// The agent makes the page (a memfd, sealed against shrinking) and hands its descriptor to the
// worker (kCountersVar). The worker writes, without locks, and the agent reads: also when the
// worker hangs or is dead. Every item is one aligned word of 64 bits, native byte order, so that no
// reader sees half of one; python/ddprun/counters.py writes the same words. Times are
// CLOCK_MONOTONIC nanoseconds; 0 means never.
#ifndef DDPRUN_WORKER_RUNTIME_COUNTERS_PAGE_H_
#define DDPRUN_WORKER_RUNTIME_COUNTERS_PAGE_H_

#include <cstddef>
#include <cstdint>

namespace ddp::internal {

// "<descriptor>" of the page.
inline constexpr char kCountersVar[] = "DDPRUN_COUNTERS_FD";

inline constexpr size_t kCountersBytes = 8192;
inline constexpr size_t kCounterWords = kCountersBytes / sizeof(uint64_t);
inline constexpr uint64_t kCountersMagic = 0x3153544E'43504444;  // the bytes "DDPCNTS1"
// Of the layout below. A reader takes no page of another version; a writer writes to none.
inline constexpr uint64_t kCountersVersion = 1;

// Which word of the page; the agent writes the first two, before the worker is there.
enum CounterWord : size_t {
  kMagicWord = 0,
  kVersionWord = 1,
  // Whose page it is: the pid, in its own namespace, of the one process that writes. It is taken by
  // compare and exchange with 0, so that a forked DataLoader's worker, which inherits the mapping,
  // writes nowhere.
  kWriterWord = 2,
  kPhaseWord = 3,         // ProgramPhase: 0 unknown, 1 start, 2 train, 3 evaluation, 4 checkpoint
  kPhaseSinceWord = 4,    // when that began
  kStepsWord = 5,         // steps reported in this process; written last of a report
  kStepWord = 6,          // the number that the program gave the last one, as int64_t
  kStepAtWord = 7,        // when it was reported
  kSamplesWord = 8,       // of all reported steps together, this rank's
  kFirstStepAtWord = 9,   // when the first step was reported
  kLongestStepWord = 10,  // longest time between two reports, evaluation and checkpoints left out
  // Sums of nanoseconds since the writer began.
  kStepTimeWord = 11,  // between two reports, evaluation and checkpoints left out
  kWaitedWord = 12,    // callers were blocked until a collective was done
  kExposedWord = 13,   // communication that backward did not hide (StepMetrics)
  // In phases that have ended. A reader takes these two first, then kPhaseWord, then its moment:
  // it may miss a phase that ends meanwhile, and counts none twice.
  kEvaluationTimeWord = 14,
  kCheckpointTimeWord = 15,
  // When in a backward pass the buckets of gradients were reduced, of a pass now and then. Times
  // count from the pass's first gradient, on a GPU from its first bucket that was ready. Whoever
  // reads the same number here before and after the words behind it has those of one pass.
  kPassWord = 16,      // number of what is told in the upper half, of buckets in the lower; 0: none
  kBackwardWord = 17,  // ns until the last gradient was there
  // Microseconds: when a bucket's reduction began in the upper half, when it ended in the lower. Of
  // many buckets BucketsOfWord() share a word: when the first of them began and the last ended.
  kFirstBucketWord = 18,
  kFirstGroupWord = 32,
};

inline constexpr size_t kBucketWords = kFirstGroupWord - kFirstBucketWord;
// How many of a pass's buckets a word tells of, and so how many words.
constexpr size_t BucketsOfWord(size_t buckets) {
  return (buckets + kBucketWords - 1) / kBucketWords;
}

// A slot for each process group.
inline constexpr size_t kGroupWords = 16;
inline constexpr size_t kGroupSlots = (kCounterWords - kFirstGroupWord) / kGroupWords;

// Which word of a group's slot.
enum GroupWord : size_t {
  kGroupKeyWord = 0,     // the same on all ranks of the group; 0: the slot is free
  kGroupPlaceWord = 1,   // rank within the group in the upper half, its size in the lower
  kGroupCalledWord = 2,  // number of the last operation that was called
  kGroupDoneWord = 3,    // number of the last that has ended
  kGroupCalledAtWord = 4,
  kGroupDoneAtWord = 5,
  kGroupBusySinceWord = 6,  // since when the oldest operation under way has been the oldest
  kGroupOpWord = 7,         // of the last called: its place in kCounterOpNames
  kGroupNameWord = 8,       // 64 bytes, NUL at the end
};
inline constexpr size_t kGroupNameBytes = 64;

// By OpKind (comm/op.h).
inline constexpr const char* kCounterOpNames[] = {
    "all-reduce",   "broadcast", "all-gather", "reduce-scatter", "barrier",    "allocate",
    "send-receive", "reduce",    "gather",     "scatter",        "all-to-all", "graph replay"};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COUNTERS_PAGE_H_
