#include "tests/sim/sim_workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSigAbrt = 6;
constexpr int kSigKill = 9;

}  // namespace

TimePoint RoundBook::Join(RoundKey round, SimWorkers& workers) {
  const auto [it, is_new] = rounds_.try_emplace(round);
  if (is_new) it->second.done_at = timeline_.now() + scenario_.work;
  it->second.nodes.push_back(&workers);
  return it->second.done_at;
}

void RoundBook::PeerEnded(RoundKey round, int rank) {
  for (SimWorkers* workers : rounds_[round].nodes) workers->Follow(round, rank);
}

void RoundBook::AskToStop(RoundKey round, Duration step) {
  if (std::exchange(rounds_[round].is_asked, true)) return;
  timeline_.After(step, [this, round] {
    Entry& entry = rounds_[round];
    if (entry.has_end) return;
    entry.has_stopped = true;
    entry.done_at = timeline_.now();
    for (SimWorkers* workers : entry.nodes) workers->SaveAndEnd(round);
  });
}

SimWorkers::SimWorkers(const Scenario& scenario, Timeline& timeline, Trace& trace, RoundBook& book,
                       AgentKey key, Handler handler)
    : scenario_(scenario),
      timeline_(timeline),
      trace_(trace),
      book_(book),
      key_(key),
      handler_(std::move(handler)),
      random_(Mix(scenario.seed, 3, static_cast<uint64_t>(key.node * 1000 + key.life))) {}

void SimWorkers::Start(const rendezvous::Assignment& assignment) {
  assignment_ = assignment;
  const size_t count =
      static_cast<size_t>(scenario_.nodes[static_cast<size_t>(key_.node)].local_world_size);
  workers_.assign(count, Worker{});
  living_ = static_cast<int>(count);
  const TimePoint done_at = book_.Join(KeyOf(assignment), *this);
  has_read_stop_ = book_.has_stopped(KeyOf(assignment));
  const EndCause cause = has_read_stop_ ? EndCause::kScaleUp : EndCause::kSuccess;
  for (size_t local_rank = 0; local_rank < count; ++local_rank) {
    workers_[local_rank] = {.is_alive = true, .was_stopped = false, .pid = ++pids_};
    trace_.WorkerStarted(key_, assignment, static_cast<int>(local_rank));
    const TimePoint own_end =
        std::max(done_at + random_.Between(Duration{0}, scenario_.skew),
                 timeline_.now() + random_.Between(Duration(milliseconds(10)), milliseconds(200)));
    Later(local_rank, own_end - timeline_.now(), [this, local_rank, cause] {
      if (workers_[local_rank].is_ending || (has_read_stop_ && cause == EndCause::kSuccess)) return;
      End(local_rank, 0, 0, cause, std::nullopt);
    });
  }
}

void SimWorkers::Later(size_t local_rank, Duration delay, std::function<void()> what) {
  const int pid = workers_[local_rank].pid;
  timeline_.After(delay, [this, local_rank, pid, what = std::move(what)] {
    if (workers_[local_rank].pid == pid && workers_[local_rank].is_alive) what();
  });
}

void SimWorkers::Stop(int signal, Duration grace) {
  const bool is_stubborn = scenario_.nodes[static_cast<size_t>(key_.node)].is_stubborn;
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    if (!workers_[local_rank].is_alive) continue;
    workers_[local_rank].was_stopped = true;
    const bool obeys = !is_stubborn && !random_.Chance(5);
    const Duration delay = obeys ? random_.Between(Duration{0}, milliseconds(50)) : grace;
    Later(local_rank, std::min(delay, grace), [this, local_rank, obeys, signal] {
      const int by = obeys ? signal : kSigKill;
      End(local_rank, 128 + by, by, EndCause::kStopped, std::nullopt);
    });
  }
}

void SimWorkers::EndAll(int signal) {
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    if (!workers_[local_rank].is_alive) continue;
    workers_[local_rank].was_stopped = true;
    End(local_rank, 128 + signal, signal, EndCause::kStopped, std::nullopt);
  }
}

std::set<int> SimWorkers::ending() const {
  std::set<int> local_ranks;
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    const Worker& worker = workers_[local_rank];
    if (worker.is_alive && worker.is_ending) local_ranks.insert(static_cast<int>(local_rank));
  }
  return local_ranks;
}

void SimWorkers::AskToStop() {
  if (!scenario_.polls_stop) return;
  book_.AskToStop(KeyOf(assignment_), random_.Between(Duration{0}, Duration(seconds(3))));
}

void SimWorkers::SaveAndEnd(RoundKey round) {
  if (living_ == 0 || KeyOf(assignment_) != round) return;
  has_read_stop_ = true;
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    if (!workers_[local_rank].is_alive) continue;
    Later(local_rank, random_.Between(Duration{0}, milliseconds(500)), [this, local_rank] {
      if (workers_[local_rank].is_ending) return;
      End(local_rank, 0, 0, EndCause::kScaleUp, std::nullopt);
    });
  }
}

void SimWorkers::KillNow() { EndAll(kSigKill); }

void SimWorkers::AgentDied() {
  const RoundKey round = KeyOf(assignment_);
  const bool had_living = has_living();
  EndAll(kSigKill);
  if (had_living) book_.PeerEnded(round, assignment_.first_rank);
}

void SimWorkers::Fail(int local_rank, int exit_code, int signal) {
  const size_t index = static_cast<size_t>(local_rank);
  if (index >= workers_.size() || !workers_[index].is_alive) return;
  const auto end = [this, index, exit_code, signal] {
    End(index, signal != 0 ? 128 + signal : exit_code, signal,
        exit_code == 0 && signal == 0 ? EndCause::kSuccess : EndCause::kOwn, std::nullopt);
  };
  if (scenario_.follows_by_abort && exit_code != 0 && signal == 0) {
    workers_[index].is_ending = true;
    Later(index, random_.Between(Duration{0}, milliseconds(500)), end);
  } else {
    end();
  }
  book_.PeerEnded(KeyOf(assignment_), assignment_.first_rank + local_rank);
}

void SimWorkers::Follow(RoundKey round, int peer) {
  if (living_ == 0 || KeyOf(assignment_) != round) return;
  for (size_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    if (!workers_[local_rank].is_alive || !random_.Chance(scenario_.follow_percent)) continue;
    const Duration delay = random_.Between(Duration(milliseconds(1)), scenario_.max_follow_delay);
    if (workers_[local_rank].is_ending) continue;
    const int signal = scenario_.follows_by_abort ? kSigAbrt : 0;
    Later(local_rank, delay, [this, local_rank, peer, signal] {
      End(local_rank, signal != 0 ? 128 + signal : 1, signal, EndCause::kFollowing, peer);
    });
  }
}

void SimWorkers::End(size_t local_rank, int exit_code, int signal, EndCause cause,
                     std::optional<int> peer) {
  Worker& worker = workers_[local_rank];
  worker.is_alive = false;
  --living_;
  book_.NoteEnd(KeyOf(assignment_));
  const bool was_stopped = worker.was_stopped;
  const int rank = assignment_.first_rank + static_cast<int>(local_rank);
  // One that is being stopped may still fail with a code of its own.
  const bool is_failure = exit_code != 0 && signal == 0;
  trace_.WorkerEnded(key_, KeyOf(assignment_), rank, exit_code,
                     was_stopped && !is_failure ? EndCause::kStopped : cause);
  launcher::WorkerEnd end{.local_rank = static_cast<int>(local_rank),
                          .pid = worker.pid,
                          .exit_code = exit_code,
                          .signal = signal,
                          .dumped_core = false,
                          .was_told_to_stop = was_stopped,
                          .message = absl::StrCat("code ", exit_code)};
  if (!scenario_.says_left_peer || cause != EndCause::kFollowing) peer.reset();
  noticed_at_ =
      std::max(noticed_at_, timeline_.now() + random_.Between(Duration{0}, milliseconds(5)));
  timeline_.At(noticed_at_, [this, end = std::move(end), peer] { handler_.ended(end, peer); });
  if (living_ == 0) {
    timeline_.At(noticed_at_, [this] { handler_.gone(); });
  }
}

}  // namespace ddprun::sim
