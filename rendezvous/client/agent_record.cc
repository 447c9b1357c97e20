#include "rendezvous/client/agent_record.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

namespace ddprun::rendezvous {

void AgentRecord::Join(const NodeInfo& node) {
  // A failure of the round that no answer has followed may have gone down with its session: it
  // stays in front of the new join, under the old one, or the round would end uncharged.
  const bool is_failure_unanswered = is_assigned() && !is_drained_ && failures_ > 0;
  if (!is_failure_unanswered) DropFactsBefore(facts_.size());
  is_waiting_ = true;
  last_join_ = facts_.size();
  NodeJoined joined;
  joined.node = node;
  joined.policy = policy_;
  facts_.push_back({std::move(joined)});
}

void AgentRecord::Report(Round round, Event fact, TimePoint at) {
  if (!is_assigned() || round != assignment_.round) return;
  if (std::holds_alternative<WorkersFailed>(fact) && ++failures_ > kMaxFailures) return;
  facts_.push_back({std::move(fact), at});
}

void AgentRecord::Leave(const std::string& reason, bool is_by_signal) {
  if (facts_.empty()) return;
  facts_.push_back({NodeLeft{.stamp = {}, .reason = reason, .is_by_signal = is_by_signal}});
}

void AgentRecord::AckVerdict() {
  if (is_over_) facts_.push_back({VerdictAcked{}});
}

void AgentRecord::NoteHealth(const HealthReport& report) {
  if (facts_.empty() || !is_waiting_) return;
  std::get<NodeJoined>(facts_[last_join_].event).node.health = report;
}

void AgentRecord::OrderStop(StopHow how, const std::string& reason) {
  const bool is_news = !stop_order_ || stop_order_->how < how;
  if (facts_.empty() || !is_news) return;
  stop_order_ = StopOrdered{.stamp = {}, .how = how, .reason = reason};
  is_stop_unsaid_ = true;
}

void AgentRecord::DropFactsBefore(size_t first) {
  facts_.erase(facts_.begin(), facts_.begin() + static_cast<ptrdiff_t>(first));
  said_ -= std::min(said_, first);
  last_join_ -= std::min(last_join_, first);
  failures_ = 0;
}

std::optional<Event> AgentRecord::NextToSay(TimePoint now) {
  if (said_ > last_join_ && std::exchange(is_stop_unsaid_, false)) {
    StopOrdered order = *stop_order_;
    order.stamp = stamp();
    return order;
  }
  if (said_ == facts_.size()) return std::nullopt;
  const size_t index = said_++;
  const Fact& fact = facts_[index];
  Event event = fact.event;
  // A join that another one follows was granted a place: its workers lived then.
  const bool is_of_round = is_assigned() || index < last_join_;
  const Stamp said_under = is_of_round ? adopted_stamp() : stamp();
  if (auto* joined = std::get_if<NodeJoined>(&event)) {
    if (is_of_round) joined->held = assignment_;
    if (said_under.instance == assignment_.instance) {
      joined->restart_count = assignment_.restart_count;
      joined->max_restarts = assignment_.max_restarts;
    }
  }
  const Duration age = std::max(Duration{0}, Duration(now - fact.at));
  std::visit(
      [&said_under, age](auto& any) {
        if constexpr (requires { any.age; }) any.age = age;
        if constexpr (requires { any.stamp; }) any.stamp = said_under;
      },
      event);
  return event;
}

std::optional<RendezvousEvent> AgentRecord::HearOne(const JobInstance& instance,
                                                    const TellWaiting& action) {
  if (!is_waiting_) return std::nullopt;
  joined_instance_ = instance;
  return Waiting{action.reason, action.deadline};
}

std::optional<RendezvousEvent> AgentRecord::HearOne(const JobInstance&, const Assign& action) {
  const Assignment& assignment = action.assignment;
  // Epochs and rounds of two jobs say nothing of each other.
  const bool is_newer =
      assignment.instance != assignment_.instance ||
      std::tie(assignment.epoch, assignment.round) > std::tie(assignment_.epoch, assignment_.round);
  if (!is_waiting_ || !is_newer) return std::nullopt;
  assignment_ = assignment;
  joined_instance_ = assignment.instance;
  is_waiting_ = false;
  is_drained_ = false;
  DropFactsBefore(last_join_);
  return Assigned{assignment};
}

std::optional<RendezvousEvent> AgentRecord::HearOne(const JobInstance& instance,
                                                    const Drain& drain) {
  if (instance != assignment_.instance || drain.epoch < assignment_.epoch ||
      drain.round != assignment_.round) {
    return std::nullopt;
  }
  if (is_waiting_) DropFactsBefore(last_join_);  // the failure has arrived
  if (assignment_.round.value == 0) return std::nullopt;
  // Also when the agent has joined again before it heard: this is where the reason stands.
  if (std::exchange(is_drained_, true)) return std::nullopt;  // told again
  return Drained{drain.round, drain.reason, drain.is_cause_wanted};
}

std::optional<RendezvousEvent> AgentRecord::HearOne(const JobInstance& instance,
                                                    const TellToStop& told) {
  const bool is_of_round = is_assigned() && instance == assignment_.instance &&
                           told.epoch == assignment_.epoch && told.round == assignment_.round;
  if (told.is_to_scale_up && !is_of_round) return std::nullopt;
  return StopRequested{told.reason, told.is_to_scale_up};
}

std::optional<RendezvousEvent> AgentRecord::HearOne(const JobInstance& instance,
                                                    const Conclude& conclude) {
  const bool is_same_job = instance == assignment_.instance;
  if (is_assigned() && !is_same_job) return std::nullopt;
  if (is_same_job && conclude.epoch < assignment_.epoch) return std::nullopt;
  is_over_ = true;
  return Concluded{conclude.verdict};
}

std::optional<RendezvousEvent> AgentRecord::HearOne(const JobInstance&, const Refuse& refuse) {
  if (refuse.kind == Refusal::kFinal) {
    is_over_ = true;
    return RendezvousFailed{refuse.message};
  }
  if (refuse.kind == Refusal::kBadNode) {
    is_over_ = true;
    return RendezvousFailed{refuse.message, RendezvousFailed::Kind::kBadNode};
  }
  // Another job answers where this node's coordinator was: what this node still had to say of that
  // one's round is of no use here. What it means for the contact is the core's to say.
  stop_order_.reset();
  is_stop_unsaid_ = false;
  if (is_waiting_) DropFactsBefore(last_join_);
  return std::nullopt;
}

std::optional<RendezvousEvent> AgentRecord::Hear(const JobInstance& instance,
                                                 const Action& action) {
  if (is_over_) return std::nullopt;
  return std::visit([&](const auto& any) { return HearOne(instance, any); }, action);
}

}  // namespace ddprun::rendezvous
