// Communicator over NCCL: its own stream, asynchronous work, a watchdog, and an end for every hang.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATOR_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ddp/communicator.h"
#include "worker_runtime/comm/failure_board.h"
#include "worker_runtime/comm/flight_recorder.h"
#include "worker_runtime/comm/graph_capture.h"
#include "worker_runtime/comm/group_communicator.h"
#include "worker_runtime/comm/nccl/call_comparison.h"
#include "worker_runtime/comm/nccl/gpu_clock.h"
#include "worker_runtime/comm/nccl/gpu_timer.h"
#include "worker_runtime/comm/nccl/gpu_work.h"
#include "worker_runtime/comm/nccl/head_clock.h"
#include "worker_runtime/comm/nccl/nccl_communication.h"
#include "worker_runtime/comm/nccl/nccl_graph.h"
#include "worker_runtime/comm/nccl/progress_news.h"
#include "worker_runtime/comm/nccl/side_thread.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/event_pool.h"

namespace ddp::internal {

// Operations go to the communicator's own high-priority stream in the order of the calls, each
// behind an event of the caller's stream. The caller enqueues them itself. Where NCCL answers
// kNcclInProgress, as it does with several ranks, the caller follows that call for some
// microseconds and then the communication thread does, to its end, before the done-event is
// recorded and the next call made (NCCL's guide, group calls of non-blocking communicators);
// otherwise the event would precede the collective and the optimizer read unreduced gradients.
//
// The watchdog notices what NCCL does not: an operation over its timeout, which begins when all
// before it are done, a rank that died (the host communicator knows), ranks in different
// operations. Whatever ends the group aborts NCCL, and if that hangs, too, ends the process. It
// never asks the driver, which may not answer: a side thread does, and no lock is held meanwhile.
//
// Operations on a stream that captures go into the graph instead: they are numbered and not
// watched. A replay of the graph is one operation in flight, behind all that was called before it,
// and what is called after it is behind it.
class NcclCommunicator final : public GroupCommunicator, private GraphCapture {
 public:
  struct Options {
    std::chrono::milliseconds timeout{0};
    bool can_register = false;    // memory from ncclMemAlloc on every rank
    bool compares_calls = false;  // the ranks do, by CallComparison
    // What to do when NCCL cannot be aborted; does not return. Tests replace it.
    std::function<void(const std::string& why)> on_hopeless;
  };

  // `communication` may be null in a group of one: then nothing needs NCCL. `host` is the
  // communicator of the same ranks for host memory. Errors: the driver's.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(
      std::unique_ptr<Device> device, std::unique_ptr<NcclCommunication> communication,
      std::unique_ptr<HostCommunicator> host, std::unique_ptr<FailureBoard> board, Options options);
  // Finalises within a few seconds, or aborts.
  ~NcclCommunicator() override;

  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }
  const char* backend() const override { return communication_ ? "nccl" : "local"; }
  DeviceType device_type() const override { return DeviceType::kCuda; }
  Communicator& host() override { return *host_; }

  void SetTimeout(std::chrono::milliseconds timeout) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<HalfCasts>> MakeHalfCasts(DType type) override;
  absl::StatusOr<std::unique_ptr<TensorHash>> MakeTensorHash() override;
  std::unique_ptr<Work> Barrier() override;
  GraphCapture* graph_capture() override { return this; }
  DeviceTimer* device_timer() override { return &timer_; }
  void Abort(const std::string& reason) override;
  absl::Status error() const override;
  absl::StatusOr<std::string> DumpOperations() override { return recorder_.Dump(); }
  void Leave() override;

  const Device& device() const { return *device_; }

 private:
  friend class GpuWork;
  friend class NcclGraphHandle;
  using State = std::shared_ptr<GpuOperation>;

  NcclCommunicator(std::unique_ptr<Device> device, std::unique_ptr<NcclCommunication> communication,
                   std::unique_ptr<HostCommunicator> host, std::unique_ptr<FailureBoard> board,
                   Options options);
  absl::Status Start();

  std::unique_ptr<Work> Submit(Op op, Stream stream) override;
  Stream StreamOfBarrier() const;
  absl::Status Prepare(GpuOperation& operation, Stream stream);
  // Whether device memory can still be freed: after a failure that may wait for ever.
  bool MayFree() const;
  // Ends the capture under way, or else the group, over a call that this rank cannot make.
  void FailCaptureOrGroup(const absl::Status& why);

  // Graphs.
  absl::Status BeginCapture(Stream stream) override;
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override;
  void Discard() override;
  bool is_capturing() const override;
  uint64_t discarded_count() const override;
  absl::Status CheckCapture(Stream stream, bool* is_captured) const;
  absl::Status RecordIssued(const GpuOperation& operation, CudaStream stream) const;
  absl::Status AwaitEnqueued(std::unique_lock<std::mutex>& lock);
  absl::Status Instantiate(NcclGraph& graph);
  absl::Status Replay(const std::shared_ptr<NcclGraph>& graph);
  absl::Status Launch(const GpuOperation& replay);
  using Moments = GpuOperation::Moments;
  std::vector<Moments> MomentsIn(const NcclGraph& graph) const;
  void Forget(const std::shared_ptr<NcclGraph>& graph);
  using Graphs = std::vector<std::shared_ptr<NcclGraph>>;
  static void DestroyGraphs(const CudaApi& api, const Graphs& graphs);

  // Executing the head of the queue.
  enum class Progress { kDone, kFollow };
  void ExecuteHead(std::unique_lock<std::mutex>& lock);
  absl::StatusOr<Progress> Enqueue(GpuOperation& operation);
  absl::Status Copy(const Op& op);
  absl::Status Follow();
  absl::Status CompareCalls(const GpuOperation& operation);
  absl::Status RecordEnd(GpuOperation& operation);
  void FinishHead(std::unique_lock<std::mutex>& lock, const absl::Status& status);
  void ThreadMain();

  // Watching.
  void WatchdogMain();
  void Look();
  // The first in flight, and its graph; null: none, or none that this thread may ask about.
  struct Head {
    State operation;
    std::shared_ptr<NcclGraph> graph;
  };
  Head HeadInFlight() const;
  State First() const;
  void Retire();
  absl::Status RetireDone();
  absl::Status JudgeCalls(const GpuOperation& operation);
  void RetireHead(const Head& head);
  void AskDriver();
  void LookAtProgress(const State& front, Clock::duration waited);
  std::chrono::milliseconds SlowAfter(std::chrono::milliseconds timeout) const;
  bool HasArrived(const GpuOperation& operation) const;
  absl::Status TimedOut(const GpuOperation& operation, Clock::duration silence);
  std::chrono::milliseconds Timeout() const;
  absl::Status Published(const absl::Status& status);
  absl::Status FoundHere(const absl::Status& status) const;
  // Ends the group with `status`, which the other ranks hear as well.
  void FailAll(const absl::Status& status);
  // Likewise with what the host communicator says, or NCCL of this rank.
  void FailFor(const absl::Status& trouble, bool is_own);
  // Likewise on this rank, after the others have been told.
  void Fail(absl::Status status);
  std::deque<State> MarkFailed(Clock::time_point now);
  absl::Status WithDump(std::unique_lock<std::mutex>& lock, const absl::Status& status);
  // REQUIRES: the watchdog's thread, or the watchdog has ended.
  void AbortCommunication();
  void Finalize();
  void FinalizeCommunication();

  std::unique_ptr<Device> device_;                    // both are left to a thread that hangs
  std::unique_ptr<NcclCommunication> communication_;  // at the very end, and only then
  const std::unique_ptr<HostCommunicator> host_;
  const std::unique_ptr<FailureBoard> board_;  // null in a group of one
  const Options options_;
  FlightRecorder recorder_;
  const std::shared_ptr<EventPool> pool_;  // shared with operations whose handles outlive us
  CudaStream stream_ = nullptr;
  CudaPointer barrier_word_ = 0;
  std::unique_ptr<CallComparison> comparison_;  // null: the ranks do not compare
  GpuClock clock_;
  GpuTimer timer_;

  std::mutex nccl_mutex_;  // one call of NCCL at a time; taken before mutex_
  // Those that can be launched; guarded by nccl_mutex_. NCCL's end waits for them to go.
  Graphs graphs_;

  mutable std::mutex mutex_;
  std::condition_variable work_arrived_;  // for the communication thread
  std::condition_variable changed_;       // an operation went on, or the group failed
  std::condition_variable watch_;         // for the watchdog
  // Guarded by mutex_.
  std::chrono::milliseconds timeout_;
  std::deque<State> queue_;      // not enqueued yet; the head may be executing
  std::deque<State> in_flight_;  // enqueued, not known to be done
  uint64_t last_sequence_ = 0;
  std::shared_ptr<NcclGraph> capture_;  // null: nothing is captured now
  uint64_t sequence_before_capture_ = 0;
  Op last_done_;  // its sequence is 0 before the first
  uint64_t discarded_count_ = 0;
  bool is_executing_ = false;
  bool is_calling_ = false;   // the execution of the head is inside the driver or NCCL
  bool must_look_ = false;    // the watchdog, now
  bool must_follow_ = false;  // the head is in progress, and the thread's
  bool is_stopping_ = false;
  bool is_aborted_ = false;
  bool is_left_ = false;
  bool is_hanging_ = false;  // in its orderly end
  bool is_failing_ = false;  // somebody is about to set error_
  absl::Status error_;
  absl::Status found_;  // by the side thread

  // The watchdog's own.
  Clock::time_point next_board_look_{};
  HeadClock head_clock_;
  ProgressNews news_;
  SideThread asker_;
  std::shared_ptr<GpuOperation> pulse_;  // ended long ago: asked where there is nothing else

  std::thread thread_;
  std::thread watchdog_;
};

// What is said of a driver that has not answered for so long.
std::string SilenceFor(Clock::duration silence);

// What on_hopeless is outside of tests: says why on stderr and ends the process with EXIT_FAILURE.
[[noreturn]] void EndProcess(const std::string& why);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_COMMUNICATOR_H_
