#include "worker_runtime/comm/nccl/watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/refused.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

// How often the watchdog looks while something is under way, and while nothing is.
constexpr Milliseconds kLook(20);
constexpr Milliseconds kIdleLook(200);
// How often a rank that waits looks whether others wait in something else.
constexpr std::chrono::seconds kBoardLook(1);
// After how long a rank that waits is slow; sooner where its timeout is short. Ranks may have
// timeouts of their own, and one of 600 s must have told where it is before another's 5 s are over:
// so it is no share of the timeout.
constexpr Milliseconds kSlow(1000);
// A group of thousands hears of a hang at one moment: one second is enough for the store.
constexpr std::chrono::microseconds kStagger(100);

}  // namespace

absl::Status Watchdog::Start() {
  const bool can_ask = asker_.Start([this] {
    const absl::Status status = group_.queue.AskDriver();
    const std::lock_guard lock(mutex_);
    found_.Update(status);
  });
  if (can_ask) thread_ = ddprun::StartQuietThread([this] { Main(); });
  if (thread_.joinable()) return absl::OkStatus();
  (void)asker_.Stop(kAnswer);  // it has not run
  return NoThread("watch the group on GPUs");
}

void Watchdog::Main() {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool is_idle = group_.queue.First() == nullptr;
    changed_.wait_for(lock, is_idle ? kIdleLook : kLook,
                      [this] { return is_stopping_ || must_look_; });
    must_look_ = false;
    if (is_stopping_) return;
    if (ending_ != Ending::kNone) continue;
    lock.unlock();
    if (group_.queue.error().ok()) Look();
    lock.lock();
    // An orderly end is an error for later calls.
    if (is_stopping_ || group_.queue.error().ok()) continue;
    lock.unlock();
    AbortCommunication();
    lock.lock();
  }
}

void Watchdog::Look() {
  LaunchQueue& queue = group_.queue;
  const Clock::duration silence = asker_.Run(kAnswer);
  absl::Status trouble;
  {
    const std::lock_guard lock(mutex_);
    trouble = found_;
  }
  if (!trouble.ok()) return Fail(trouble, KnownTo::kThisRank);
  trouble = group_.host.MarkedError();
  if (!trouble.ok()) return Fail(OfFirst(trouble), KnownTo::kHost);
  trouble = queue.AskNccl();
  if (!trouble.ok()) return Fail(OfFirst(trouble), KnownTo::kThisRank);
  const LaunchQueue::State first = queue.First();
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
    if (silence < queue.timeout()) return;
    return Fail(absl::DeadlineExceededError(SilenceFor(silence)), KnownTo::kThisRank);
  }
  // While the driver is silent, the operation may have ended.
  if (silence > Clock::duration::zero()) waited = std::min(waited, silence);
  if (waited >= first->op.timeout) Fail(TimedOut(*first, silence), KnownTo::kAll);
}

// What is said of the operation that it hits.
absl::Status Watchdog::OfFirst(const absl::Status& trouble) const {
  const LaunchQueue::State first = group_.queue.First();
  if (first == nullptr) return trouble;
  return WithLeftPeer(Prefixed(first->op, trouble), LeftPeerOf(trouble));
}

// After how long this rank is slow enough for the others to hear of it.
Milliseconds Watchdog::SlowAfter(Milliseconds timeout) const {
  const auto stagger = std::chrono::duration_cast<Milliseconds>(group_.host.rank() * kStagger);
  return std::min(kSlow, timeout / 4) + std::min(stagger, timeout / 8);
}

// `front`, the first for `waited`, may be null.
void Watchdog::LookAtProgress(const LaunchQueue::State& front, Clock::duration waited) {
  if (group_.board == nullptr) return;
  const Clock::time_point now = Clock::now();
  Op at = group_.queue.last_done();
  bool is_stuck = false, is_waiting = front != nullptr;
  if (front != nullptr) {
    is_stuck = waited >= SlowAfter(front->op.timeout);
    if (is_stuck || news_.is_awaited()) is_waiting = group_.queue.HasArrived(*front);
    if (is_waiting) at = front->op;
  }
  const ProgressNews::Place place{.sequence = at.sequence, .is_waiting = is_waiting};
  const Milliseconds patience = SlowAfter(group_.queue.timeout());
  if (news_.ShouldTell(place, now, is_stuck, patience)) group_.board->SayArrived(at);
  if (!is_stuck || !is_waiting || now < next_board_look_) return;
  next_board_look_ = now + kBoardLook;
  if (absl::Status other = group_.board->MismatchAt(at); !other.ok()) Fail(other, KnownTo::kAll);
}

// One rank finds out for all who is missing. `silence`: since when the driver has not answered;
// zero if it does.
absl::Status Watchdog::TimedOut(const GpuOperation& operation, Clock::duration silence) {
  FailureBoard* const board = group_.board;
  const int rank = group_.host.rank();
  const auto timed_out = [&](const std::string& why) {
    return absl::DeadlineExceededError(absl::StrCat(Describe(operation.op), " timed out after ",
                                                    NameDuration(operation.op.timeout), ": ", why));
  };
  const bool is_silent = silence > Clock::duration::zero();
  if (is_silent || !group_.queue.HasArrived(operation)) {
    // Somebody who waits for this rank may say more.
    const absl::Status said = board == nullptr ? absl::OkStatus() : board->Read(kVerdictPatience);
    if (!said.ok()) return said;
    return timed_out(absl::StrCat(
        "rank ", rank,
        is_silent ? absl::StrCat(": ", SilenceFor(silence))
                  : "'s own GPU has not come to it (a kernel or a copy before it hangs, or takes "
                    "longer than the timeout)"));
  }
  const std::string hangs = absl::StrCat(
      "NCCL or the network hangs (NCCL_DEBUG=INFO tells more)",
      board == nullptr || group_.queue.compares_calls()
          ? ""
          : ", or the ranks made different calls before (TORCH_DISTRIBUTED_DEBUG=DETAIL compares "
            "them)");
  if (board == nullptr) return timed_out(hangs);
  const int surveyor = board->ClaimSurvey();
  if (surveyor >= 0 && surveyor != rank) {
    const absl::Status said = board->Read(kVerdictPatience);
    if (!said.ok()) return said;
    return timed_out(absl::StrCat("who is missing is not known, since rank ", surveyor,
                                  ", which asks for all, does not answer"));
  }
  const Survey survey = board->MissingAt(operation.op.sequence);
  if (survey.asked == 0) {
    return timed_out("who is missing is not known, since the store cannot be asked");
  }
  if (!survey.missing.empty()) {
    return timed_out(
        absl::StrCat(NameRanks(survey.missing), " did not arrive", NameExtent(survey)));
  }
  return timed_out(
      absl::StrCat("all ranks are in it or through it", NameExtent(survey), "; ", hangs));
}

std::string SilenceFor(Clock::duration silence) {
  return absl::StrCat("the driver of its GPU has not answered for ",
                      NameDuration(std::chrono::round<std::chrono::seconds>(silence)),
                      " (dmesg may report a broken GPU)");
}

}  // namespace ddp::internal
