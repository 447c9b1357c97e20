// Tells a hang in a collective from ranks that wait for a good reason. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_HANG_WATCH_H_
#define DDPRUN_LAUNCHER_STATUS_HANG_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/group_waits.h"
#include "launcher/status/hang_words.h"
#include "launcher/status/judge_policy.h"
#include "launcher/status/rank_index.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct HangsSeen {
  std::vector<Problem> problems;    // one a hang
  std::string waiting_line;         // of the longest wait, hang or none
  std::vector<std::string> lines;   // hangs that began or ended since the look before
  std::optional<HangFound> hang{};  // the one that stands for longest
  // A wait without an excuse has lasted half of what makes it a hang, or waits for a second look.
  bool is_coming = false;
};

// Ranks hang that do not come to a collective for hang_timeout while others wait in it, and all of
// a group do whose collective does not end. What has to be so in two looks, and what excuses a rank
// (an evaluation, a checkpoint, its first step, progress elsewhere), see the .cc.
class HangWatch {
 public:
  explicit HangWatch(JudgePolicy policy) : policy_(policy) {}

  // REQUIRES: now never decreases.
  HangsSeen Look(TimePoint now, const RankIndex& ranks);
  // The round has ended, or the job: what hung is over, and is told to be.
  std::vector<std::string> Forget();

 private:
  struct Sight {
    TimePoint since;
    uint64_t number = 0;
    std::vector<int> to_blame;
    std::vector<GroupPlace> places;
  };
  struct Hang {
    uint64_t number = 0;
    std::string operation;
    double for_s = 0;
    bool is_named = true;  // all ranks that do not come are known
  };
  struct Verdict {
    bool is_hang = false;
    std::vector<int> excused{};
    Excuse why{};
    bool is_coming = false;
  };

  void See(TimePoint now, const std::vector<GroupWait>& waits, const std::vector<Holdup>& holdups);
  bool IsConfirmed(TimePoint now, const GroupWait& wait) const;
  Verdict Judge(const RankIndex& ranks, const std::vector<GroupWait>& waits, const Holdup& holdup,
                bool is_told) const;
  Verdict JudgeLate(const RankIndex& ranks, const GroupWait& wait, const Holdup& holdup,
                    bool is_told) const;
  bool IsPatientWith(const SeenRank& rank, double waiting_s) const;
  // Hangs that have been told of and are not at their chain's end any more.
  void AddLinks(const RankIndex& ranks, const std::vector<GroupWait>& waits,
                const std::vector<Holdup>& holdups, std::map<uint64_t, Hang>& hangs,
                HangsSeen& seen) const;
  // What was told of and is not among `hangs`.
  void TellOver(const std::map<uint64_t, Hang>& hangs, HangsSeen& seen) const;
  bool MayRestart(const RankIndex& ranks, const GroupWait& wait, const Holdup& holdup) const;

  const JudgePolicy policy_;
  std::map<uint64_t, Sight> sights_;  // by the group's key
  std::map<uint64_t, Hang> hangs_;    // likewise: those that have been told
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_HANG_WATCH_H_
