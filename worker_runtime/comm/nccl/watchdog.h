// Sees to it that everything of a group on GPUs ends.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_WATCHDOG_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "worker_runtime/comm/failure_board.h"
#include "worker_runtime/comm/group_communicator.h"
#include "worker_runtime/comm/nccl/graph_recorder.h"
#include "worker_runtime/comm/nccl/head_clock.h"
#include "worker_runtime/comm/nccl/launch_queue.h"
#include "worker_runtime/comm/nccl/nccl_communication.h"
#include "worker_runtime/comm/nccl/progress_news.h"
#include "worker_runtime/comm/nccl/side_thread.h"
#include "worker_runtime/gpu/device.h"

namespace ddp::internal {

// Who else knows what has ended the group.
enum class KnownTo {
  kThisRank,  // found here, of this rank: the others are told, with its number
  kAll,       // the words are the same from whichever rank, and the first ones are everybody's
  kHost,      // the communicator for host memory, on all ranks: whoever ended it has told why
};

// Notices what NCCL does not: an operation over its timeout, which begins when all before it are
// done, a rank that died (the host communicator knows), ranks in different operations. Whatever
// ends the group aborts NCCL, and if that hangs, too, ends the process. It never asks the driver,
// which may not answer: a side thread does, and no lock is held meanwhile.
class Watchdog {
 public:
  // How long a look waits for the driver, which answers in microseconds, or after a lock of its
  // own.
  static constexpr std::chrono::milliseconds kAnswer{100};

  // What the group has. All outlive this; null where there is none: no NCCL in a group of one, no
  // board either.
  struct Group {
    const Device& device;
    NcclCommunication* communication;
    HostCommunicator& host;
    FailureBoard* board;
    LaunchQueue& queue;
    GraphRecorder& graphs;
    // What to do when NCCL cannot be aborted; does not return. Tests replace it.
    std::function<void(const std::string& why)> on_hopeless;
  };
  explicit Watchdog(Group group) : group_(std::move(group)) {}
  // REQUIRES: End() was called.
  ~Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // ResourceExhausted: there is no thread for it.
  absl::Status Start();
  // Ends the group with `status`, or with what was said of its end before. Any thread.
  void Fail(absl::Status status, KnownTo known_to);
  // Likewise by the program's wish.
  void Abort(const std::string& reason);

  // How the group ended, for its memory.
  enum class Ending {
    kNone,
    kOrderly,
    kAborted,  // also when it never started
    kHanging,  // NCCL in its orderly end, or it was not ended: what it uses is left to it
  };
  // In order while all is well: flushes, frees, and takes no further call. Within a few seconds.
  // One thread; no effect when repeated.
  Ending End();
  Ending ending() const;

 private:
  void Main();
  void Look();
  void LookAtProgress(const LaunchQueue::State& front, Clock::duration waited);
  std::chrono::milliseconds SlowAfter(std::chrono::milliseconds timeout) const;
  absl::Status OfFirst(const absl::Status& trouble) const;
  absl::Status TimedOut(const GpuOperation& operation, Clock::duration silence);
  absl::Status WithDump(const absl::Status& status);
  void AbortCommunication();
  void FinalizeCommunication();
  void Set(Ending ending);

  const Group group_;
  std::mutex fail_mutex_;  // held by whoever ends the group; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, which is taken before the queue's.
  bool must_look_ = false;
  bool is_stopping_ = false;
  Ending ending_ = Ending::kNone;
  absl::Status found_;  // by the side thread

  // The watchdog's thread's own.
  Clock::time_point next_board_look_{};
  HeadClock head_clock_;
  ProgressNews news_;

  SideThread asker_;
  std::thread thread_;
};

// What is said of a driver that has not answered for so long.
std::string SilenceFor(Clock::duration silence);

// What on_hopeless is outside of tests: says why on stderr and ends the process with EXIT_FAILURE.
[[noreturn]] void EndProcess(const std::string& why);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_WATCHDOG_H_
