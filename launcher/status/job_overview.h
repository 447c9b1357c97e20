// What is said of a job that has too many ranks to show each: how they spread, and its nodes.
// [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_JOB_OVERVIEW_H_
#define DDPRUN_LAUNCHER_STATUS_JOB_OVERVIEW_H_

#include <string>
#include <vector>

#include "launcher/status/snapshot.h"
#include "launcher/status/worst_first.h"

namespace ddprun::launcher {

// How the ranks spread over the steps, where they differ by more than one, else over the time that
// they take before they wait: a title and at most five lines, each of at most `columns`. Nothing
// where neither is known.
std::vector<std::string> SpreadLines(const JobView& job, int columns);

// One line a node, those with something unusual first, at most 20; the others are counted. A job of
// more than 20 nodes shows three of the usual ones.
std::vector<std::string> NodeLines(const JobView& job, const std::vector<RankPlace>& worst_first,
                                   int columns, bool allows_colours);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_JOB_OVERVIEW_H_
