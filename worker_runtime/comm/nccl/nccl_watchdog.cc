// The part of NcclCommunicator that sees to it that everything ends.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/nccl/nccl_communicator.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

// How often the watchdog looks while something is under way, and while nothing is.
constexpr Milliseconds kLook(20);
constexpr Milliseconds kIdleLook(200);
// How long a look waits for the driver, which answers in microseconds, or after a lock of its own.
constexpr Milliseconds kAnswer(100);
// How long the reason of another rank's abort may take to be read.
constexpr Milliseconds kExplainPatience(500);
// An abort takes milliseconds, beside up to 1 s for a revocation.
constexpr std::chrono::seconds kAbortPatience(2);
// How long the flight recorder's dump may take, which comes before the abort.
constexpr Milliseconds kDumpPatience(400);
// A claim of the survey is a question to the store.
constexpr Milliseconds kClaim(200);
// Ranks must be out of a broken group within 5 s of the failure.
static_assert(kAnswer + kClaim + kVerdictPatience + kDumpPatience + kAbortPatience <
              std::chrono::seconds(5));
// How long the end of a group may take while all is well: what is under way, then NCCL's own.
constexpr std::chrono::seconds kDrain(5);
constexpr std::chrono::seconds kFinalize(30);

std::string AbortedBy(int rank) { return absl::StrCat("aborted by rank ", rank, ": "); }

// On a thread of its own: what hangs the job may be the file system that the dump goes to.
absl::StatusOr<std::string> WriteDump(std::string path, std::string json) {
  auto written = std::make_shared<std::promise<absl::StatusOr<std::string>>>();
  auto result = written->get_future();
  std::thread([written, path = std::move(path), json = std::move(json)] {
    written->set_value(FlightRecorder::Write(path, json));
  }).detach();
  if (result.wait_for(kDumpPatience) == std::future_status::ready) return result.get();
  return absl::DeadlineExceededError("the dump could not be written in time");
}

}  // namespace

void NcclCommunicator::WatchdogMain() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const bool is_idle = in_flight_.empty() && queue_.empty();
      watch_.wait_for(lock, is_idle ? kIdleLook : kLook,
                      [&] { return is_stopping_ || must_look_ || (!error_.ok() && !is_aborted_); });
      must_look_ = false;
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
  const Clock::duration silence = asker_.Run(kAnswer);
  {
    std::unique_lock lock(mutex_);
    if (const absl::Status broken = found_; !broken.ok()) {
      lock.unlock();
      return FailAll(broken);
    }
  }
  if (absl::Status trouble = host_->MarkedError(); !trouble.ok()) return FailFor(trouble, false);
  if (communication_ != nullptr && nccl_mutex_.try_lock()) {
    const std::lock_guard nccl(nccl_mutex_, std::adopt_lock);
    const NcclResult result =
        communication_->get() == nullptr ? kNcclSuccess : communication_->Progress();
    if (result != kNcclSuccess && result != kNcclInProgress) {
      return FailFor(communication_->Explain("asynchronous error", result), true);
    }
  }
  const State first = First();
  Clock::duration waited{0};
  if (first == nullptr) {
    head_clock_.SeeNothing();
  } else {
    const Op& op = first->op;
    const Clock::time_point now = Clock::now();
    waited = now - head_clock_.See(op.sequence, op.deadline - op.timeout, now);
  }
  LookAtProgress(first, waited);
  if (first == nullptr) {
    // A call may hang in the driver before it is one of ours.
    if (silence >= Timeout()) FailAll(absl::DeadlineExceededError(SilenceFor(silence)));
    return;
  }
  // While the driver is silent, the operation may have ended.
  if (silence > Clock::duration::zero()) waited = std::min(waited, silence);
  if (waited >= first->op.timeout) Fail(TimedOut(*first, silence));
}

void NcclCommunicator::FailFor(const absl::Status& trouble, bool is_own) {
  // Whoever aborted the group has said why where all can read it.
  const absl::Status said = absl::IsAborted(trouble) && board_ != nullptr
                                ? board_->Read(kExplainPatience)
                                : absl::OkStatus();
  if (!said.ok()) return Fail(said);
  absl::Status status = trouble;
  if (const State first = First(); first != nullptr) {
    status = WithLeftPeer(
        absl::Status(status.code(), absl::StrCat(Describe(first->op), ": ", status.message())),
        LeftPeerOf(trouble));
  }
  Fail(Published(is_own ? FoundHere(status) : status));
}

// The first word on the group's end, of whichever rank, so that all say the same.
absl::Status NcclCommunicator::Published(const absl::Status& status) {
  return board_ == nullptr ? status : board_->Publish(status);
}

// What this rank found, for the others, who read it as well.
absl::Status NcclCommunicator::FoundHere(const absl::Status& status) const {
  if (world_size() == 1) return status;
  const absl::Status named(status.code(), absl::StrCat("rank ", rank(), ": ", status.message()));
  // A timeout has another cause, and so may have what NCCL calls unavailable: a remote end.
  const bool is_own = !absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status);
  return is_own ? WithLeftPeer(named, rank()) : named;
}

void NcclCommunicator::FailAll(const absl::Status& status) {
  if (!error().ok()) return;
  // Calls that differ are found by all ranks: which one is quicker says nothing.
  Fail(Published(absl::IsDataLoss(status) ? status : FoundHere(status)));
}

// Marks what has not ended in the record, and returns it. REQUIRES: mutex_.
std::deque<NcclCommunicator::State> NcclCommunicator::MarkFailed(Clock::time_point now) {
  std::deque<State> unfinished = in_flight_;
  unfinished.insert(unfinished.end(), queue_.begin(), queue_.end());
  for (const State& state : unfinished) {
    recorder_.Changed(state->op.sequence, FlightState::kFailed, now);
  }
  return unfinished;
}

// The record is taken under the lock and written without it: a disk may be slow, and calls, the
// watchdog and the abort wait for the lock. REQUIRES: is_failing_ is this caller's.
absl::Status NcclCommunicator::WithDump(std::unique_lock<std::mutex>& lock,
                                        const absl::Status& status) {
  MarkFailed(Clock::now());
  lock.unlock();
  const absl::StatusOr<std::string> path = WriteDump(recorder_.Path(), recorder_.ToJson());
  lock.lock();
  if (!path.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; the last operations of rank ", rank(), " are in ", *path));
}

void NcclCommunicator::Fail(absl::Status status) {
  const std::optional<int> left_peer = LeftPeerOf(status);
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(is_failing_, true)) {
      // Whoever came first is writing the dump, which takes kDumpPatience at most.
      changed_.wait(lock, [&] { return !error_.ok(); });
    }
    if (!error_.ok()) return;
    lock.unlock();
    status = host_->Told(std::move(status));
    lock.lock();
    // The others', too, who read it: what each rank called tells more.
    if (absl::IsDeadlineExceeded(status) || absl::IsDataLoss(status)) {
      status = WithDump(lock, status);
    }
    if (!error_.ok()) return;  // the group was shut down meanwhile
    const Clock::time_point now = Clock::now();
    std::deque<State> unfinished = MarkFailed(now);
    in_flight_.clear();
    error_ = status;
    for (const State& state : unfinished) {
      state->status = error_;
      state->phase = GpuOperation::Phase::kDone;
      state->moments = {.issued = now, .started = now, .ended = now};
    }
    // The head may be executing: it is taken out by whoever executes it.
    queue_.erase(queue_.begin() + (is_executing_ ? 1 : 0), queue_.end());
  }
  pool_->Abandon();
  changed_.notify_all();
  watch_.notify_all();
  work_arrived_.notify_all();
  // The others hear it within moments, wherever they are. That it was this rank's abort is added.
  host_->AbortFor(std::string(absl::StripPrefix(status.message(), AbortedBy(rank()))), left_peer);
}

// NCCL's abort may hang as its operations do, on a thread that nobody can end. So may the driver,
// and with it whatever thread of the program asks for something next.
void NcclCommunicator::AbortCommunication() {
  const Clock::time_point deadline = Clock::now() + kAbortPatience;
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
  const char* hanging = nullptr;
  // The driver has kAnswer left in any case.
  if (is_aborted.wait_until(deadline - kAnswer) != std::future_status::ready) {
    hanging = "NCCL did not abort";
  } else if (asker_.Run(deadline - Clock::now()) > Clock::duration::zero()) {
    hanging = "the driver of its GPU did not answer";
  } else {
    std::unique_lock lock(mutex_);
    const bool has_returned = changed_.wait_until(lock, std::max(deadline, Clock::now() + kAnswer),
                                                  [this] { return !is_calling_; });
    if (!has_returned) hanging = "a call of its GPU's driver did not return";
  }
  if (hanging != nullptr) {
    options_.on_hopeless(absl::StrCat("rank ", rank(), ": ", hanging, " within 2 s of a failure (",
                                      std::string(error().message()), "): the process ends"));
  }
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
}

void NcclCommunicator::FailCaptureOrGroup(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (capture_ != nullptr) return capture_->status.Update(why);
  }
  // The others wait for a call that will not come.
  FailAll(why);
}

void NcclCommunicator::Abort(const std::string& reason) {
  if (!error().ok()) return;
  Fail(
      Published(WithLeftPeer(absl::AbortedError(absl::StrCat(AbortedBy(rank()), reason)), rank())));
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
  bool is_drained = false;
  {
    const Clock::time_point deadline = Clock::now() + kDrain;
    std::unique_lock lock(mutex_);
    while (true) {
      is_drained = queue_.empty() && in_flight_.empty();
      if (is_drained || !error_.ok() || Clock::now() >= deadline) break;
      // The driver may not answer: it is not for this thread to ask.
      must_look_ = true;
      watch_.notify_all();
      changed_.wait_for(lock, Milliseconds(1));
    }
  }
  if (!is_drained) Fail(absl::AbortedError("the communicator was destroyed with work under way"));
  // The watchdog may not have seen it yet; NCCL's end would wait for who aborted.
  if (absl::Status trouble = host_->MarkedError(); !trouble.ok() && error().ok()) {
    FailFor(trouble, false);
  }
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
  if (!asker_.Stop(kAbortPatience)) {
    options_.on_hopeless(absl::StrCat("rank ", rank(),
                                      ": the driver of its GPU did not answer at the "
                                      "end of the group: the process ends"));
  }
  if (is_aborted_ || communication_ == nullptr) return;
  FinalizeCommunication();
}

// All work is done, so a hang of NCCL is no reason to fail: it is left to itself. Nor is another
// rank that aborts now: NCCL would wait for it.
void NcclCommunicator::FinalizeCommunication() {
  const std::chrono::milliseconds patience = std::min<Milliseconds>(timeout_, kFinalize);
  const auto is_interrupted = std::make_shared<std::atomic<bool>>(false);
  auto ended = std::make_shared<std::promise<void>>();
  std::future<void> is_ended = ended->get_future();
  std::thread([device = device_.get(), communication = communication_.get(),
               graphs = std::exchange(graphs_, {}), patience, is_interrupted, ended] {
    const absl::Status current = device->MakeCurrent();
    DestroyGraphs(device->api(), graphs);
    if (current.ok()) {
      communication->Finalize(Clock::now() + patience, *is_interrupted).IgnoreError();
    }
    ended->set_value();
  }).detach();
  const Clock::time_point begin = Clock::now();
  Clock::time_point deadline = begin + patience + kAbortPatience;
  while (is_ended.wait_for(kLook) != std::future_status::ready) {
    if (!*is_interrupted && !host_->error().ok()) {
      *is_interrupted = true;
      deadline = std::min(deadline, Clock::now() + kAbortPatience);
    }
    if (Clock::now() < deadline) continue;
    const auto waited = std::chrono::round<std::chrono::seconds>(Clock::now() - begin);
    std::fprintf(stderr,
                 "ddp: rank %d: NCCL did not end within %s of the last operation%s; going on\n",
                 rank(), NameDuration(waited).c_str(),
                 *is_interrupted ? ", 2 s after another rank had ended the group" : "");
    (void)communication_.release();
    device_->Abandon();
    is_hanging_ = true;
    return;
  }
}

NcclCommunicator::~NcclCommunicator() {
  if (thread_.joinable()) {
    Finalize();
  } else if (!is_left_) {
    AbortCommunication();  // it never started
  }
  clock_.Set({});
  pulse_ = nullptr;
  // What is left on the device is the caller's own; freeing waits for it.
  Device::Memory memory;
  if (barrier_word_ != 0) memory.on_device.push_back(barrier_word_);
  if (comparison_ != nullptr) comparison_->Release(memory);
  const bool is_idle =
      !is_hanging_ && !is_aborted_ && device_->Free(std::move(memory), kDrain).ok();
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

std::string SilenceFor(Clock::duration silence) {
  return absl::StrCat("the driver of its GPU has not answered for ",
                      NameDuration(std::chrono::round<std::chrono::seconds>(silence)),
                      " (dmesg may tell of a broken GPU)");
}

void EndProcess(const std::string& why) {
  std::fprintf(stderr, "ddp: %s\n", why.c_str());
  _exit(EXIT_FAILURE);
}

}  // namespace ddp::internal
