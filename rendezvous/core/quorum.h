// Whether a round may be sealed, and why or why not. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_QUORUM_H_
#define DDPRUN_RENDEZVOUS_CORE_QUORUM_H_

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// A round that is being formed.
struct FormingRound {
  bool is_first = true;  // no round of this job has been sealed: nodes yet to come are unknown
  TimePoint opened_at;
  // Since when at least NodesNeeded() nodes have been ready without a break; empty: fewer are.
  std::optional<TimePoint> minimum_reached_at = {};
};

// The nodes that could be in it.
struct Candidates {
  int ready = 0;   // waiting and connected
  int absent = 0;  // live nodes of the job that are not ready: still stopping, or suspect
  std::vector<std::string> absent_names;  // at most kNamedNodes of them, in order of id
  int absent_members = 0;                 // of the absent, those of the last round
  std::optional<TimePoint> recount_at;    // when time alone makes one of them count no more
};
inline constexpr size_t kNamedNodes = 3;

struct QuorumVerdict {
  bool ready = false;
  std::string reason = {};                 // one sentence, for logs and waiting nodes
  std::optional<TimePoint> retry_at = {};  // when time alone could change the answer
  bool is_countdown = false;               // how long it is until then belongs to the sentence
};

// How many ready nodes a round needs: min_nodes; all of them where ranks are given (`static`).
int NodesNeeded(const Policy& policy);

Candidates CountCandidates(const Membership& members, TimePoint now, Round last_round);

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

#endif  // DDPRUN_RENDEZVOUS_CORE_QUORUM_H_
