// Communicator over an Engine: a queue, a thread, and handles to wait with.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_QUEUED_COMMUNICATOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_QUEUED_COMMUNICATOR_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/communicator.h"
#include "worker_runtime/comm/engine.h"
#include "worker_runtime/comm/flight_recorder.h"
#include "worker_runtime/comm/group_communicator.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/messages/messages.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

// Executes operations strictly in the order of the calls. Whoever comes first executes: the
// communication thread, or a caller inside Wait(), who would only sleep otherwise. For a small
// operation the thread is therefore not even woken - that costs more than the operation - but
// finds it within kLightSleep if nobody waits for it. In a group of one, where nobody is waited
// for, the call itself executes it.
class QueuedCommunicator final : public HostCommunicator {
 public:
  // Whether this process can read and write what a call names. Errors: InvalidArgument.
  using MemoryCheck = std::function<absl::Status(const Op& op)>;

  // `error_file` and `job_ranks`: LeftPeerNote's. `check_memory` is called before
  // each operation by its caller, who is refused what it does not allow; null: all memory is the
  // host's. `label`: FlightRecorder's.
  QueuedCommunicator(std::unique_ptr<Engine> engine, std::chrono::milliseconds timeout,
                     std::string error_file, std::vector<int> job_ranks = {},
                     MemoryCheck check_memory = nullptr, const GroupLabel& label = {});
  // Before the first call. ResourceExhausted: there is no thread for it.
  absl::Status Start();
  // Lets what is queued finish for a moment, then aborts it.
  ~QueuedCommunicator() override;

  int rank() const override { return engine_->rank(); }
  int world_size() const override { return engine_->world_size(); }
  const char* backend() const override { return engine_->backend(); }
  DeviceType device_type() const override { return DeviceType::kCpu; }

  void SetTimeout(std::chrono::milliseconds timeout) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override;
  std::unique_ptr<Work> Barrier() override;
  std::unique_ptr<Work> Send(const void* data, size_t count, DType dtype, int destination,
                             uint64_t tag) override;
  std::unique_ptr<Work> Receive(void* data, size_t count, DType dtype, int source,
                                uint64_t tag) override;
  absl::StatusOr<std::string> DumpOperations() override { return recorder_.Dump(); }
  void Abort(const std::string& reason) override { AbortFor(reason, rank()); }
  absl::Status error() const override { return note_.Told(MarkedError()); }

  absl::Status MarkedError() const override;
  absl::Status Told(absl::Status status) override { return note_.Told(std::move(status)); }
  void AbortFor(const std::string& reason, std::optional<int> left_peer) override;

  void Leave() override;

  // Where it gets its messages; without them it has none. Before the first call.
  void TakeMessages(MessagePeers peers, ddprun::UniqueFd listener,
                    std::shared_ptr<const LinkKey> key);

 private:
  struct State;
  class QueuedWork;

  std::unique_ptr<Work> Submit(Op op, ddp::Stream stream) override;
  absl::Status Await(State& state);
  bool AwaitFor(State& state, std::chrono::milliseconds patience);
  std::string WhoIsMissing(const State& state) const;
  void CountWaited(Clock::time_point since, Clock::time_point until) const;
  void ExecuteHead(std::unique_lock<std::mutex>& lock, bool is_awaited);
  absl::Status Run(const Op& op);
  absl::Status RunPieces(const Op& op);
  std::unique_ptr<Work> Refused(absl::Status status);
  std::unique_ptr<Work> Post(const Op& op, bool is_send, int peer, uint64_t tag);
  void FailQueued();
  void ThreadMain();

  const std::unique_ptr<Engine> engine_;
  const MemoryCheck check_memory_;
  mutable LeftPeerNote note_;

  mutable std::mutex mutex_;
  std::condition_variable work_arrived_;  // for the thread
  std::condition_variable work_done_;     // for those in Wait()
  // Guarded by mutex_.
  std::chrono::milliseconds timeout_;
  std::deque<std::shared_ptr<State>> queue_;  // the head may be executing
  uint64_t last_sequence_ = 0;
  Clock::time_point last_called_at_;
  Clock::time_point counted_until_;  // CountWaited() for what no caller waits for
  bool is_executing_ = false;
  bool is_asleep_ = false;  // the thread: only a notification wakes it
  bool is_stopping_ = false;
  bool has_left_ = false;
  absl::Status error_;
  FlightRecorder recorder_;  // written under the lock

  std::thread thread_;
  std::unique_ptr<Messages> messages_;  // asks for error_, so it goes first
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_QUEUED_COMMUNICATOR_H_
