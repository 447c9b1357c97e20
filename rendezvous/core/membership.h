// Who is in the job: incarnations, sessions, and when each was last heard. Whether its members may
// form a round, and why or why not. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

enum class Standing {
  kWaiting,   // has joined, no worker lives there: may be given a place
  kRunning,   // holds a place in the sealed round
  kStopping,  // was told to stop the workers of an earlier round and has not joined again
};

struct Member {
  NodeInfo info;
  SessionId session;          // the newest; sessions of one node only grow
  bool is_connected = false;  // false: suspect, its session broke
  bool is_stuck = false;      // its newest beat says that its agent does not work
  std::string source_addr;    // empty: this very process
  std::string accepted_addr;
  Standing standing = Standing::kWaiting;
  int previous_rank = -1;  // node rank in the last round; -1: it had no place in it
  Stamp joined_with;       // the newest join's; its epoch and round count only within the job
  // The others wait for it to join again until then; empty: as long as they wait for anybody.
  std::optional<TimePoint> awaited_until;
  uint64_t arrival = 0;  // order of the first join, from 1
  // It came when the job had begun, and not for a place that it holds: the first time...
  std::optional<TimePoint> came_at;
  TimePoint paused_until;                // ...from when on it counts (ArrivalLog)
  std::optional<TimePoint> waits_since;  // beside the round that runs
  TimePoint last_heard;                  // or as if it had been, where its silence is forgiven
  TimePoint last_word;                   // later by what has not counted since: see GrantAmnesty
  TimePoint heard_at;                    // that word, by our clock
  TimePoint suspect_since;               // valid while !is_connected
  // Its end of the session closed while it was being heard: it is expected back from then on.
  std::optional<TimePoint> closed_at;
  // What the node was last told about its wait; empty: nothing on this session.
  std::string told_topic;
  std::optional<TimePoint> told_deadline;
};

// "gpu-07 (node 1)": one of several agents on that host.
std::string NumberedName(const NodeInfo& node, int node_rank);

// The nodes that have joined and neither left nor been silent for `evict_after`. A broken session
// makes a node suspect at once. One whose own end closed has 2 s to come back: a process that lives
// is back within a second, and only one that has died closes and stays away. What gRPC ends here
// because it hears nothing was silent for 5 s at least, so a session that ends while its node is
// heard was ended over there. A connected node of this very process is silent only if its
// agent does not work: else it can stop only with us.
//
// Where no node at all is heard for several beats, the network of this machine is the likelier
// culprit: nobody is evicted then, and when the first is heard again everybody's silence starts
// afresh, and after more than 2 s nobody expires within the time of a return. So it is with those
// 2 s, for which a beat and a half without a word is enough. But what is forgiven has a bound: a
// network or a process that is bad for ever must not keep a dead node in the job.
class Membership {
 public:
  // Ordered by id, so that every walk over it has the same order in every run.
  using Map = std::map<NodeId, Member>;

  // An agent whose connection broke looks for us at once, then every 250 ms; a lost packet costs
  // its connect a second.
  static constexpr Duration kReturnAfterClose = std::chrono::seconds(2);

  explicit Membership(Duration evict_after) : evict_after_(evict_after) {}

  // REQUIRES: there is no node.
  void SetEvictAfter(Duration evict_after) { evict_after_ = evict_after; }
  // Binds the session to the node, new or known, and counts as hearing it.
  // REQUIRES: the session is not older than the node's own and bound to no other node.
  Member& Admit(const NodeJoined& event, TimePoint now);
  // The node is suspect from now on. Null when no node has that session.
  Member* BreakSession(const SessionBroken& event, TimePoint now);
  void Remove(const NodeId& id);
  // `is_stuck`: its beat says that its agent does not work, so it is as silent as before.
  void Hear(Member& member, TimePoint now, bool is_stuck = false);
  // A node that is none of ours has come: the network works, so who is silent may be judged.
  void HearOfStranger(TimePoint now);
  // Nobody expires within `time`, as we were not listening. But of a node of which nothing was
  // heard for longest_silence() nothing is forgiven any more. The last `uncounted` of that time do
  // not count: in them we could hear nobody.
  void GrantAmnesty(TimePoint now, Duration time, Duration uncounted = Duration{0});

  // Null when unknown. Pointers stay valid until the node is removed.
  const Member* Find(const NodeId& id) const;
  const Member* FindBySession(SessionId session) const;
  Member* Find(const NodeId& id) { return const_cast<Member*>(std::as_const(*this).Find(id)); }
  Member* FindBySession(SessionId session) {
    return const_cast<Member*>(std::as_const(*this).FindBySession(session));
  }

  // What people call it: NodeName, and where that is another member's, too, what tells them apart:
  // "gpu-07 (node 1)", without a node rank "gpu-07 (b2f81c0a)", the beginning of its id.
  std::string NameOf(const Member& member) const;

  // Whether it has not been heard for three beats, whatever was forgiven.
  bool IsSilent(const Member& member, TimePoint now) const;
  // Whether no node has been heard for several beats.
  bool IsQuiet(TimePoint now) const;
  // Whether two or more nodes elsewhere are in the job, and none has been heard for half of the
  // evict time: this machine is cut off, and not all of them. A node of this process does not
  // count.
  bool HearsNobodyElsewhere(TimePoint now) const;
  Duration lonely_after() const;
  // From one beat of a node to its next: a second, of more than a thousand nodes a millisecond for
  // each, and in evict_after four at least.
  Duration beat_interval() const {
    const Duration of_all = static_cast<int64_t>(members_.size()) * kBeatOfEach;
    return std::min(std::max(kShortestBeat, of_all), evict_after_ / 4);
  }
  // How long a node may take to come back to a coordinator that was started or can be reached
  // again, where so many come at once, or all of ours.
  Duration return_time(int nodes) const {
    return std::max(evict_after_, kLongestReturn + Beyond(nodes) * kReturnOfEach);
  }
  Duration return_time() const { return return_time(static_cast<int>(members_.size())); }
  // A node that lives is heard within the first return time after the trouble. Where three were not
  // enough the trouble does not end, or the node is gone.
  Duration longest_silence() const { return 3 * return_time(); }
  // All time so far that does not count.
  Duration uncounted() const { return uncounted_; }
  // The last amnesty's end.
  TimePoint amnesty_until() const { return amnesty_until_; }
  // Since when no node has been heard, once that has cost the first its place; else empty.
  std::optional<TimePoint> CutOffSince() const {
    return is_cut_off_ ? std::optional(last_word_) : std::nullopt;
  }

  // Nodes silent for evict_after or longer while others were heard, and those that closed and have
  // not come back in time. Looks at every node only when time demands it.
  std::vector<NodeId> Expired(TimePoint now);
  // Not later than the moment at which Expired could first name a node.
  std::optional<TimePoint> NextExpiry() const {
    return members_.empty() ? std::nullopt : std::optional(next_scan_);
  }

  Map& members() { return members_; }
  const Map& members() const { return members_; }
  size_t session_count() const { return by_session_.size(); }

 private:
  // Before the member goes, or tells another name.
  void Unname(const Member& member);
  // A word has come: what a time without any has cost the others is forgiven.
  void EndQuiet(TimePoint now);
  // An agent that has just missed us: a look of 5 s, a pause of 2 s, and a message or two.
  static constexpr Duration kLongestReturn = std::chrono::seconds(8);
  // A beat costs the coordinator 0.15 ms of a CPU: with a thousand in a second that is little.
  static constexpr Duration kShortestBeat = std::chrono::seconds(1);
  static constexpr Duration kBeatOfEach = std::chrono::milliseconds(1);
  // Of thousands that come at once each takes a coordinator 5 ms: 19 s passed until 4,096 were back
  // (docs/internals/benchmark-scale.md). A thousand are back within the 8 s.
  static constexpr Duration kReturnOfEach = std::chrono::milliseconds(5);
  // Where something resets all connections, all come back at once: a thousand of them within a
  // second. With more each has a millisecond longer.
  static constexpr Duration kReturnOfEachClosed = std::chrono::milliseconds(1);
  static int64_t Beyond(int nodes) {
    constexpr int kReturningAtOnce = 1000;
    return std::max(0, nodes - kReturningAtOnce);
  }

  Duration closed_window() const {
    const int nodes = static_cast<int>(members_.size());
    return std::min(kReturnAfterClose + Beyond(nodes) * kReturnOfEachClosed, evict_after_);
  }
  // Whether a node was heard for less than a beat and a half before.
  bool HasFreshWord(TimePoint now) const {
    return last_word_ + std::min(kReturnAfterClose, evict_after_) * 3 / 4 >= now;
  }
  TimePoint ExpiryOf(const Member& member, TimePoint now) const;
  // How long nobody is heard before that is quiet.
  Duration quiet_after() const;
  void ForgiveQuiet(TimePoint now, Duration time) {
    GrantAmnesty(now, time, now - last_word_ - quiet_after());
  }

  Duration evict_after_;
  Map members_;
  std::map<std::string, int> named_;        // how many are called so
  std::map<SessionId, NodeId> by_session_;  // connected nodes only
  uint64_t arrivals_ = 0;
  TimePoint last_word_ = TimePoint::min();  // of any node
  TimePoint last_word_from_elsewhere_ = TimePoint::min();
  bool is_cut_off_ = false;
  TimePoint amnesty_until_ = TimePoint::min();
  Duration uncounted_{0};
  TimePoint uncounted_until_ = TimePoint::min();  // what was before is counted or uncounted already
  // A lower bound of every member's expiry: hearing a node only moves its expiry away.
  TimePoint next_scan_ = TimePoint::min();
};

// A round that is being formed.
struct FormingRound {
  bool is_first = true;  // no round of this job has been sealed: nodes yet to come are unknown
  TimePoint opened_at;
  // Since when at least NodesNeeded() nodes have been ready without a break; empty: fewer are.
  std::optional<TimePoint> minimum_reached_at = {};
};

// The nodes that could be in it.
struct Candidates {
  int ready = 0;  // waiting and connected, and not paused unless they are needed:
  bool takes_paused = false;
  int absent = 0;  // live nodes of the job that are not ready: still stopping, or suspect
  std::vector<std::string> absent_names;  // at most kNamedNodes of them, in order of id
  int absent_members = 0;                 // of the absent, those with a place in the last round
  std::optional<TimePoint> recount_at;    // when time alone makes one of them count no more...
  TimePoint awaited_until = TimePoint::max();  // ...and all of them
};
inline constexpr size_t kNamedNodes = 3;

struct QuorumVerdict {
  bool ready = false;
  std::string reason = {};                 // one sentence, for logs and waiting nodes
  std::optional<TimePoint> retry_at = {};  // when time alone could change the answer
  // Nodes that are to join again are waited for until then: it is ready without them.
  std::optional<TimePoint> patience_ends = {};
  bool is_countdown = false;  // how long it is until then belongs to the sentence
};

// How many ready nodes a round needs: min_nodes; all of them where ranks are given (`static`).
int NodesNeeded(const Policy& policy);

// A round that has fewer than `needed` without nodes that are paused takes those as well.
Candidates CountCandidates(const Membership& members, TimePoint now, int needed = 0);
// Whether the next round may have the node.
inline bool IsReady(const Member& member, TimePoint now, bool takes_paused) {
  return member.standing == Standing::kWaiting && member.is_connected &&
         (takes_paused || member.paused_until <= now);
}

// Decides whether the candidates can form a round at `now`.
//
// Ready at once with max_nodes, unless a node of the last round is still stopping its workers: a
// spare must not take its place. With fewer, a first round waits for last_call from the moment the
// minimum was first reached; later joins do not extend it: a trickle of nodes must not postpone
// the start for ever. A later round knows its nodes: it is ready as soon as every live one has
// joined again, and without those that have not after join_timeout (a node whose workers cannot be
// killed must not hold up the rest for ever).
// REQUIRES: 1 <= policy.min_nodes <= policy.max_nodes.
[[nodiscard]] QuorumVerdict DecideQuorum(TimePoint now, const FormingRound& round,
                                         const Candidates& candidates, const Policy& policy);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_H_
