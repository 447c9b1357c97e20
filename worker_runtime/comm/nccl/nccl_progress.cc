// The part of NcclCommunicator that tells the others where this rank is, and finds out who is
// missing.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/nccl/nccl_communicator.h"

namespace ddp::internal {
namespace {

// How often a rank that waits looks whether others wait in something else.
constexpr std::chrono::seconds kBoardLook(1);
// After how long a rank that waits is slow; sooner where its timeout is short. Ranks may have
// timeouts of their own, and one of 600 s must have told where it is before another's 5 s are over:
// so it is no share of the timeout.
constexpr std::chrono::milliseconds kSlow(1000);
// A group of thousands hears of a hang at one moment: one second is enough for the store.
constexpr std::chrono::microseconds kStagger(100);

}  // namespace

// An operation waits for others once all before it on our stream is done. One that NCCL has not put
// there yet waits, too: at its first use of a peer it connects to it. That may be a captured one,
// whose events are not to be asked.
bool NcclCommunicator::HasArrived(const GpuOperation& operation) const {
  const std::lock_guard lock(mutex_);
  if (operation.phase == GpuOperation::Phase::kQueued) return operation.is_with_nccl;
  return operation.is_captured || operation.has_started;
}

// Behind the operation, on the communication thread.
absl::Status NcclCommunicator::CompareCalls(const GpuOperation& operation) {
  const Op gather = comparison_->gather();
  {
    const std::lock_guard nccl(nccl_mutex_);
    absl::Status status = error();
    if (status.ok()) status = comparison_->Upload(operation.op.sequence, stream_);
    if (!status.ok()) return status;
    const NcclResult enqueued = communication_->Enqueue(gather, stream_);
    if (enqueued != kNcclSuccess && enqueued != kNcclInProgress) {
      return communication_->Explain("compare the calls up to it", enqueued);
    }
  }
  if (absl::Status status = Follow(); !status.ok()) return status;
  return comparison_->Download(stream_);
}

// After how long this rank is slow enough for the others to hear of it.
std::chrono::milliseconds NcclCommunicator::SlowAfter(std::chrono::milliseconds timeout) const {
  const auto stagger = std::chrono::duration_cast<std::chrono::milliseconds>(rank() * kStagger);
  return std::min(kSlow, timeout / 4) + std::min(stagger, timeout / 8);
}

// REQUIRES: the watchdog's thread; `front`, the first for `waited`, may be null.
void NcclCommunicator::LookAtProgress(const State& front, Clock::duration waited) {
  if (board_ == nullptr) return;
  const Clock::time_point now = Clock::now();
  Op at;
  std::chrono::milliseconds patience;
  {
    const std::lock_guard lock(mutex_);
    at = last_done_;
    patience = SlowAfter(timeout_);
  }
  bool is_stuck = false, is_waiting = front != nullptr;
  if (front != nullptr) {
    const Op& op = front->op;
    is_stuck = waited >= SlowAfter(op.timeout);
    if (is_stuck || news_.is_awaited()) is_waiting = HasArrived(*front);
    if (is_waiting) at = op;
  }
  const ProgressNews::Place place{.sequence = at.sequence, .is_waiting = is_waiting};
  if (news_.ShouldTell(place, now, is_stuck, patience)) board_->SayArrived(at);
  if (!is_stuck || !is_waiting || now < next_board_look_) return;
  next_board_look_ = now + kBoardLook;
  if (absl::Status mismatch = board_->MismatchAt(at); !mismatch.ok()) Fail(Published(mismatch));
}

std::chrono::milliseconds NcclCommunicator::Timeout() const {
  const std::lock_guard lock(mutex_);
  return timeout_;
}

// One rank finds out for all who is missing. `silence`: since when the driver has not answered;
// zero if it does.
absl::Status NcclCommunicator::TimedOut(const GpuOperation& operation, Clock::duration silence) {
  const std::string what = absl::StrCat(Describe(operation.op), " timed out after ",
                                        NameDuration(operation.op.timeout), ": ");
  const auto timed_out = [&](const std::string& why) {
    return Published(absl::DeadlineExceededError(what + why));
  };
  const bool is_silent = silence > Clock::duration::zero();
  if (is_silent || !HasArrived(operation)) {
    // Somebody who waits for this rank may say more.
    const absl::Status said = board_ == nullptr ? absl::OkStatus() : board_->Read(kVerdictPatience);
    if (!said.ok()) return said;
    return timed_out(absl::StrCat(
        "rank ", rank(),
        is_silent ? absl::StrCat(": ", SilenceFor(silence))
                  : "'s own GPU has not come to it (a kernel or a copy before it hangs, or takes "
                    "longer than the timeout)"));
  }
  const std::string hangs = absl::StrCat(
      "NCCL or the network hangs (NCCL_DEBUG=INFO tells more)",
      board_ == nullptr || comparison_ != nullptr
          ? ""
          : ", or the ranks made different calls before (TORCH_DISTRIBUTED_DEBUG=DETAIL compares "
            "them)");
  if (board_ == nullptr) return timed_out(hangs);
  const int surveyor = board_->ClaimSurvey();
  if (surveyor >= 0 && surveyor != rank()) {
    const absl::Status said = board_->Read(kVerdictPatience);
    if (!said.ok()) return said;
    return timed_out(absl::StrCat("who is missing is not known, since rank ", surveyor,
                                  ", which asks for all, does not answer"));
  }
  const Survey survey = board_->MissingAt(operation.op.sequence);
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

}  // namespace ddp::internal
