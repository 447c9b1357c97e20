// Where all ranks are, in one sentence: "3 of 4 ranks (0, 2-3) wait in ...". [pure]
#ifndef DDPRUN_LAUNCHER_DUMP_ROLL_CALL_H_
#define DDPRUN_LAUNCHER_DUMP_ROLL_CALL_H_

#include <string>
#include <vector>

#include "launcher/dump/stack_text.h"

namespace ddprun::launcher {

// The reason for ranks that are told as ended rather than not known.
inline constexpr char kHasEnded[] = "the process has ended";

// What a roll call needs of one rank; small, so that nodes may send it to each other.
struct RankStack {
  int rank = 0;
  std::string where;        // "in train_step (train.py:41)"; empty: not known
  std::string unknown_why;  // where `where` is empty: kHasEnded, "stack: not permitted"
  bool is_waiting = false;
  std::string stack;  // the main thread's frames, a line each, without addresses; empty: none
  friend bool operator==(const RankStack&, const RankStack&) = default;
};

// `where`, `is_waiting` and `stack` as the tool told them.
RankStack MakeRankStack(int rank, const Stack& stack);

// Ranks whose main threads stand at the same place, frame by frame.
struct RankGroup {
  std::vector<int> ranks;  // ascending
  std::string where;
  std::string unknown_why;
  bool is_waiting = false;
  std::string stack;
  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

// The largest group first, of equal ones that with the lowest rank; those of whom nothing is known
// last.
std::vector<RankGroup> GroupRanks(std::vector<RankStack> ranks);

// "0, 2-3"; of many pieces the first eight "and 120 more".  REQUIRES: ascending.
std::string RankListText(const std::vector<int>& ranks);

// "3 of 4 ranks (0, 2-3) wait in X; rank 1 is in Y". At most four places are named,
// however many ranks there are. Empty: there are no ranks.
std::string RollCallSentence(const std::vector<RankGroup>& groups);

// The sentence, and below it the stack of each group, once; at most `max_groups` of them.
std::string RollCallText(const std::vector<RankGroup>& groups, size_t max_groups = 32);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_ROLL_CALL_H_
