// Nodes that are bad: they leave, and their hosts are not let in again for a while.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

// How long workers may take to their end beside the check: longer than the default time to SIGKILL.
constexpr Duration kStopTime = std::chrono::seconds(35);

std::string Because(const std::string& line) {
  return line.empty() ? "" : absl::StrCat(": ", EscapeControl(line));
}

}  // namespace

std::string State::WhyBad(const NodeInfo& node) const {
  const HealthReport& report = node.health;
  switch (report.health) {
    case Health::kBad:
      return absl::StrCat("node ", NodeName(node), " is bad", Because(report.line));
    case Health::kUnknown:
      if (!policy.bad_nodes.refuses_unknown) return "";
      return absl::StrCat("node ", NodeName(node), " counts as bad: its check had no result",
                          Because(report.line));
    case Health::kUnchecked:
    case Health::kHealthy:
      return "";
  }
  return "";
}

bool State::TurnAway(TimePoint now, const NodeJoined& event) {
  // Its workers live: it is judged when they have ended.
  if (event.held) return false;
  const NodeInfo& node = event.node;
  std::string why = WhyBad(node);
  const BadNodeList::Entry* known = bad_nodes.Find(node.host, now);
  if (why.empty() && known == nullptr) return false;
  if (node.is_endpoint_node || HasCoordinator(node.host)) {
    Admit(now, event);
    if (why.empty()) why = known->why;
    EndWithCoordinator(now, why);
    return true;
  }
  const SessionId session = event.stamp.session;
  if (const Member* member = members.Find(node.id); member != nullptr) {
    if (member->is_connected && member->session != session) {
      actions.push_back(CloseSession{member->session});
    }
    RemoveNode(now, node.id, why.empty() ? known->why : why, Departure::kBad);
  } else if (phase == Phase::kReadopting && IsThisRound(event.stamp)) {
    // The round that is taken over cannot be whole any more.
    gone[node.id] = why.empty() ? known->why : why;
    DrainRound(now, DrainCause::kLoss, gone[node.id]);
  }
  if (known == nullptr) {
    actions.push_back(Refuse{.session = session, .kind = Refusal::kBadNode, .message = why});
    // Who waits hears it once: of a node of the last round as of one that is gone.
    const bool is_news = Quarantine(now, node.host, why) && !gone.contains(node.id);
    if (is_news && phase == Phase::kOpen) NoteRefusal(node, why);
    return true;
  }
  const std::string left = DurationText(known->until - now);
  why = absl::StrCat("host ", node.host, " is in quarantine for ", left, " more: ", known->why);
  if (phase == Phase::kOpen) NoteRefusal(node, why);
  actions.push_back(
      Refuse{.session = session, .kind = Refusal::kBadNode, .message = std::move(why)});
  return true;
}

bool State::Quarantine(TimePoint now, const std::string& host, const std::string& why) {
  const int most = policy.bad_nodes.max_bad_nodes;
  if (bad_nodes.count() >= most) {
    // The host is not told to the site: the check is the likelier culprit.
    CloseJob(now, {.exit_code = kRendezvousExitCode,
                   .reason = absl::StrCat(why, "; --max-bad-nodes=", most,
                                          " allows no more: look at the health check, or raise "
                                          "--max-bad-nodes")});
    return false;
  }
  bad_nodes.Add(host, why, now + policy.bad_nodes.quarantine);
  actions.push_back(TellSite{.host = host, .reason = why});
  WriteRecord();
  // Other agents of that host; those that run workers are turned away when they come back.
  std::vector<NodeId> waiting;
  for (const auto& [id, member] : members.members()) {
    if (member.info.host == host && member.standing == Standing::kWaiting) waiting.push_back(id);
  }
  for (const NodeId& id : waiting) TakeOut(now, id, why);
  return true;
}

void State::TakeOut(TimePoint now, const NodeId& id, const std::string& why) {
  const Member& member = *members.Find(id);
  if (member.is_connected) {
    actions.push_back(Refuse{.session = member.session, .kind = Refusal::kBadNode, .message = why});
  }
  RemoveNode(now, id, why, Departure::kBad);
}

void State::EndWithCoordinator(TimePoint now, const std::string& why) {
  const char* what =
      policy.max_nodes == 1
          ? ""
          : "; the coordinator runs there, so the job ends: "
            "use another --rdzv-endpoint, or run the coordinator apart (ddprun coordinator)";
  CloseJob(now, {.exit_code = kBadNodeExitCode, .reason = absl::StrCat(why, what)});
}

bool State::HasCoordinator(const std::string& host) const {
  return std::ranges::any_of(members.members(), [&](const auto& entry) {
    return entry.second.info.is_endpoint_node && entry.second.info.host == host;
  });
}

void State::On(TimePoint now, const HealthChecked& event) {
  Member* member = Hear(now, event.stamp);
  if (member == nullptr || phase == Phase::kClosed) return;
  member->info.health = event.report;
  const std::string why = WhyBad(member->info);
  if (why.empty()) return;
  if (HasCoordinator(member->info.host)) return EndWithCoordinator(now, why);
  const std::string host = member->info.host;
  const NodeId id = member->info.id;
  TakeOut(now, id, why);
  if (bad_nodes.Find(host, now) == nullptr) Quarantine(now, host, why);
}

Duration State::LongestCheck() const { return policy.bad_nodes.check_timeout + kStopTime; }

bool State::AwaitsHealth(TimePoint now) const {
  if (!policy.bad_nodes.has_check || !first_failure.has_value() || IsStartedOnce()) return false;
  return now < health_awaited_until && MayMoreBeReported();
}

bool State::TakeOutForFailures(TimePoint now) {
  const BadNodeRules& rules = policy.bad_nodes;
  if (!rules.max_failures || IsStartedOnce()) return false;
  const DatedFailure& cause = Cause();
  const std::string host = cause.report.host;
  if (host.empty() || bad_nodes.Find(host, now) != nullptr) return false;
  const int failures = bad_nodes.CountFailure(host, round, rules.failure_rounds);
  // A restart there is better than the end of the job.
  if (failures <= *rules.max_failures || HasCoordinator(host)) return false;
  const std::string why =
      absl::StrCat("node ", host, " is bad: in ", failures, " of the last ",
                   Counted(rules.failure_rounds, "round"),
                   " its workers failed first (--max-node-failures=", *rules.max_failures, ":",
                   rules.failure_rounds, "), now ", FailureText(cause.report));
  last_failure = FactOf(cause);
  ForgetFailures();
  drain_cause = DrainCause::kLoss;
  is_preemption = false;
  drain_reason = why;
  Quarantine(now, host, why);
  return true;
}

std::string State::BadHostsText(TimePoint now) const {
  std::string text;
  for (const auto& [host, entry] : bad_nodes.hosts()) {
    if (entry.until <= now) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", entry.why, " (quarantine for ",
                    DurationText(entry.until - now), " more)");
  }
  return text;
}

}  // namespace ddprun::rendezvous
