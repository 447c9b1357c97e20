// This process's page of counters, as it writes it; the words and their meaning are in
// counters_page.h.
#ifndef DDPRUN_WORKER_RUNTIME_COUNTERS_H_
#define DDPRUN_WORKER_RUNTIME_COUNTERS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "ddp/progress.h"
#include "worker_runtime/counters_page.h"

namespace ddp::internal {

// How far one process group is, in a slot of the page. One thread at a time calls Called(), one
// Done(); the two may be different ones. It belongs to its Counters.
class GroupCounters {
 public:
  using Clock = std::chrono::steady_clock;

  // The group's operation `sequence` (OpKind `op`) was called. REQUIRES: it is above those before.
  void Called(uint64_t sequence, int op, Clock::time_point at);
  // It and all before it have ended. REQUIRES: Called() has returned for it, or for a graph's
  // replay that stands for its number.
  void Done(uint64_t sequence, Clock::time_point at);
  // Frees the slot. No other function may be called any more.
  void Close();

 private:
  friend class Counters;
  uint64_t* slot_ = nullptr;
};

// Since a moment of its pass.
struct BucketSpan {
  std::chrono::nanoseconds start, end;
};

// The page. Of a process that was forked after it was opened, all functions do nothing: the child
// is another process than the one that the agent started. Any thread, but for ReportStep() and
// SetPhase(): two of these at once may lose a count, and no more.
class Counters {
 public:
  using Clock = std::chrono::steady_clock;

  // That of kCountersVar, opened at the first call and never closed. Null where there is none, or
  // none that this process may write to.
  static Counters* OfThisProcess();
  // That of `descriptor`, the variable's value, which may be null: one that is sealed, of our
  // version, and nobody's or this process's. The descriptor becomes close-on-exec. Another version
  // is told of on stderr; what else is wrong is no page of ours.
  static std::unique_ptr<Counters> Open(const char* descriptor);
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  // ddp_report_step() and ddp_report_phase().
  void ReportStep(int64_t step, int64_t samples);
  void SetPhase(Phase phase);
  // The program tells of its steps itself.
  void SetProgramTells() { has_program_told_.store(true, std::memory_order_relaxed); }
  bool has_program_told() const { return has_program_told_.load(std::memory_order_relaxed); }
  // A caller was blocked so long until a collective was done.
  void AddWaited(std::chrono::nanoseconds time);
  // Communication took so long that backward did not hide.
  void AddExposed(std::chrono::nanoseconds time);

  // Whether a pass that ended at `at` is worth to be told: none was for a second. Who gets true
  // tells it.
  bool IsPassDue(Clock::time_point at);
  // `times` holds the beginning and end of each bucket's reduction, since the pass's zero.
  void TellPass(std::chrono::nanoseconds backward, std::span<const BucketSpan> times);

  // A slot, until its Close(). `key` is the same on all ranks of the group and no other group's;
  // `name` is cut to what has room. Null where no slot is free, and for the key 0.
  GroupCounters* OpenGroup(uint64_t key, std::string_view name, int rank, int size);

 private:
  explicit Counters(uint64_t* words);
  int64_t LeftOut(int64_t now) const;
  void ChangePhase(uint64_t phase, int64_t now);

  uint64_t* const words_;
  std::atomic<int64_t> left_out_;  // LeftOut() at the last step
  std::atomic<bool> has_program_told_ = false;
  std::atomic<int64_t> pass_told_at_ = 0;  // nanoseconds of Clock; 0: none was
  std::atomic<uint64_t> pass_number_ = 0;
  std::array<GroupCounters, kGroupSlots> groups_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COUNTERS_H_
