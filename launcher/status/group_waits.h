// Who waits for whom in the process groups of a job. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_GROUP_WAITS_H_
#define DDPRUN_LAUNCHER_STATUS_GROUP_WAITS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/rank_index.h"
#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// How far a rank is in a group.
struct GroupPlace {
  int rank = 0;
  uint64_t called = 0;
  uint64_t done = 0;
  friend bool operator==(const GroupPlace&, const GroupPlace&) = default;
};

// The lowest operation of one group in which ranks wait.
struct GroupWait {
  uint64_t key = 0;
  std::string group;    // its name; empty where the job has one group only
  std::string op;       // "all-reduce"; "operation" where no waiting rank can tell
  uint64_t number = 0;  // of the operation in the group, 1 for the first
  std::vector<int> waiting;
  // Members that have not come, or have ended within. Those that no node shows, too.
  std::vector<int> late;
  int unknown_late = 0;         // members that have not come, and which rank they are is not known
  double asked_s = 0;           // how old the oldest word of a member is (GroupView::asked_s)
  bool is_partly_done = false;  // for some of its members it has ended
  double waiting_s = 0;         // of whoever waits longest
  double late_s = 0;            // as long is known of all of `late` that are heard of that they are
  std::vector<GroupPlace> places;  // of all members: what must not change from look to look
};

// By key. Only waits of a second and more: shorter ones are every job's daily bread. How long a
// rank waits is counted from its last sign of progress elsewhere, if that came later: an operation
// that nobody waits for, or the slot of a group that was given up, keeps nobody from training.
std::vector<GroupWait> FindGroupWaits(const RankIndex& ranks);

// How long the rank has shown no progress: its groups' counts and its step stand as long.
std::optional<double> StillSeconds(const RankView& rank);

// What holds ranks up, at the end of the chain: rank A waits for B, which waits elsewhere for C.
struct Holdup {
  size_t wait = 0;            // index of the wait at the chain's end, in what FindGroupWaits gave
  std::vector<int> to_blame;  // late there and waiting nowhere; empty: all have come
  std::vector<int> waiting;   // all that wait for it, on whatever way
  std::vector<size_t> ends;   // `wait`, and others for the same ranks
  bool is_cycle = false;      // the ranks of `ends` wait for each other, each in another group
};

// The longest wait first.
std::vector<Holdup> FindHoldups(const std::vector<GroupWait>& waits);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_GROUP_WAITS_H_
