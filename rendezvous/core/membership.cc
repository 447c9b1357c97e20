#include "rendezvous/core/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/check.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

// A beat comes each second, of thousands of nodes each some seconds: beat_interval.
constexpr Duration kLongestQuiet = std::chrono::seconds(3);
// What an agent may take for the loss of its coordinator: it looks for it anew.
constexpr Duration kLongQuiet = std::chrono::seconds(2);

bool IsRemote(const Member& member) { return !member.source_addr.empty(); }

bool CanBeSilent(const Member& member) {
  return !member.is_connected || member.is_stuck || IsRemote(member);
}

// "2 nodes (min 2, max 4)"; where the number is fixed "1 of 2 nodes"; with more than there is room
// for "2 of 2 nodes and 1 spare".
std::string CountText(int ready, const Policy& policy) {
  const int spares = std::max(0, ready - policy.max_nodes);
  const std::string more = spares == 0 ? "" : absl::StrCat(" and ", Counted(spares, "spare"));
  if (NodesNeeded(policy) == policy.max_nodes) {
    return absl::StrCat(ready - spares, " of ", Counted(policy.max_nodes, "node"), more);
  }
  return absl::StrCat(Counted(ready - spares, "node"), more, " (min ", policy.min_nodes, ", max ",
                      policy.max_nodes, ")");
}

// "node b", "nodes b, c", "nodes b, c, d and 5 more".
std::string AbsentText(const Candidates& candidates) {
  const int unnamed = candidates.absent - static_cast<int>(candidates.absent_names.size());
  return absl::StrCat(candidates.absent == 1 ? "node " : "nodes ",
                      absl::StrJoin(candidates.absent_names, ", "),
                      unnamed > 0 ? absl::StrCat(" and ", unnamed, " more") : "");
}

}  // namespace

Member& Membership::Admit(const NodeJoined& event, TimePoint now) {
  const SessionId session = event.stamp.session;
  const NodeId& id = event.node.id;
  const auto bound = by_session_.find(session);
  DDP_CHECK(bound == by_session_.end() || bound->second == id);
  auto [it, is_new] = members_.try_emplace(id);
  Member& member = it->second;
  DDP_CHECK(is_new || session >= member.session);
  if (is_new) member.arrival = ++arrivals_;
  if (!is_new) Unname(member);
  ++named_[NodeName(event.node)];
  if (member.is_connected) by_session_.erase(member.session);
  by_session_[session] = id;
  member.info = event.node;
  member.session = session;
  member.is_connected = true;
  member.source_addr = event.source_addr;
  member.accepted_addr = event.accepted_addr;
  member.joined_with = event.stamp;
  member.closed_at.reset();
  Hear(member, now);
  member.told_topic.clear();
  member.told_deadline.reset();
  return member;
}

Member* Membership::BreakSession(const SessionBroken& event, TimePoint now) {
  Member* member = FindBySession(event.session);
  if (member == nullptr) return nullptr;
  // The silence of a node of this process begins here.
  if (!CanBeSilent(*member)) Hear(*member, now);
  by_session_.erase(event.session);
  member->is_connected = false;
  member->suspect_since = now;
  if (event.is_by_peer && now - member->last_heard <= kLongestQuiet) {
    member->closed_at = now;
    next_scan_ = std::min(next_scan_, now + closed_window());
  }
  return member;
}

void Membership::HearOfStranger(TimePoint now) {
  EndQuiet(now);
  last_word_ = last_word_from_elsewhere_ = now;
}

void Membership::EndQuiet(TimePoint now) {
  // The network has just come back, and some nodes take longer than others to do so, too. A quiet
  // of a few late beats has broken no link.
  const bool was_long = is_cut_off_ || last_word_ + kLongQuiet < now;
  // The very first word ends no quiet.
  const bool was_quiet = last_word_ != TimePoint::min() && IsQuiet(now);
  if (is_cut_off_ || was_quiet) ForgiveQuiet(now, was_long ? return_time() : evict_after_);
  if (!HasFreshWord(now)) {
    // Those that closed may have been kept from coming back like everybody else.
    for (auto& [id, other] : members_) {
      if (!other.closed_at.has_value()) continue;
      other.closed_at = now;
      next_scan_ = std::min(next_scan_, now + closed_window());
    }
  }
}

void Membership::Hear(Member& member, TimePoint now, bool is_stuck) {
  EndQuiet(now);
  member.is_stuck = is_stuck;
  if (is_stuck) {
    next_scan_ = std::min(next_scan_, member.last_heard + evict_after_);
  } else {
    member.last_heard = std::max(member.last_heard, now);
    member.last_word = member.heard_at = now;
  }
  last_word_ = now;
  if (IsRemote(member)) last_word_from_elsewhere_ = now;
}

// Three beats at least: what was said while this process was stopped is about to be heard.
Duration Membership::lonely_after() const {
  return std::min(evict_after_, std::max(evict_after_ / 2, kLongestQuiet));
}

bool Membership::HearsNobodyElsewhere(TimePoint now) const {
  if (now < last_word_from_elsewhere_ + lonely_after()) return false;
  return std::ranges::count_if(members_,
                               [](const auto& entry) { return IsRemote(entry.second); }) >= 2;
}

std::string NumberedName(const NodeInfo& node, int node_rank) {
  return absl::StrCat(NodeName(node), " (node ", node_rank, ")");
}

std::string Membership::NameOf(const Member& member) const {
  constexpr size_t kIdLength = 8;
  std::string name = NodeName(member.info);
  const auto named = named_.find(name);
  if (named == named_.end() || named->second < 2) return name;
  if (member.previous_rank >= 0) return NumberedName(member.info, member.previous_rank);
  return absl::StrCat(name, " (", member.info.id.value.substr(0, kIdLength), ")");
}

bool Membership::IsSilent(const Member& member, TimePoint now) const {
  return CanBeSilent(member) && member.last_word + 3 * beat_interval() <= now;
}

Duration Membership::quiet_after() const { return std::min(kLongestQuiet, evict_after_ / 2); }

bool Membership::IsQuiet(TimePoint now) const { return last_word_ + quiet_after() < now; }

void Membership::Unname(const Member& member) {
  const auto named = named_.find(NodeName(member.info));
  if (--named->second == 0) named_.erase(named);
}

void Membership::Remove(const NodeId& id) {
  const auto it = members_.find(id);
  if (it == members_.end()) return;
  if (it->second.is_connected) by_session_.erase(it->second.session);
  Unname(it->second);
  members_.erase(it);
  if (members_.empty()) is_cut_off_ = false;
}

void Membership::GrantAmnesty(TimePoint now, Duration time, Duration uncounted) {
  is_cut_off_ = false;
  amnesty_until_ = now + time;
  last_word_from_elsewhere_ = now;
  if (uncounted > Duration{0}) {
    if (uncounted_until_ > now - uncounted) uncounted = now - uncounted_until_;
    uncounted_until_ = now;
    uncounted_ += uncounted;
  }
  for (auto& [id, member] : members_) {
    member.last_word = std::min(now, member.last_word + uncounted);
    const TimePoint until = std::min(amnesty_until_, member.last_word + longest_silence());
    member.last_heard = std::max(member.last_heard, until - evict_after_);
  }
}

const Member* Membership::Find(const NodeId& id) const {
  const auto it = members_.find(id);
  return it == members_.end() ? nullptr : &it->second;
}

const Member* Membership::FindBySession(SessionId session) const {
  const auto it = by_session_.find(session);
  return it == by_session_.end() ? nullptr : Find(it->second);
}

TimePoint Membership::ExpiryOf(const Member& member, TimePoint now) const {
  const TimePoint silent_at = member.last_heard + evict_after_;
  if (!member.closed_at.has_value() || !HasFreshWord(now)) return silent_at;
  return std::min(silent_at, std::max(*member.closed_at + closed_window(), amnesty_until_));
}

std::vector<NodeId> Membership::Expired(TimePoint now) {
  std::vector<NodeId> expired;
  if (now < next_scan_) return expired;
  // Who joins later expires later than this, too.
  next_scan_ = now + evict_after_;
  bool has_own_node = false;
  for (const auto& [id, member] : members_) {
    if (!CanBeSilent(member)) {
      has_own_node = true;
      continue;
    }
    const TimePoint expiry = ExpiryOf(member, now);
    if (expiry <= now) {
      expired.push_back(id);
    } else {
      next_scan_ = std::min(next_scan_, expiry);
    }
  }
  if (!expired.empty() && IsQuiet(now)) {
    // A node of this very process is quiet where the process did not run, as little as its network
    // did: what the others said meanwhile is about to be heard.
    if (has_own_node) {
      ForgiveQuiet(now, evict_after_);
      std::erase_if(expired, [&](const NodeId& id) { return ExpiryOf(*Find(id), now) > now; });
    } else {
      is_cut_off_ = true;
    }
  }
  if (is_cut_off_) expired.clear();
  return expired;
}

int NodesNeeded(const Policy& policy) {
  return policy.is_static ? policy.max_nodes : policy.min_nodes;
}

Candidates CountCandidates(const Membership& members, TimePoint now, int needed) {
  Candidates candidates;
  int paused = 0;
  TimePoint awaited_until = TimePoint::min();
  for (const auto& [id, member] : members.members()) {
    if (member.standing == Standing::kWaiting && member.is_connected) {
      ++(IsReady(member, now, false) ? candidates.ready : paused);
      continue;
    }
    if (member.awaited_until.has_value()) {
      if (now >= *member.awaited_until) continue;
      candidates.recount_at =
          std::min(candidates.recount_at.value_or(TimePoint::max()), *member.awaited_until);
    }
    awaited_until = std::max(awaited_until, member.awaited_until.value_or(TimePoint::max()));
    ++candidates.absent;
    if (member.previous_rank >= 0) ++candidates.absent_members;
    if (candidates.absent_names.size() < kNamedNodes) {
      candidates.absent_names.push_back(members.NameOf(member));
    }
  }
  if (candidates.absent > 0) candidates.awaited_until = awaited_until;
  candidates.takes_paused = paused > 0 && candidates.ready < needed;
  if (candidates.takes_paused) candidates.ready += paused;
  return candidates;
}

QuorumVerdict DecideQuorum(TimePoint now, const FormingRound& round, const Candidates& candidates,
                           const Policy& policy) {
  DDP_CHECK(1 <= policy.min_nodes && policy.min_nodes <= policy.max_nodes);
  const std::string count = CountText(candidates.ready, policy);
  const TimePoint patience_ends = round.opened_at + policy.join_timeout;
  const bool is_patient = !round.is_first && now < patience_ends;
  if (candidates.ready >= policy.max_nodes && !(is_patient && candidates.absent_members > 0)) {
    return {.ready = true, .reason = absl::StrCat(count, ", complete")};
  }
  const int missing = NodesNeeded(policy) - candidates.ready;
  if (candidates.absent > 0 && (missing > 0 ? !round.is_first : is_patient)) {
    QuorumVerdict wait{
        .reason = absl::StrCat(count, ", waiting for ", AbsentText(candidates), " to join again")};
    if (missing <= 0) {
      wait.retry_at = wait.patience_ends = std::min(patience_ends, candidates.awaited_until);
    }
    return wait;
  }
  if (missing > 0) {
    // Who has met before has the right place.
    const std::string place = round.is_first ? policy.meeting_place : "";
    return {.reason = absl::StrCat(count, ", waiting for ", missing, " more",
                                   place.empty() ? "" : " at ", place)};
  }
  if (!round.is_first) {
    return {.ready = true,
            .reason = absl::StrCat(count, candidates.absent == 0 ? ", all that live" : "")};
  }
  const TimePoint until = round.minimum_reached_at.value_or(now) + policy.last_call;
  if (now >= until) return {.ready = true, .reason = absl::StrCat(count, ", last call over")};
  return {.reason = absl::StrCat(count, ", last call"), .retry_at = until, .is_countdown = true};
}

}  // namespace ddprun::rendezvous
