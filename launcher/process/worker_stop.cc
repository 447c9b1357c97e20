#include "launcher/process/worker_stop.h"

#include <algorithm>
#include <utility>

namespace ddprun::launcher {
namespace {

// Linux's numbers; <csignal> is no header for pure code.
constexpr int kSigInt = 2;
constexpr int kSigQuit = 3;
constexpr int kSigKill = 9;
constexpr int kSigTerm = 15;
constexpr int kSigCont = 18;

}  // namespace

WorkerStop::Order WorkerStop::Tell(TimePoint now, int signal, Duration grace, bool has_it) {
  if (is_killed_) return {};
  kill_at_ = std::min(kill_at_, now + grace);
  group_at_ = std::min(group_at_, now + grace / 2);
  if (std::exchange(signal_, signal) == signal) return {};
  if (has_it && !has_leader_ended_) return {Receiver::kGroup, kSigCont};  // if it is stopped
  if (has_leader_ended_ || signal == kSigInt || signal == kSigQuit) return ToGroup(signal);
  is_leader_told_ = true;
  return {Receiver::kLeader, signal};
}

WorkerStop::Order WorkerStop::LeaderEnded(TimePoint now, Duration grace, Duration patience) {
  has_leader_ended_ = true;
  if (is_killed_) return {Receiver::kGroup, kSigKill};  // what it has started since
  if (signal_ != 0) return is_group_told_ ? Order{} : ToGroup(kSigTerm);
  if (patience == Duration{0}) return Tell(now, kSigTerm, grace);
  group_at_ = now + patience;
  kill_at_ = group_at_ + grace;
  return {};
}

WorkerStop::Order WorkerStop::Kill() {
  is_killed_ = true;
  return {Receiver::kGroup, kSigKill};
}

WorkerStop::Order WorkerStop::TimePassed(TimePoint now, bool has_program_it) {
  if (is_kill_due(now)) return Kill();
  if (next_at() > now) return {};
  if (is_leader_told_ && has_program_it) {
    group_at_ = kill_at_;
    return {};
  }
  if (signal_ == 0) signal_ = kSigTerm;  // of what a leader left that ended well
  if (!is_leader_told_) return ToGroup(kSigTerm);
  is_group_told_ = true;
  return {Receiver::kHelpers, kSigTerm};
}

WorkerStop::Order WorkerStop::ToGroup(int signal) {
  is_group_told_ = true;
  return {Receiver::kGroup, signal};
}

void WorkerStop::Postpone(Duration pause) {
  if (kill_at_ == kNever) return;
  group_at_ += pause;
  kill_at_ += pause;
}

TimePoint WorkerStop::next_at() const {
  if (is_killed_) return kNever;
  return is_group_told_ ? kill_at_ : group_at_;
}

}  // namespace ddprun::launcher
