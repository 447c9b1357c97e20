// The operations of a group on a GPU, in the order of the calls.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_LAUNCH_QUEUE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_LAUNCH_QUEUE_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/comm/flight_recorder.h"
#include "worker_runtime/comm/nccl/gpu_clock.h"
#include "worker_runtime/comm/nccl/gpu_work.h"
#include "worker_runtime/comm/nccl/nccl_communication.h"
#include "worker_runtime/comm/nccl/nccl_graph.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/event_pool.h"

namespace ddp::internal {

// Puts each operation on a stream of its own, behind an event of the caller's stream, on the
// caller's thread, as PyTorch does.
//
// Operations on a stream that captures go into the graph instead: they are numbered and not in
// flight. A replay of the graph is one operation, behind all that was called before it, and what is
// called after it is behind it.
//
// Any thread. The driver may not answer: no lock that others need is held while it is asked.
class LaunchQueue {
 public:
  using State = std::shared_ptr<GpuOperation>;

  struct Options {
    int rank = 0;
    int world_size = 1;
    std::chrono::milliseconds timeout{0};
    GroupLabel label{};             // FlightRecorder's
    bool is_high_priority = false;  // its stream
    // Asked before an operation that is not captured, or a replay, is launched; null: all are as
    // they should be.
    std::function<absl::Status(const Op& op)> check;
    // This rank cannot make a call that the others make, or its device has failed: End() is next.
    std::function<void(const absl::Status& why)> on_failure;
  };
  // `communication` may be null in a group of one; both outlive this.
  LaunchQueue(const Device& device, NcclCommunication* communication, Options options);
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;
  // Makes what it needs on the device. Errors: the driver's.
  absl::Status Start();
  // After the last call: gives back what it has, which is otherwise left to the end of the process.
  // False: the device has not ended what it does within `patience`.
  bool Release(std::chrono::milliseconds patience);

  // One call at a time, from its number to its end. Ends: a call does by its timeout.
  class Turn {
   public:
    explicit Turn(LaunchQueue& queue);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    LaunchQueue& queue_;
  };
  // False: a call goes on past `deadline`.
  bool AwaitTurn(Clock::time_point deadline);

  // Returns it enqueued, captured, refused or failed. Null is the legacy stream.
  State Submit(Op op, CudaStream stream);
  State SubmitBarrier();
  // Takes what has ended out of those in flight.
  void Retire();

  // For GraphRecorder. From now on captured operations go to `graph`, and what fails is its status;
  // null: the capture is over.
  void SetCapture(std::shared_ptr<NcclGraph> graph);
  bool is_capturing() const;
  uint64_t last_sequence() const;
  // Gives the numbers after `last` again.
  void Rewind(uint64_t last);
  absl::Status Replay(const std::shared_ptr<NcclGraph>& graph);
  // Guards NCCL, where one call at a time is allowed, and the executables of graphs. It is held
  // while an operation is put on the stream, which may wait for a peer: only an abort ends that.
  std::mutex& nccl_mutex() { return nccl_mutex_; }
  // A lock of it, or of nothing where it could not be had for so long.
  std::unique_lock<std::mutex> TryLockNccl(Clock::duration patience);
  // NCCL is putting an operation on the stream.
  bool is_in_nccl() const { return is_in_nccl_; }

  // For the watchdog.
  // What has ended, and whether the first that has not has begun. The driver is asked in any case,
  // so that whoever waits for this thread knows whether it answers. Errors: the driver's.
  absl::Status AskDriver();
  // What NCCL has to say of its calls; Ok also while another thread is inside it.
  absl::Status AskNccl();
  // The first that has not ended, enqueued or not; null: there is none.
  State First() const;
  // An operation waits for others once all before it on our stream is done. One that NCCL has not
  // put there yet waits, too: at its first use of a peer it connects to it.
  bool HasArrived(const GpuOperation& operation) const;
  Op last_done() const;  // its sequence is 0 before the first
  // Nothing is under way, or the group has failed, within `patience`.
  bool AwaitIdle(std::chrono::milliseconds patience);
  // Marks what has not ended as failed in the record, and returns the record.
  std::string RecordFailure();
  // Ends all under way with `status`, and all later calls. False: it has ended before.
  bool End(const absl::Status& status);
  // Ends all later calls: what is under way has ended. False: it has ended before.
  bool Close();
  absl::Status error() const;

  std::chrono::milliseconds timeout() const;
  void SetTimeout(std::chrono::milliseconds timeout);
  bool compares_calls() const { return options_.check != nullptr; }
  const FlightRecorder& recorder() const { return recorder_; }
  const GpuClock& clock() const { return clock_; }
  const std::shared_ptr<EventPool>& pool() const { return pool_; }
  // Past which is no operation that was called so far.
  CudaStream stream() const { return stream_; }
  // Of the program's streams those that were passed in last, 8 at most.
  std::vector<CudaStream> callers() const;
  void NoteCaller(CudaStream stream);

 private:
  friend class GpuWork;
  using Moments = GpuOperation::Moments;
  // The first in flight, and its graph; null: none, or none that this thread may ask about.
  struct Head {
    State operation;
    std::shared_ptr<NcclGraph> graph;
  };

  absl::Status Prepare(GpuOperation& operation, CudaStream caller);
  absl::Status CheckCapture(CudaStream stream, bool* is_captured) const;
  absl::Status RecordIssued(const GpuOperation& operation, CudaStream stream) const;
  void Run(const State& operation, const absl::Status& prepared);
  bool Number(const State& operation);
  void Fail(const absl::Status& why);
  absl::Status Launch(GpuOperation& operation);
  absl::Status LaunchGraph(const GpuOperation& replay);
  absl::Status Copy(const Op& op);
  absl::Status CallNccl(const Op& op);
  absl::Status RecordEnd(const GpuOperation& operation);

  Head HeadInFlight() const;
  absl::Status RetireDone();
  void RetireHead(const Head& head);
  std::vector<Moments> MomentsIn(const NcclGraph& graph) const;
  std::deque<State> Unfinished() const;

  const Device& device_;
  NcclCommunication* const communication_;
  const Options options_;
  const std::shared_ptr<EventPool> pool_;  // shared with operations whose handles outlive us
  FlightRecorder recorder_;
  GpuClock clock_;
  CudaStream stream_ = nullptr;
  CudaPointer barrier_word_ = 0;
  State pulse_;  // ended long ago: asked where there is nothing else

  std::mutex nccl_mutex_;  // taken before mutex_
  std::atomic<bool> is_in_nccl_ = false;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Guarded by mutex_.
  std::chrono::milliseconds timeout_;
  bool has_turn_ = false;  // somebody
  State launching_;        // whose turn it is
  std::deque<State> in_flight_;
  std::shared_ptr<NcclGraph> capture_;  // null: nothing is captured now
  std::vector<CudaStream> callers_;
  uint64_t last_sequence_ = 0;
  Op last_done_;
  absl::Status error_;
};

// With the operation before it; Ok stays Ok.
absl::Status Prefixed(const Op& op, const absl::Status& status);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_LAUNCH_QUEUE_H_
