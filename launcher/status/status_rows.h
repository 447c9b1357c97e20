// What is said of ranks, nodes and the job, for both forms on a terminal: status and top. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_STATUS_ROWS_H_
#define DDPRUN_LAUNCHER_STATUS_STATUS_ROWS_H_

#include <string>
#include <vector>

#include "launcher/status/snapshot.h"
#include "launcher/status/text_table.h"
#include "launcher/status/worst_first.h"

namespace ddprun::launcher {

// Beyond this age a view is old: the nodes tell of themselves every second.
inline constexpr double kOldView_s = 3;

// "host-1"; the id where no host is known.
std::string NodeLabel(const NodeView& node);
// "host-1 (as of 12 s ago)": with the age where it is old.
std::string NodeLabelWithAge(const NodeView& node);
// What is unusual about a node: what it waits for, kills for want of memory; empty: nothing.
std::string NodeNote(const NodeView& node);

// The job's sentence; its state where nobody judged it.
std::string JobSentence(const JobView& job);
// "hang: ranks 0-1 wait ...": those of the job, then those of nodes that the job's do not have.
std::vector<std::string> ProblemLines(const JobView& job);
// "no answer from host-9, host-10 and 3 nodes more"; empty: all have answered.
std::string SilentLine(const JobView& job);
// "round 2 (rank 3 failed): detect 350 ms, stop 1.2 s, ...": where the time of the newest round's
// beginning went; empty: unknown.
std::string RoundLine(const JobView& job);
// The first fault, and under it at most `max_last_lines` of its last lines; nothing: there is none.
std::vector<std::string> FaultLines(const JobView& job, size_t max_last_lines);

// The columns of the table of ranks.
std::vector<TableColumn> RankColumns();
// The cells of one; without the node's where `has_node` is false, without the last line where it is
// not to be shown.
std::vector<Cell> RankCells(const JobView& job, const RankPlace& place, bool has_node,
                            bool shows_last_line);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_STATUS_ROWS_H_
