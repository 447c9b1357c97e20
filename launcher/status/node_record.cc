#include "launcher/status/node_record.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

double SecondsBetween(TimePoint from, TimePoint to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

// Of what a worker wrote last, for a report that travels.
constexpr size_t kMaxLastLines = 2000;

std::string JobState(const std::string& agent) {
  if (agent == "joining") return "forming";
  if (agent == "preparing") return "starting";
  if (agent == "succeeded") return "running";
  if (agent == "leaving") return "ended";
  return agent;
}

// The end of `text`, each line made harmless.
std::string LastLines(std::string_view text) {
  if (text.size() > kMaxLastLines) text.remove_prefix(text.size() - kMaxLastLines);
  std::string lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", EscapeControl(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

void NodeRecord::Note(TimePoint now, const AgentEvent& event) {
  now_ = now;
  std::visit([this](const auto& e) { NoteEvent(e); }, event);
}

void NodeRecord::Note(TimePoint now, const AgentAction& action) {
  now_ = now;
  std::visit([this](const auto& a) { NoteAction(a); }, action);
}

void NodeRecord::WorkerRuns(TimePoint now, int local_rank, int pid) {
  workers_[local_rank] = {.pid = pid, .started_at = now};
  if (!rounds_.empty()) rounds_.back().exec_s = SecondsBetween(rounds_.back().assigned_at, now);
}

void NodeRecord::NoteEvent(const rendezvous::Waiting& event) {
  waiting_for_ = event.reason;
  waiting_until_ = event.deadline;
}

void NodeRecord::NoteEvent(const rendezvous::Assigned&) { EndWait(); }

void NodeRecord::NoteEvent(const rendezvous::Drained& event) {
  if (!event.reason.empty()) reason_ = event.reason;
}

void NodeRecord::NoteEvent(const rendezvous::Concluded& event) {
  has_verdict_ = true;
  if (state_ == "joining") state_ = "stopping";  // no round any more
  EndWait();
  const rendezvous::Verdict& verdict = event.verdict;
  if (verdict.exit_code == 0 && state_ == "succeeded") return WaitForWhatIsLeft();
  if (verdict.first_failure) return NoteFault(*verdict.first_failure, assignment_.round.value);
  if (verdict.exit_code == rendezvous::kRendezvousExitCode) gone_nodes_ = verdict.reason;
}

void NodeRecord::NoteEvent(const rendezvous::ContactMade& event) {
  hosts_coordinator_ = event.is_hosted_here;
  coordinator_place_ = EscapeControl(event.place);
  contact_lost_.clear();
}

void NodeRecord::NoteEvent(const rendezvous::ContactLost& event) {
  // This node's own, which it has ended itself: it leaves the job. Where etcd does not renew the
  // lease it has to, and the workers go on.
  const bool goes_on = state_ == "preparing" || state_ == "running" || state_ == "succeeded";
  if (hosts_coordinator_ && (event.is_gone || !goes_on)) return;
  contact_lost_ =
      absl::StrCat(hosts_coordinator_ ? "this node's coordinator" : "the coordinator",
                   coordinator_place_.empty() ? "" : absl::StrCat(" at ", coordinator_place_),
                   hosts_coordinator_ ? " has stopped (" : " is out of reach (", event.reason, ")");
  if (event.is_gone && assignment_.round.value != 0 && assignment_.coordinator_is_member) {
    gone_node_ = absl::StrCat("node ", assignment_.coordinator_node,
                              " is lost: the coordinator's process there is gone");
  }
}

void NodeRecord::NoteEvent(const rendezvous::ContactRestored&) { contact_lost_.clear(); }

void NodeRecord::NoteEvent(const WorkerEnd& end) {
  // Its start may have failed: then it has not run, and has lived for no time.
  const auto entry =
      workers_.try_emplace(end.local_rank, Worker{.pid = end.pid, .started_at = end.at}).first;
  Worker& worker = entry->second;
  worker.ended_at = end.at;
  worker.end = end.message.empty() ? absl::StrCat("exit code ", end.exit_code) : end.message;
  const bool is_failure = end.exit_code != 0 && !end.was_told_to_stop;
  if (is_failure && !failed_at_ && !stopping_at_) failed_at_ = end.at;
}

void NodeRecord::NoteEvent(const FailureDescribed& event) {
  if (fault_ && fault_->view.round == event.assignment.round.value) return;
  NoteFault(event.report, event.assignment.round.value);
  if (reason_.empty()) {
    reason_ =
        absl::StrCat("rank ", event.report.rank, " failed: ", rendezvous::CauseText(event.report));
  }
}

void NodeRecord::NoteEvent(const HangJudged& event) {
  NoteFault(event.report, assignment_.round.value);
}

void NodeRecord::NoteFault(const rendezvous::FailureReport& report, uint64_t round) {
  fault_ = Fault{{.rank = report.rank,
                  .host = report.host,
                  .text = EscapeControl(rendezvous::CauseText(report)),
                  .last_lines = LastLines(report.stderr_tail),
                  .round = round},
                 now_};
}

void NodeRecord::NoteEvent(const WorkersGone&) {
  if (stopping_at_) stop_s_ = SecondsBetween(*stopping_at_, now_);
}

void NodeRecord::NoteAction(const JoinRound&) {
  state_ = "joining";
  joined_at_ = now_;
}

void NodeRecord::NoteAction(const PrepareWorkers& action) {
  if (std::exchange(is_stop_of_round_, false)) stop_asked_.clear();
  state_ = "preparing";
  if (reason_.empty()) reason_ = gone_node_;
  gone_node_.clear();
  // What failed on this node failed because another one was gone.
  const bool is_charged = action.assignment.restart_count > assignment_.restart_count;
  if (fault_ && fault_->view.round == assignment_.round.value && !is_charged) fault_.reset();
  assignment_ = action.assignment;
  workers_.clear();
  // What was said when the round began to end may have been too early to be the cause.
  if (!assignment_.restart_reason.empty()) reason_ = assignment_.restart_reason;
  Round round{.number = assignment_.round.value,
              .reason = std::exchange(reason_, ""),
              .assigned_at = now_,
              .detect_s = std::exchange(detect_s_, std::nullopt),
              .stop_s = std::exchange(stop_s_, std::nullopt)};
  if (joined_at_) round.rendezvous_s = SecondsBetween(*joined_at_, now_);
  rounds_.push_back(std::move(round));
  if (rounds_.size() > kMaxRounds) rounds_.pop_front();
  failed_at_.reset();
  stopping_at_.reset();
}

void NodeRecord::NoteAction(const StartWorkers&) { state_ = "running"; }

void NodeRecord::NoteAction(const StopWorkers&) {
  state_ = "stopping";
  stopping_at_ = now_;
  EndWait();
  if (failed_at_) detect_s_ = SecondsBetween(*failed_at_, now_);
}

void NodeRecord::NoteAction(const AskToStop& action) {
  stop_asked_ =
      absl::StrCat("waiting for ranks that are to save and end (", EscapeControl(action.why), ")");
  is_stop_of_round_ = action.is_to_scale_up;
}

// Where nothing is left this node leaves in the same moment.
void NodeRecord::WaitForWhatIsLeft() {
  waiting_for_ = "all ranks have succeeded, waiting for what they left";
  if (part_.keep_children == Duration{0}) return;
  absl::StrAppend(&waiting_for_, " (--keep-children)");
  TimePoint last = TimePoint::min();
  for (const auto& [local_rank, worker] : workers_) {
    last = std::max(last, worker.ended_at.value_or(now_));
  }
  if (!workers_.empty()) waiting_until_ = last + part_.keep_children;
}

void NodeRecord::EndWait() {
  waiting_for_.clear();
  waiting_until_.reset();
}

std::string NodeRecord::WaitingFor() const {
  return contact_lost_.empty() ? waiting_for_ : contact_lost_;
}

void NodeRecord::Fill(TimePoint now, NodeView& view) const {
  view.id = part_.node_id;
  view.host = part_.host;
  view.node_rank = assignment_.round.value == 0 ? -1 : assignment_.node_rank;
  view.state = state_;
  view.hosts_coordinator = hosts_coordinator_;
  view.up_s = SecondsBetween(began_at_, now);
  view.waiting_for = WaitingFor();
  if (view.waiting_for.empty() && state_ == "running") view.waiting_for = stop_asked_;
  if (waiting_until_) view.waiting_left_s = SecondsBetween(now, *waiting_until_);
  view.gone_node = EscapeControl(gone_node_);
  if (health_.health != rendezvous::Health::kUnchecked) {
    view.health = HealthName(health_.health);
    view.health_line = health_.line;
  }
  for (const auto& [local_rank, worker] : workers_) {
    RankView rank;
    rank.rank = assignment_.first_rank + local_rank;
    rank.local_rank = local_rank;
    rank.pid = worker.pid;
    rank.state = worker.ended_at ? "ended" : "running";
    rank.end = EscapeControl(worker.end);
    rank.up_s = SecondsBetween(worker.started_at, worker.ended_at.value_or(now));
    view.ranks.push_back(std::move(rank));
  }
}

void NodeRecord::Fill(TimePoint now, bool show_private, JobView& view) const {
  view.run_id = part_.run_id;
  if (show_private) view.program = part_.program;
  view.state = JobState(state_);
  view.is_ending = has_verdict_;
  view.gone_nodes = EscapeControl(gone_nodes_);
  view.min_nodes = part_.min_nodes;
  view.max_nodes = part_.max_nodes;
  view.max_restarts = part_.max_restarts;
  view.up_s = SecondsBetween(began_at_, now);
  view.waiting_for = WaitingFor();
  if (waiting_until_) view.waiting_left_s = SecondsBetween(now, *waiting_until_);
  if (assignment_.round.value != 0) {
    view.round = assignment_.round.value;
    view.world_size = assignment_.world_size;
    view.node_count = assignment_.node_count;
    view.restart_count = assignment_.restart_count;
  }
  for (const Round& round : rounds_) {
    view.rounds.push_back({.round = round.number,
                           .reason = EscapeControl(round.reason),
                           .detect_s = round.detect_s,
                           .stop_s = round.stop_s,
                           .rendezvous_s = round.rendezvous_s,
                           .exec_s = round.exec_s,
                           .age_s = SecondsBetween(round.assigned_at, now)});
  }
  if (stopping_at_) view.round_over_s = SecondsBetween(*stopping_at_, now);
  if (!fault_) return;
  view.first_fault = fault_->view;
  view.first_fault->age_s = SecondsBetween(fault_->at, now);
  if (!show_private) view.first_fault->last_lines.clear();
}

}  // namespace ddprun::launcher
