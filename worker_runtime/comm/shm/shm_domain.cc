#include "worker_runtime/comm/shm/shm_domain.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/shm/own_core.h"

namespace ddp::internal {
namespace {

// A wake-up that got lost - there should be none - costs this much.
constexpr std::chrono::milliseconds kLongestSleep(100);

// Longer than a sleep and a wake-up take, or ranks that once slept keep sleeping: each finds the
// others not yet awake.
constexpr std::chrono::microseconds kSpin(100);
// The same for an operation that runs beside its rank's computation.
constexpr std::chrono::microseconds kSpinBeside(10);
constexpr int kPausesPerLook = 32;
constexpr int kYields = 8;
constexpr std::chrono::milliseconds kBetweenMoves(5);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ShmDomain::ShmDomain(ddprun::UniqueFd memory, char* base, std::vector<int> ranks, int index)
    : memory_(std::move(memory)),
      base_(base),
      lines_(LinesOf(base)),
      ranks_(std::move(ranks)),
      index_(index),
      end_(FixedBytes(static_cast<int>(ranks_.size()))) {
  lines(index_).pid.store(getpid(), std::memory_order_relaxed);
  cpu_set_t& cpus = lines(index_).cpus;  // empty where the kernel does not tell
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) CPU_ZERO(&cpus);
}

ShmDomain::~ShmDomain() { munmap(base_, FixedBytes(size())); }

absl::Status ShmDomain::Meet(const Op& op, uint32_t step) {
  PostArrived(step);
  absl::Status status = AwaitArrived(step, op);
  if (!status.ok() || has_core_) return status;
  std::vector<cpu_set_t> allowed;
  for (int i = 0; i < size(); ++i) allowed.push_back(lines(i).cpus);
  has_core_ = HaveCoreEach(allowed);
  return status;
}

absl::Status ShmDomain::Finish(const Op& op, uint32_t step) {
  PostFinished(step);
  return AwaitFinished(step, op);
}

absl::Status ShmDomain::Agree(const Op& op, const Location& location, uint32_t step) {
  entry(index_, step) = {RecordOf(op), location};
  // One in pieces meets for each.
  if (std::exchange(entered_sequence_, op.sequence) != op.sequence) {
    entered_step_.store(step, std::memory_order_release);
  }
  absl::Status status = Meet(op, step);
  if (!status.ok()) return status;
  // Compared with the first rank's, so that all ranks find the same words.
  for (int i = 1; i < size(); ++i) {
    status = CheckSame(ranks_[0], entry(0, step).op, ranks_[i], entry(i, step).op);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<OpRecord> ShmDomain::Records(uint32_t step) {
  std::vector<OpRecord> records;
  for (int i = 0; i < size(); ++i) records.push_back(entry(i, step).op);
  return records;
}

bool ShmDomain::IsSameLocation(uint32_t step) {
  const Location& first = entry(0, step).location;
  for (int i = 1; i < size(); ++i) {
    if (entry(i, step).location != first) return false;
  }
  return first.is_shared();
}

bool ShmDomain::IsAnyShared(uint32_t step) {
  for (int i = 0; i < size(); ++i) {
    if (entry(i, step).location.is_shared()) return true;
  }
  return false;
}

absl::Status ShmDomain::Await(uint32_t step, const Op& op, bool is_arrival) {
  for (int i = 0; i < size(); ++i) {
    if (flag(i, is_arrival).HasReached(step)) continue;
    absl::Status status = AwaitSlowly(i, step, op, is_arrival);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Where every rank has a core, another one's answer is nearer than a sleep and a wake-up. Where
// ranks share cores, spinning keeps the other from running: give way instead.
bool ShmDomain::SpinFor(const Flag& awaited, uint32_t step, const Op& op) {
  int yields = has_core_.value_or(false) ? 0 : kYields;
  if (yields == 0) {
    const Clock::time_point end = Clock::now() + (op.is_awaited ? kSpin : kSpinBeside);
    while (yields == 0 && Clock::now() < end) {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (awaited.HasReached(step)) return true;
        Pause();
      }
      // The scheduler has put both on one core; the other one cannot answer while we spin.
      if (SharesCpu(awaited) && !LeaveCpu()) yields = kYields;
    }
  }
  for (int i = 0; i < yields; ++i) {
    sched_yield();
    if (awaited.HasReached(step)) return true;
  }
  return false;
}

bool ShmDomain::LeaveCpu() {
  const Clock::time_point now = Clock::now();
  if (now < next_move_) return false;
  next_move_ = now + kBetweenMoves;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t free = allowed;
  for (int i = 0; i < size(); ++i) {
    const int cpu = i == index_ ? -1 : lines(i).arrived.cpu.load(std::memory_order_relaxed);
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(static_cast<size_t>(cpu), &free);
  }
  if (CPU_COUNT(&free) == 0) return false;
  // The narrow mask makes the kernel move the thread now; afterwards it is as free as before.
  const bool has_moved = sched_setaffinity(0, sizeof free, &free) == 0;
  sched_setaffinity(0, sizeof allowed, &allowed);
  return has_moved;
}

absl::Status ShmDomain::AwaitSlowly(int index, uint32_t step, const Op& op, bool is_arrival) {
  Flag& awaited = flag(index, is_arrival);
  if (SpinFor(awaited, step, op)) return absl::OkStatus();
  while (!awaited.HasReached(step)) {
    absl::Status status = WhyHopeless(step, op, is_arrival);
    if (!status.ok()) return status;
    if (on_stuck_ && stuck_sequence_ != op.sequence && IsStuck(op)) {
      stuck_sequence_ = op.sequence;
      on_stuck_(op);
    }
    const std::chrono::nanoseconds left = op.deadline - Clock::now();
    Sleep(awaited, step,
          std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), kLongestSleep));
  }
  return absl::OkStatus();
}

absl::Status ShmDomain::WhyHopeless(uint32_t step, const Op& op, bool is_arrival) const {
  absl::Status failed = failure();
  if (!failed.ok()) return failed;
  std::vector<int> missing;
  std::vector<int> gone;
  for (int i = 0; i < size(); ++i) {
    // Presence first: a rank that did its part and then left has raised its flag before.
    const bool is_here = lines(i).presence.load(std::memory_order_acquire) == Presence::kHere;
    if (flag(i, is_arrival).HasReached(step)) continue;
    missing.push_back(ranks_[i]);
    if (!is_here) gone.push_back(i);
  }
  if (!gone.empty()) {
    // Who went because of another said so before it went: that word names the cause.
    failed = failure();
    if (!failed.ok()) return failed;
    return WithLeftPeer(
        absl::UnavailableError(absl::StrCat(Describe(op), " failed: ", NameGone(gone))),
        ranks_[static_cast<size_t>(gone[0])]);
  }
  if (missing.empty() || Clock::now() < op.deadline) return absl::OkStatus();
  const bool has_entered = !is_arrival || step != entered_step_.load(std::memory_order_relaxed);
  return absl::DeadlineExceededError(
      absl::StrCat(Describe(op), " timed out after ", NameDuration(op.timeout), ": ",
                   NameRanks(missing), has_entered ? " did not finish" : " did not arrive"));
}

std::string ShmDomain::NameGone(const std::vector<int>& indices) const {
  std::string text;
  for (int i : indices) {
    const bool is_dead = lines(i).presence.load(std::memory_order_relaxed) == Presence::kDead;
    absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", ranks_[i], " (pid ", PidOf(i), ")",
                    is_dead ? " died" : " has left the group");
  }
  return text;
}

void ShmDomain::Fail(const absl::Status& status) {
  {
    std::lock_guard lock(fail_mutex_);
    std::atomic<uint32_t>& failed_by = header().failed_by;
    if (has_told_failure_ || failed_by.load(std::memory_order_relaxed) != 0) return;
    has_told_failure_ = true;
    Failure& mine = lines(index_).failure;
    mine.code = static_cast<int32_t>(status.code());
    mine.left_peer = LeftPeerOf(status).value_or(-1);
    const std::string text(status.message());
    const size_t length = std::min(text.size(), Failure::kReasonBytes - 1);
    std::memcpy(mine.reason, text.data(), length);
    mine.reason[length] = '\0';
    uint32_t nobody = 0;
    const uint32_t me = static_cast<uint32_t>(index_) + 1;
    if (!failed_by.compare_exchange_strong(nobody, me, std::memory_order_acq_rel)) return;
  }
  WakeEverybody();
}

absl::Status ShmDomain::failure() const {
  const uint32_t who = header().failed_by.load(std::memory_order_acquire);
  if (who == 0) return absl::OkStatus();
  const Failure& told = lines(static_cast<int>(who) - 1).failure;
  absl::Status status(static_cast<absl::StatusCode>(told.code), told.reason);
  return told.left_peer < 0 ? status : WithLeftPeer(std::move(status), told.left_peer);
}

absl::Status ShmDomain::PeerError() const {
  absl::Status failed = failure();
  if (!failed.ok()) return failed;
  std::vector<int> dead;
  for (int i = 0; i < size(); ++i) {
    if (lines(i).presence.load(std::memory_order_acquire) == Presence::kDead) dead.push_back(i);
  }
  if (dead.empty()) return absl::OkStatus();
  failed = failure();  // as in WhyHopeless
  if (!failed.ok()) return failed;
  return WithLeftPeer(absl::UnavailableError(NameGone(dead)), ranks_[static_cast<size_t>(dead[0])]);
}

std::vector<int> ShmDomain::LateRanks() const {
  const uint32_t entered = entered_step_.load(std::memory_order_acquire);
  std::vector<int> late;
  for (int i = 0; i < size(); ++i) {
    if (i == index_ || flag(i, true).HasReached(entered)) continue;
    late.push_back(ranks_[static_cast<size_t>(i)]);
  }
  return late;
}

pid_t ShmDomain::ProcessOf(int rank) const {
  const auto place = std::ranges::find(ranks_, rank);
  return place == ranks_.end() ? 0 : PidOf(static_cast<int>(place - ranks_.begin()));
}

void ShmDomain::MarkGone(int index) {
  Presence here = Presence::kHere;
  if (lines(index).presence.compare_exchange_strong(here, Presence::kDead)) WakeEverybody();
}

void ShmDomain::SetPresence(int index, Presence presence) {
  lines(index).presence.store(presence, std::memory_order_seq_cst);
  WakeEverybody();
}

void ShmDomain::WakeEverybody() {
  for (int i = 0; i < size(); ++i) {
    WakeAll(lines(i).arrived);
    WakeAll(lines(i).finished);
  }
}

}  // namespace ddp::internal
