// What one rank says of itself, stage after stage, and how that becomes facts of units. [pure]
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_REPORT_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include "launcher/check/check_plan.h"

namespace ddprun::launcher {

// Of one rank in one stage; 0 and "": not known, or not measured.
struct RankReport {
  int node = -1;  // -1: nothing was heard of the rank
  std::string host;
  std::string device;      // "CPU", "GPU 3"
  double pass_ms = 0;      // of a fixed piece of arithmetic
  double memory_gb_s = 0;  // copying within the host's memory
  double inside_gb_s = 0;  // all-reduce within the node
  double pair_gb_s = 0;    // all-reduce with another unit
  std::string fault;       // what happened to it by itself: it was killed, it hung
  std::string error;       // what it said; may be the consequence of another rank's fault
};

// Lines of a name and a value. What is not understood is left out, also other programs' lines.
std::string ReportText(const RankReport& report);
RankReport ParseReport(std::string_view text);

// One node or, in a job of one node, one rank.
struct UnitFacts {
  std::string name;  // "c", "2 (localhost)" where hosts are no names, "3" of a rank
  std::string device;
  double pass_ms = 0;  // the best of its slowest rank, as the others; 0: not known
  double memory_gb_s = 0;
  double inside_gb_s = 0;
  std::string broken;  // why it cannot work; empty: it can
};

struct CheckFacts {
  bool is_by_node = false;
  int ranks = 0;
  double tolerance = 1.5;  // how many times slower than the median is slow
  std::vector<UnitFacts> units;
  PairRounds rounds;
  std::vector<RankReport> best;  // of each rank, what it computed and copied at best so far
};

// The unit of each rank, by what the ranks said at their beginning. `nodes` is how many there are;
// where a rank said nothing its neighbours tell.
std::vector<int> UnitsOfRanks(const std::vector<RankReport>& here, int nodes);

// The units after each rank was on its own. REQUIRES: as many of `alone` as of `here`.
CheckFacts FactsOf(const std::vector<RankReport>& here, const std::vector<RankReport>& alone,
                   int nodes, double tolerance);

// Adds a round, also what the ranks computed and copied beside it. A rank's fault breaks its unit;
// an error is the pair's.
void AddRound(const std::vector<UnitPair>& pairs, const std::vector<RankReport>& reports,
              const std::vector<int>& units_of_ranks, CheckFacts& facts);

// Those that can still take part.
std::vector<int> WorkingUnits(const CheckFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_REPORT_H_
