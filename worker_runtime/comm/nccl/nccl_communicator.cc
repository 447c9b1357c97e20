#include "worker_runtime/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/nccl/device_buffer.h"
#include "worker_runtime/comm/nccl/device_casts.h"
#include "worker_runtime/comm/nccl/device_hash.h"
#include "worker_runtime/comm/nccl/follow_pace.h"
#include "worker_runtime/comm/nccl/op_memory.h"

namespace ddp::internal {
namespace {

// Calls that may wait behind one that NCCL has not taken yet; a further one waits itself.
constexpr size_t kMaxQueued = 1024;
// Operations in flight from which on a call looks what has ended, so that their number, and that of
// their events, is bounded by what the device does and not by the watchdog's pace.
constexpr size_t kManyInFlight = 64;
// For how long the caller follows a call that NCCL has not taken before the communication thread
// does. Handing it over costs a wake-up, some 50 us, for this call, and makes those behind it wait
// for that thread, too: so the caller stays for as long as NCCL's own thread needs as a rule.
constexpr std::chrono::microseconds kFollowAtOnce(100);

absl::Status Prefixed(const Op& op, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(Describe(op), ": ", status.message()));
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::unique_ptr<Device> device,
                                   std::unique_ptr<NcclCommunication> communication,
                                   std::unique_ptr<HostCommunicator> host,
                                   std::unique_ptr<FailureBoard> board, Options options)
    : device_(std::move(device)),
      communication_(std::move(communication)),
      host_(std::move(host)),
      board_(std::move(board)),
      options_(std::move(options)),
      recorder_(rank(), world_size(), backend()),
      pool_(std::make_shared<EventPool>(*device_)),
      clock_(device_->api()),
      timer_(*device_, clock_, pool_, [this] { return error().ok(); }),
      timeout_(options_.timeout) {}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    std::unique_ptr<Device> device, std::unique_ptr<NcclCommunication> communication,
    std::unique_ptr<HostCommunicator> host, std::unique_ptr<FailureBoard> board, Options options) {
  std::unique_ptr<NcclCommunicator> made(
      new NcclCommunicator(std::move(device), std::move(communication), std::move(host),
                           std::move(board), std::move(options)));
  if (absl::Status status = made->Start(); !status.ok()) {
    // The others have a group, and would wait for this rank in it.
    made->host_->Abort(std::string(status.message()));
    return status;
  }
  return made;
}

absl::Status NcclCommunicator::Start() {
  const CurrentDevice current(*device_);
  if (!current.status().ok()) return current.status();
  const CudaApi& api = device_->api();
  int least = 0, greatest = 0;
  CudaResult result = api.cuCtxGetStreamPriorityRange(&least, &greatest);
  if (result != kCudaSuccess) return CudaStatus(api, "cuCtxGetStreamPriorityRange", result);
  result = api.cuStreamCreateWithPriority(&stream_, kCudaStreamNonBlocking, greatest);
  if (result != kCudaSuccess) return CudaStatus(api, "cuStreamCreateWithPriority", result);
  result = api.cuMemAlloc(&barrier_word_, sizeof(int32_t));
  if (result != kCudaSuccess) return CudaStatus(api, "cuMemAlloc", result);
  result = api.cuMemsetD8Async(barrier_word_, 0, sizeof(int32_t), stream_);
  if (result != kCudaSuccess) return CudaStatus(api, "cuMemsetD8Async", result);

  auto anchor = std::make_shared<GpuOperation>(pool_);
  absl::StatusOr<CudaEvent> event = pool_->Take();
  if (!event.ok()) return event.status();
  anchor->ended = *event;
  result = api.cuEventRecord(anchor->ended, stream_);
  if (result != kCudaSuccess) return CudaStatus(api, "cuEventRecord", result);
  result = api.cuEventSynchronize(anchor->ended);
  if (result != kCudaSuccess) return CudaStatus(api, "cuEventSynchronize", result);
  clock_.Set({.event = anchor->ended, .at = Clock::now(), .owner = anchor});
  pulse_ = std::move(anchor);

  if (options_.compares_calls && communication_ != nullptr && world_size() > 1) {
    auto comparison = CallComparison::Create(*device_, world_size());
    if (!comparison.ok()) return comparison.status();
    comparison_ = *std::move(comparison);
  }
  asker_.Start([this] { AskDriver(); });
  thread_ = std::thread([this] { ThreadMain(); });
  watchdog_ = std::thread([this] { WatchdogMain(); });
  return absl::OkStatus();
}

void NcclCommunicator::SetTimeout(std::chrono::milliseconds timeout) {
  host_->SetTimeout(timeout);
  std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

// All ranks use registered memory, or none: NCCL leaves registration by some undefined.
absl::StatusOr<std::unique_ptr<Buffer>> NcclCommunicator::Allocate(size_t bytes) {
  absl::Status valid =
      CheckArguments({.kind = OpKind::kAllocate, .count = bytes}, rank(), world_size());
  if (!valid.ok()) return valid;
  absl::StatusOr<std::unique_ptr<Buffer>> buffer =
      absl::ResourceExhaustedError("registered memory was not asked for");
  for (const bool is_registered : {true, false}) {
    if (is_registered && (!options_.can_register || communication_ == nullptr)) continue;
    {
      // NCCL takes no registration beside a call in progress. Ends: calls end by their deadlines.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return queue_.empty() || !error_.ok(); });
    }
    if (absl::Status status = error(); !status.ok()) return status;
    buffer = AllocateDeviceBuffer(*device_, is_registered ? communication_.get() : nullptr, bytes,
                                  nccl_mutex_, [this] { return MayFree(); });
    int32_t failures = buffer.ok() ? 0 : 1;
    absl::Status status =
        host_->AllReduce(&failures, 1, DType::kInt32, ReduceOp::kSum, nullptr)->Wait();
    if (!status.ok()) return status;
    if (failures == 0) return buffer;
    if (buffer.ok()) {
      buffer = absl::ResourceExhaustedError(
          absl::StrCat("allocate ", bytes, " bytes: ", failures, " other ranks have no memory"));
    }
  }
  return buffer;
}

absl::StatusOr<std::unique_ptr<HalfCasts>> NcclCommunicator::MakeHalfCasts(DType type) {
  return MakeDeviceCasts(*device_, type);
}

absl::StatusOr<std::unique_ptr<TensorHash>> NcclCommunicator::MakeTensorHash() {
  return MakeDeviceHash(*device_);
}

std::unique_ptr<Work> NcclCommunicator::Barrier() {
  return Submit({.kind = OpKind::kBarrier,
                 .dtype = DType::kInt32,
                 .count = 1,
                 .input = reinterpret_cast<void*>(barrier_word_),
                 .output = reinterpret_cast<void*>(barrier_word_)},
                StreamOfBarrier());
}

// Ours joins a capture only with the first operation in it.
Stream NcclCommunicator::StreamOfBarrier() const {
  const std::lock_guard lock(mutex_);
  return capture_ != nullptr ? capture_->stream : stream_;
}

std::unique_ptr<Work> NcclCommunicator::Submit(Op op, Stream stream) {
  auto operation = std::make_shared<GpuOperation>(pool_);
  operation->op = op;
  if (absl::Status status = Prepare(*operation, stream); !status.ok()) FailCaptureOrGroup(status);
  bool is_crowded = false;
  {
    std::unique_lock lock(mutex_);
    if (!operation->status.ok()) {
      // Refused, without a number: the next call takes the one that the other ranks are at.
      if (!error_.ok()) operation->status = error_;
      operation->phase = GpuOperation::Phase::kDone;
      return std::make_unique<GpuWork>(*this, std::move(operation));
    }
    // Ends: what is ahead is enqueued, or fails by its timeout.
    changed_.wait(lock, [&] { return queue_.size() < kMaxQueued || !error_.ok(); });
    operation->op.sequence = ++last_sequence_;
    operation->op.timeout = timeout_;
    operation->op.deadline = Clock::now() + timeout_;
    operation->status = capture_ != nullptr && error_.ok() ? capture_->status : error_;
    if (!operation->status.ok()) {
      operation->phase = GpuOperation::Phase::kDone;
      return std::make_unique<GpuWork>(*this, std::move(operation));
    }
    operation->is_compared =
        comparison_ != nullptr && comparison_->Add(operation->op, operation->is_captured);
    recorder_.Queued(operation->op, Clock::now());
    queue_.push_back(operation);
    if (queue_.size() == 1 && !is_executing_) ExecuteHead(lock);
    is_crowded = in_flight_.size() > kManyInFlight;
  }
  if (is_crowded) Retire();
  return std::make_unique<GpuWork>(*this, std::move(operation));
}

// The caller's part: what it passed can be used, and from when on. A refusal is the operation's.
absl::Status NcclCommunicator::Prepare(GpuOperation& operation, Stream caller) {
  const CurrentDevice current(*device_);
  if (!current.status().ok()) return current.status();
  absl::Status status = CheckArguments(operation.op, rank(), world_size());
  if (status.ok()) status = CheckDeviceMemory(device_->api(), operation.op, rank(), world_size());
  if (absl::IsInvalidArgument(status)) {
    operation.status = std::move(status);
    return absl::OkStatus();
  }
  if (status.ok()) status = CheckCapture(caller, &operation.is_captured);
  if (status.ok()) status = operation.TakeEvents();
  if (status.ok()) status = RecordIssued(operation, static_cast<CudaStream>(caller));
  return Prefixed(operation.op, status);
}

void NcclCommunicator::ExecuteHead(std::unique_lock<std::mutex>& lock) {
  const State state = queue_.front();
  is_executing_ = is_calling_ = true;
  lock.unlock();
  const absl::StatusOr<Progress> progress = Enqueue(*state);
  lock.lock();
  is_calling_ = false;
  changed_.notify_all();
  if (progress.ok() && *progress == Progress::kFollow) {
    must_follow_ = true;
    work_arrived_.notify_one();
    return;
  }
  FinishHead(lock, progress.status());
}

absl::StatusOr<NcclCommunicator::Progress> NcclCommunicator::Enqueue(GpuOperation& operation) {
  const CurrentDevice current(*device_);
  if (!current.status().ok()) return current.status();
  const CudaApi& api = device_->api();
  const Op& op = operation.op;
  CudaResult result = api.cuStreamWaitEvent(stream_, operation.issued, 0);
  if (result != kCudaSuccess) return Prefixed(op, CudaStatus(api, "cuStreamWaitEvent", result));
  result = api.cuEventRecordWithFlags(operation.started, stream_, operation.time_flags());
  if (result != kCudaSuccess) return Prefixed(op, CudaStatus(api, "cuEventRecord", result));
  if (communication_ == nullptr) {
    if (absl::Status status = Copy(op); !status.ok()) return Prefixed(op, status);
  } else if (op.count > 0 || operation.is_compared) {
    const std::lock_guard nccl(nccl_mutex_);
    {
      const std::lock_guard lock(mutex_);
      if (!error_.ok()) return error_;
      operation.is_with_nccl = true;
    }
    NcclResult enqueued = op.count > 0 ? communication_->Enqueue(op, stream_) : kNcclSuccess;
    // NCCL enqueues on a thread of its own, as a rule at once.
    const FollowPace pace;
    while (enqueued == kNcclInProgress && pace.spent() < kFollowAtOnce) {
      pace.Pause();
      enqueued = communication_->Progress();
    }
    if (enqueued != kNcclSuccess && enqueued != kNcclInProgress) {
      return Prefixed(op, communication_->Explain("enqueue", enqueued));
    }
    if (enqueued == kNcclInProgress || operation.is_compared) return Progress::kFollow;
  }
  if (absl::Status status = RecordEnd(operation); !status.ok()) return Prefixed(op, status);
  return Progress::kDone;
}

// A group of one: what it gets is what it has.
absl::Status NcclCommunicator::Copy(const Op& op) {
  if (op.input == op.output || op.count == 0 || op.input == nullptr || op.output == nullptr) {
    return absl::OkStatus();
  }
  const CudaApi& api = device_->api();
  return CudaStatus(
      api, "cuMemcpyDtoDAsync",
      api.cuMemcpyDtoDAsync(reinterpret_cast<CudaPointer>(op.output),
                            reinterpret_cast<CudaPointer>(op.input), op.bytes(), stream_));
}

absl::Status NcclCommunicator::RecordEnd(GpuOperation& operation) {
  const CudaApi& api = device_->api();
  CudaResult result = kCudaSuccess;
  // Before the other, which is what joins our stream to the caller's.
  if (operation.is_captured) {
    result = api.cuEventRecordWithFlags(operation.ended_time, stream_, operation.time_flags());
  }
  if (result == kCudaSuccess) result = api.cuEventRecord(operation.ended, stream_);
  return CudaStatus(api, "cuEventRecord", result);
}

// Until NCCL has put the operation on the stream. Ends at the latest when the watchdog fails it.
absl::Status NcclCommunicator::Follow() {
  const FollowPace pace;
  while (true) {
    if (absl::Status status = error(); !status.ok()) return status;
    {
      const std::lock_guard nccl(nccl_mutex_);
      if (absl::Status status = error(); !status.ok()) return status;
      const NcclResult result = communication_->Progress();
      if (result == kNcclSuccess) return absl::OkStatus();
      if (result != kNcclInProgress) {
        return communication_->Explain("enqueue", result);
      }
    }
    pace.Pause();
  }
}

void NcclCommunicator::FinishHead(std::unique_lock<std::mutex>& lock, const absl::Status& status) {
  const State state = queue_.front();
  if (!status.ok() && state->is_captured && state->phase == GpuOperation::Phase::kQueued) {
    // NCCL broken by it is noticed by the watchdog.
    capture_->status.Update(status);
    state->status = status;
    state->phase = GpuOperation::Phase::kDone;
    recorder_.Changed(state->op.sequence, FlightState::kFailed, Clock::now());
  } else if (!status.ok()) {
    lock.unlock();
    FailAll(status);
    lock.lock();
  }
  is_executing_ = must_follow_ = false;
  queue_.pop_front();
  if (state->phase == GpuOperation::Phase::kQueued) {
    state->phase = GpuOperation::Phase::kEnqueued;
    recorder_.Changed(state->op.sequence,
                      state->is_captured ? FlightState::kCaptured : FlightState::kEnqueued,
                      Clock::now());
    (state->is_captured ? capture_->operations : in_flight_).push_back(state);
  }
  if (!queue_.empty()) work_arrived_.notify_one();
  changed_.notify_all();
}

void NcclCommunicator::ThreadMain() {
  const absl::Status current = device_->MakeCurrent();
  if (!current.ok()) FailAll(current);
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (must_follow_) {
      const State state = queue_.front();
      is_calling_ = true;
      lock.unlock();
      absl::Status status = Follow();
      if (status.ok() && state->is_compared) status = CompareCalls(*state);
      if (status.ok()) status = RecordEnd(*state);
      lock.lock();
      is_calling_ = false;
      changed_.notify_all();
      FinishHead(lock, Prefixed(state->op, status));
    } else if (!queue_.empty() && !is_executing_) {
      ExecuteHead(lock);
    } else {
      work_arrived_.wait(lock);
    }
  }
}

}  // namespace ddp::internal
