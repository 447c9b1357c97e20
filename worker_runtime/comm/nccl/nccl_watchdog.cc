// The part of NcclCommunicator that sees to it that everything ends.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker_runtime/comm/nccl/nccl_communicator.h"
#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

// How often the watchdog looks while something is under way, and while nothing is.
constexpr Milliseconds kLook(20);
constexpr Milliseconds kIdleLook(200);
// How long the reason of another rank's abort may take to be read.
constexpr Milliseconds kExplainPatience(500);
// An abort takes milliseconds, beside up to 1 s for a revocation.
constexpr std::chrono::seconds kAbortPatience(2);
// How long the flight recorder's dump may take, which comes before the abort.
constexpr Milliseconds kDumpPatience(500);
// A claim of the survey is a question to the store.
constexpr Milliseconds kClaim(200);
// Ranks must be out of a broken group within 5 s of the failure.
static_assert(kClaim + kVerdictPatience + kDumpPatience + kAbortPatience < std::chrono::seconds(5));
// How long the end of a group may take while all is well: what is under way, then NCCL's own.
constexpr std::chrono::seconds kDrain(5);
constexpr std::chrono::seconds kFinalize(30);

std::string AbortedBy(int rank) { return absl::StrCat("aborted by rank ", rank, ": "); }

// On a thread of its own: what hangs the job may be the file system that the dump goes to.
absl::StatusOr<std::string> WriteDump(int rank, std::string json) {
  auto written = std::make_shared<std::promise<absl::StatusOr<std::string>>>();
  auto result = written->get_future();
  std::thread([written, rank, json = std::move(json)] {
    written->set_value(FlightRecorder::Write(rank, json));
  }).detach();
  if (result.wait_for(kDumpPatience) == std::future_status::ready) return result.get();
  return absl::DeadlineExceededError("the dump could not be written in time");
}

}  // namespace

// Takes what has ended out of those in flight.
void NcclCommunicator::Retire() {
  const CurrentDevice current(*device_);
  const RelaxedCapture relaxed(device_->api());
  absl::Status broken = current.status();
  {
    const std::lock_guard lock(mutex_);
    // The thread that captures may ask the device nothing; the watchdog does.
    if (capture_ != nullptr && capture_->thread == std::this_thread::get_id()) return;
    while (broken.ok() && !in_flight_.empty()) {
      const State state = in_flight_.front();
      const CudaResult result = device_->api().cuEventQuery(state->ended);
      if (result == kCudaErrorNotReady) break;
      if (result != kCudaSuccess) {
        broken = CudaStatus(device_->api(), Describe(state->op).c_str(), result);
        break;
      }
      state->issued_at = clock_.TimeOf(state->issued);
      state->started_at = clock_.TimeOf(state->started);
      state->ended_at = clock_.TimeOf(state->ended);
      if (state->graph != nullptr) ReadTimes(*state);
      state->graph = nullptr;
      state->phase = GpuOperation::Phase::kDone;
      clock_.MoveOn({.event = state->ended, .at = state->ended_at, .owner = state});
      recorder_->Ran(state->op.sequence, state->started_at, state->ended_at);
      last_done_ = state->op;
      in_flight_.pop_front();
      changed_.notify_all();
    }
  }
  if (!broken.ok()) FailAll(broken);
}

void NcclCommunicator::WatchdogMain() {
  const absl::Status current = device_->MakeCurrent();
  if (!current.ok()) FailAll(current);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const bool is_idle = in_flight_.empty() && queue_.empty();
      watch_.wait_for(lock, is_idle ? kIdleLook : kLook,
                      [&] { return is_stopping_ || (!error_.ok() && !is_aborted_); });
      if (is_stopping_) return;
      if (is_aborted_) continue;
    }
    Look();
    bool must_abort;
    {
      const std::lock_guard lock(mutex_);
      must_abort = !error_.ok() && !is_stopping_;  // an orderly end is an error for later calls
    }
    if (must_abort) AbortCommunication();
  }
}

void NcclCommunicator::Look() {
  Retire();
  absl::Status trouble = host_->error();
  bool is_own = false;
  if (trouble.ok() && communication_ != nullptr && nccl_mutex_.try_lock()) {
    const std::lock_guard nccl(nccl_mutex_, std::adopt_lock);
    const NcclResult result =
        communication_->get() == nullptr ? kNcclSuccess : communication_->Progress();
    if (result != kNcclSuccess && result != kNcclInProgress) {
      trouble = communication_->Explain("asynchronous error", result);
      is_own = true;
    }
  }
  State front;
  {
    const std::lock_guard lock(mutex_);
    if (!in_flight_.empty()) {
      front = in_flight_.front();
    } else if (!queue_.empty()) {
      front = queue_.front();
    }
  }
  if (trouble.ok()) {
    Clock::duration waited{0};
    if (front == nullptr) {
      head_clock_.SeeNothing();
    } else {
      const Op& op = front->op;
      const Clock::time_point now = Clock::now();
      waited = now - head_clock_.See(op.sequence, op.deadline - op.timeout, now);
    }
    LookAtProgress(front, waited);
    if (front != nullptr && waited >= front->op.timeout) Fail(TimedOut(*front));
    return;
  }
  // Whoever aborted the group has said why where all can read it.
  const absl::Status said = absl::IsAborted(trouble) && board_ != nullptr
                                ? board_->Read(kExplainPatience)
                                : absl::OkStatus();
  if (!said.ok()) return Fail(said);
  if (front != nullptr) {
    trouble =
        absl::Status(trouble.code(), absl::StrCat(Describe(front->op), ": ", trouble.message()));
  }
  Fail(Published(is_own ? FoundHere(trouble) : trouble));
}

// The first word on the group's end, of whichever rank, so that all say the same.
absl::Status NcclCommunicator::Published(const absl::Status& status) {
  return board_ == nullptr ? status : board_->Publish(status);
}

// What this rank found, for the others, who read it as well.
absl::Status NcclCommunicator::FoundHere(const absl::Status& status) const {
  if (world_size() == 1) return status;
  return absl::Status(status.code(), absl::StrCat("rank ", rank(), ": ", status.message()));
}

void NcclCommunicator::FailAll(const absl::Status& status) {
  if (error().ok()) Fail(Published(FoundHere(status)));
}

// Marks what has not ended in the record, and returns it. REQUIRES: mutex_.
std::deque<NcclCommunicator::State> NcclCommunicator::MarkFailed(Clock::time_point now) {
  std::deque<State> unfinished = in_flight_;
  unfinished.insert(unfinished.end(), queue_.begin(), queue_.end());
  for (const State& state : unfinished) {
    recorder_->Changed(state->op.sequence, FlightState::kFailed, now);
  }
  return unfinished;
}

// The record is taken under the lock and written without it: a disk may be slow, and calls, the
// watchdog and the abort wait for the lock. REQUIRES: is_failing_ is this caller's.
absl::Status NcclCommunicator::WithDump(std::unique_lock<std::mutex>& lock,
                                        const absl::Status& status) {
  MarkFailed(Clock::now());
  lock.unlock();
  const absl::StatusOr<std::string> path = WriteDump(rank(), recorder_->ToJson());
  lock.lock();
  if (!path.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; the last operations of rank ", rank(), " are in ", *path));
}

void NcclCommunicator::Fail(absl::Status status) {
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(is_failing_, true)) {
      // Whoever came first is writing the dump, which takes kDumpPatience at most.
      changed_.wait(lock, [&] { return !error_.ok(); });
    }
    if (!error_.ok()) return;
    if (absl::IsDeadlineExceeded(status)) status = WithDump(lock, status);
    if (!error_.ok()) return;  // the group was shut down meanwhile
    const Clock::time_point now = Clock::now();
    std::deque<State> unfinished = MarkFailed(now);
    in_flight_.clear();
    error_ = status;
    for (const State& state : unfinished) {
      state->status = error_;
      state->phase = GpuOperation::Phase::kDone;
      state->issued_at = state->started_at = state->ended_at = now;
    }
    // The head may be executing: it is taken out by whoever executes it.
    queue_.erase(queue_.begin() + (is_executing_ ? 1 : 0), queue_.end());
  }
  pool_->Abandon();
  changed_.notify_all();
  watch_.notify_all();
  work_arrived_.notify_all();
  // The others hear it within moments, wherever they are. That it was this rank's abort is added.
  host_->Abort(std::string(absl::StripPrefix(status.message(), AbortedBy(rank()))));
}

// NCCL's abort may hang as its operations do, on a thread that nobody can end.
void NcclCommunicator::AbortCommunication() {
  auto aborted = std::make_shared<std::promise<void>>();
  std::future<void> is_aborted = aborted->get_future();
  std::thread([this, aborted] {
    if (communication_ != nullptr) {
      const absl::Status current = device_->MakeCurrent();
      const std::lock_guard nccl(nccl_mutex_);
      DestroyGraphs(device_->api(), std::exchange(graphs_, {}));
      if (current.ok()) communication_->Abort();
    }
    aborted->set_value();
  }).detach();
  if (is_aborted.wait_for(kAbortPatience) != std::future_status::ready) {
    options_.on_hopeless(absl::StrCat("rank ", rank(),
                                      ": NCCL did not abort within 2 s of a failure (",
                                      std::string(error().message()), "): the process ends"));
  }
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
}

void NcclCommunicator::Refuse(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (capture_ != nullptr) return capture_->status.Update(why);
  }
  // The others wait for a call that will not come.
  FailAll(why);
}

void NcclCommunicator::Abort(const std::string& reason) {
  if (!error().ok()) return;
  Fail(Published(absl::AbortedError(absl::StrCat(AbortedBy(rank()), reason))));
}

absl::Status NcclCommunicator::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool NcclCommunicator::MayFree() const {
  const std::lock_guard lock(mutex_);
  return error_.ok() || (is_left_ && !is_aborted_ && !is_hanging_);
}

void NcclCommunicator::Leave() {
  Finalize();
  host_->Leave();
}

// In order while all is well: flushes, frees, and takes no further call. Within a few seconds.
void NcclCommunicator::Finalize() {
  const Clock::time_point deadline = Clock::now() + kDrain;
  bool is_drained = false;
  while (!is_drained && error().ok() && Clock::now() < deadline) {
    Retire();
    std::unique_lock lock(mutex_);
    is_drained = queue_.empty() && in_flight_.empty();
    if (!is_drained) changed_.wait_for(lock, Milliseconds(1));
  }
  if (!is_drained) Fail(absl::AbortedError("the communicator was destroyed with work under way"));
  {
    std::unique_lock lock(mutex_);
    if (error_.ok()) {
      error_ = absl::FailedPreconditionError("the process group was shut down");
    } else if (!is_left_) {
      // The watchdog aborts, or ends the process.
      changed_.wait(lock, [&] { return is_aborted_; });
    }
    if (std::exchange(is_left_, true)) return;
    is_stopping_ = true;
  }
  work_arrived_.notify_all();
  watch_.notify_all();
  thread_.join();
  watchdog_.join();
  if (is_aborted_ || communication_ == nullptr) return;
  FinalizeCommunication();
}

// All work is done, so a hang of NCCL is no reason to fail: it is left to itself.
void NcclCommunicator::FinalizeCommunication() {
  const std::chrono::milliseconds patience = std::min<Milliseconds>(timeout_, kFinalize);
  auto ended = std::make_shared<std::promise<void>>();
  std::future<void> is_ended = ended->get_future();
  std::thread([device = device_.get(), communication = communication_.get(),
               graphs = std::exchange(graphs_, {}), patience, ended] {
    const absl::Status current = device->MakeCurrent();
    DestroyGraphs(device->api(), graphs);
    if (current.ok()) communication->Finalize(Clock::now() + patience).IgnoreError();
    ended->set_value();
  }).detach();
  if (is_ended.wait_for(patience + kAbortPatience) == std::future_status::ready) return;
  std::fprintf(stderr, "ddp: rank %d: NCCL did not end within %s of the last operation; going on\n",
               rank(), NameDuration(patience + kAbortPatience).c_str());
  (void)communication_.release();
  device_->Abandon();
  is_hanging_ = true;
}

NcclCommunicator::~NcclCommunicator() {
  if (thread_.joinable()) {
    Finalize();
  } else if (!is_left_) {
    AbortCommunication();  // it never started
  }
  clock_.Set({});
  // What is left on the device is the caller's own; freeing waits for it.
  const bool is_idle = !is_hanging_ && !is_aborted_ && device_->Free(barrier_word_, kDrain).ok();
  if (!is_idle) {
    // The device may hang, and the process is about to end, its memory with it.
    pool_->Abandon();
    device_->Abandon();
    if (is_hanging_) (void)device_.release();
    return;
  }
  pool_->Close();
  const CurrentDevice current(*device_);
  if (stream_ != nullptr) device_->api().cuStreamDestroy(stream_);
}

void EndProcess(const std::string& why) {
  std::fprintf(stderr, "ddp: %s\n", why.c_str());
  _exit(EXIT_FAILURE);
}

}  // namespace ddp::internal
