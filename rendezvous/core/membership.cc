#include "rendezvous/core/membership.h"

#include <algorithm>

#include "rendezvous/base/check.h"

namespace ddprun::rendezvous {
namespace {

// Beats come every second, or thrice in evict_after where that is sooner.
constexpr Duration kLongestQuiet = std::chrono::seconds(3);
// What an agent may take for the loss of its coordinator: it looks for it anew.
constexpr Duration kLongQuiet = std::chrono::seconds(2);

bool CanBeSilent(const Member& member) {
  return !(member.is_connected && member.source_addr.empty());
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
  if (member.is_connected) by_session_.erase(member.session);
  by_session_[session] = id;
  member.info = event.node;
  member.session = session;
  member.is_connected = true;
  member.source_addr = event.source_addr;
  member.accepted_addr = event.accepted_addr;
  member.joined_with = event.stamp;
  member.awaited_until.reset();
  Hear(member, now);
  member.told_topic.clear();
  member.told_deadline.reset();
  return member;
}

Member* Membership::BreakSession(SessionId session, TimePoint now) {
  Member* member = FindBySession(session);
  if (member == nullptr) return nullptr;
  // A node of this process sends no beats: its silence begins here.
  if (!CanBeSilent(*member)) Hear(*member, now);
  by_session_.erase(session);
  member->is_connected = false;
  member->suspect_since = now;
  return member;
}

void Membership::Hear(Member& member, TimePoint now) {
  // The network has just come back, and some nodes take longer than others to do so, too. A quiet
  // of a few late beats has broken no link.
  const bool was_long = is_cut_off_ || last_word_ + kLongQuiet < now;
  if (is_cut_off_ || IsQuiet(now)) GrantAmnesty(now, was_long ? return_time() : evict_after_);
  member.last_heard = std::max(member.last_heard, now);
  last_word_ = now;
}

bool Membership::IsQuiet(TimePoint now) const {
  return last_word_ + std::min(kLongestQuiet, evict_after_ / 2) < now;
}

std::optional<TimePoint> Membership::CutOffSince() const {
  if (!is_cut_off_) return std::nullopt;
  return last_word_;
}

void Membership::Remove(const NodeId& id) {
  const auto it = members_.find(id);
  if (it == members_.end()) return;
  if (it->second.is_connected) by_session_.erase(it->second.session);
  members_.erase(it);
  if (members_.empty()) is_cut_off_ = false;
}

void Membership::GrantAmnesty(TimePoint now, Duration time) {
  is_cut_off_ = false;
  amnesty_until_ = now + time;
  for (auto& [id, member] : members_) {
    member.last_heard = std::max(member.last_heard, amnesty_until_ - evict_after_);
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
    const TimePoint expiry = member.last_heard + evict_after_;
    if (expiry <= now) {
      expired.push_back(id);
    } else {
      next_scan_ = std::min(next_scan_, expiry);
    }
  }
  if (!expired.empty() && !has_own_node && IsQuiet(now)) is_cut_off_ = true;
  if (is_cut_off_) expired.clear();
  return expired;
}

std::optional<TimePoint> Membership::NextExpiry() const {
  if (members_.empty()) return std::nullopt;
  return next_scan_;
}

}  // namespace ddprun::rendezvous
