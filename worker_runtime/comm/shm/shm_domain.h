// The memory that the ranks of one node share, and the steps in which they use it.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_DOMAIN_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_DOMAIN_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/comm/shm/shm_layout.h"

namespace ddp::internal {

// Every operation consists of steps, numbered alike on all ranks. In a step each rank makes its
// input visible (PostArrived), waits for the others', and, where the result is made by one rank for
// the others, makes that visible (PostFinished) and waits for it.
//
// A rank writes the staging of step t only when every rank has arrived at t-1, and a rank arrives
// at t-1 only when it has read all it needs of t-2: so two sets of staging are enough.
//
// Methods are called by the thread that executes operations, those marked "any thread" excepted.
class ShmDomain {
 public:
  // Creates the memory for `ranks` ranks. ResourceExhausted or Internal with errno.
  static absl::StatusOr<ddprun::UniqueFd> CreateMemory(int ranks);
  // Maps it as member `index` of `ranks` (global ranks, ascending).
  static absl::StatusOr<std::unique_ptr<ShmDomain>> Map(ddprun::UniqueFd memory,
                                                        std::vector<int> ranks, int index);
  ~ShmDomain();
  ShmDomain(const ShmDomain&) = delete;
  ShmDomain& operator=(const ShmDomain&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }
  const std::vector<int>& ranks() const { return ranks_; }

  // --- steps
  uint32_t NextStep() { return ++step_; }
  void PostArrived(uint32_t step) { Raise(lines(index_).arrived, step); }
  void PostFinished(uint32_t step) { Raise(lines(index_).finished, step); }
  // Wait for every rank. DeadlineExceeded or Unavailable naming the ranks that did not come, or the
  // failure that another rank reported. Nothing of a failed group may be used again.
  absl::Status AwaitArrived(uint32_t step, const Op& op) { return Await(step, op, true); }
  absl::Status AwaitFinished(uint32_t step, const Op& op) { return Await(step, op, false); }

  // Makes this rank's input of `step` visible and waits for the others'.
  absl::Status Meet(const Op& op, uint32_t step);
  // The first meeting of an operation: InvalidArgument unless all ranks are in the same one.
  absl::Status Agree(const Op& op, const Location& location, uint32_t step);
  // The same for the results.
  absl::Status Finish(const Op& op, uint32_t step);
  // After Agree(): what each rank called.
  std::vector<OpRecord> Records(uint32_t step);
  // Likewise: whether all ranks' data lies at one place of one shared buffer.
  bool IsSameLocation(uint32_t step);
  // Whether at least one rank's does lie in a shared buffer.
  bool IsAnyShared(uint32_t step);
  // `on_stuck` is called once for an operation that waits for long (IsStuck).
  void set_on_stuck(std::function<void(const Op&)> on_stuck) { on_stuck_ = std::move(on_stuck); }

  RankLines::Entry& entry(int index, uint32_t step) { return lines(index).entries[step % 2]; }
  char* input(int index, uint32_t step) { return staging(index, step); }
  char* result(int index, uint32_t step) { return staging(index, step) + kStagingBytes; }

  // --- buffers
  // Whether the memory of all ranks' parts is free. Asked before any of them has taken its own.
  absl::Status CheckRoomFor(const Op& op) const;
  // Part of the operation `op`, after all ranks agreed on its size.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(const Op& op, uint32_t step);
  // Where [data, data + bytes) lies; not shared if it is not wholly in one buffer.
  Location Locate(const void* data, size_t bytes);
  // The same place in the part of rank `index`. Null if this rank has released that buffer.
  char* Resolve(int index, const Location& location);

  // --- failures, any thread
  // The first call in the group wins; every wait of every rank ends with its status.
  void Fail(const absl::Status& status);
  // What was given to Fail() by whichever rank; Ok otherwise.
  absl::Status failure() const;
  // Unavailable if a rank died or left; Ok otherwise.
  absl::Status PeerError() const;
  void MarkLeft() { SetPresence(index_, Presence::kLeft); }
  // A rank that has left is not dead.
  void MarkGone(int index);
  // Those that have not entered the operation in which this rank is.
  std::vector<int> LateRanks() const;
  // Of a rank that is a member; else 0.
  pid_t ProcessOf(int rank) const;

 private:
  class Region;
  struct Part {
    int32_t id;
    char* base;  // of rank 0's part
    size_t stride;
  };

  ShmDomain(ddprun::UniqueFd memory, char* base, std::vector<int> ranks, int index);

  GroupHeader& header() const { return *reinterpret_cast<GroupHeader*>(base_); }
  RankLines& lines(int index) const { return lines_[index]; }
  char* staging(int index, uint32_t step) {
    return base_ + ControlBytes(size()) + kStagingPerRank * static_cast<size_t>(index) +
           (step % 2) * 2 * kStagingBytes;
  }
  Flag& flag(int index, bool is_arrival) const {
    return is_arrival ? lines(index).arrived : lines(index).finished;
  }

  absl::Status Await(uint32_t step, const Op& op, bool is_arrival);
  // True once `awaited` has reached `step`; false when a sleep is due.
  bool SpinFor(const Flag& awaited, uint32_t step, const Op& op);
  // Moves this thread to a processor on which no other rank was seen. False if there is none or it
  // has just been tried.
  bool LeaveCpu();
  absl::Status AwaitSlowly(int index, uint32_t step, const Op& op, bool is_arrival);
  // Ok while the wait may still succeed.
  absl::Status WhyHopeless(uint32_t step, const Op& op, bool is_arrival) const;
  pid_t PidOf(int index) const { return lines(index).pid.load(std::memory_order_relaxed); }
  std::string NameGone(const std::vector<int>& indices) const;
  void SetPresence(int index, Presence presence);
  void WakeEverybody();
  void Release(int32_t id);

  const ddprun::UniqueFd memory_;
  char* const base_;
  RankLines* const lines_;
  const std::vector<int> ranks_;
  const int index_;
  std::optional<bool> has_core_;  // each rank its own; known once all have met
  uint32_t step_ = 0;
  uint64_t entered_sequence_ = 0;           // of the last operation
  std::atomic<uint32_t> entered_step_ = 0;  // its first
  Clock::time_point next_move_;
  std::function<void(const Op&)> on_stuck_;
  uint64_t stuck_sequence_ = 0;  // the last operation for which it was called
  uint64_t end_;                 // of the last buffer, in the memory; alike on all ranks
  int32_t last_region_ = -1;

  std::mutex fail_mutex_;
  bool has_told_failure_ = false;  // guarded by fail_mutex_

  std::mutex mutex_;         // buffers are released by the caller's thread
  std::vector<Part> parts_;  // guarded by mutex_
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_DOMAIN_H_
