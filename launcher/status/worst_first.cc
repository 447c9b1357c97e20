#include "launcher/status/worst_first.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace ddprun::launcher {
namespace {

constexpr double kSlowFactor = 1.2;
constexpr size_t kNoProblem = std::numeric_limits<size_t>::max();

// What the ranks are measured by.
struct Measures {
  std::map<int, size_t> problem_of;      // by rank: the first that names it
  std::map<uint64_t, uint64_t> awaited;  // by group: the operation in which ranks wait
  std::optional<int64_t> furthest_step;
  double median_self_s = 0;  // 0: unknown
};

void AddProblems(const std::vector<Problem>& problems, size_t& index, Measures& out) {
  for (const Problem& problem : problems) {
    for (const int rank : problem.ranks) out.problem_of.emplace(rank, index);
    ++index;
  }
}

Measures MeasuresOf(const JobView& job) {
  Measures out;
  size_t problems = 0;
  AddProblems(job.problems, problems, out);
  std::vector<double> self;
  for (const NodeView& node : job.nodes) {
    AddProblems(node.problems, problems, out);
    for (const RankView& rank : node.ranks) {
      if (rank.step)
        out.furthest_step = std::max(out.furthest_step.value_or(*rank.step), *rank.step);
      if (rank.self_s && *rank.self_s > 0) self.push_back(*rank.self_s);
      for (const GroupView& group : rank.groups) {
        if (!(group.waiting_s >= kNotableWait_s)) continue;
        uint64_t& oldest = out.awaited[group.key];
        oldest = std::max(oldest, group.done + 1);
      }
    }
  }
  if (!self.empty()) {
    const auto middle = self.begin() + static_cast<std::ptrdiff_t>(self.size() / 2);
    std::nth_element(self.begin(), middle, self.end());
    out.median_self_s = *middle;
  }
  return out;
}

// In the order of their weight, each less for a worse rank.
struct Standing {
  size_t problem = kNoProblem;
  bool is_well = true;
  bool is_ahead = true;                                  // nobody waits for it
  uint64_t near = std::numeric_limits<uint64_t>::max();  // the less, the further behind
  double not_waiting_s = 0;
  double not_slow_s = 0;

  auto Key() const { return std::tie(problem, is_well, is_ahead, near, not_waiting_s, not_slow_s); }
};

Standing StandingOf(const RankView& rank, const Measures& by) {
  Standing out;
  if (const auto found = by.problem_of.find(rank.rank); found != by.problem_of.end()) {
    out.problem = found->second;
  }
  out.is_well = !HasFailed(rank);
  for (const GroupView& group : rank.groups) {
    const auto found = by.awaited.find(group.key);
    if (found != by.awaited.end() && group.called < found->second) out.is_ahead = false;
    if (group.waiting_s >= kNotableWait_s) {
      out.not_waiting_s = std::min(out.not_waiting_s, -group.waiting_s);
    }
  }
  if (rank.step && by.furthest_step) {
    const uint64_t lag =
        static_cast<uint64_t>(*by.furthest_step) - static_cast<uint64_t>(*rank.step);
    if (lag > 1) out.near = std::numeric_limits<uint64_t>::max() - lag;
  }
  if (rank.self_s && by.median_self_s > 0 && *rank.self_s > by.median_self_s * kSlowFactor) {
    out.not_slow_s = -*rank.self_s;
  }
  return out;
}

}  // namespace

bool HasFailed(const RankView& rank) { return !rank.end.empty() && rank.end != "exit code 0"; }

const GroupView* MainGroup(const RankView& rank) {
  const GroupView* main = nullptr;
  for (const GroupView& group : rank.groups) {
    // The one that has waited longest; where none has, the one that was busy last.
    const auto key = [](const GroupView& of) {
      return std::pair(of.waiting_s >= kNotableWait_s ? -of.waiting_s : 0, of.quiet_s);
    };
    if (main == nullptr || key(group) < key(*main)) main = &group;
  }
  return main;
}

std::vector<RankPlace> WorstFirst(const JobView& job) {
  const Measures measures = MeasuresOf(job);
  struct Entry {
    RankPlace place;
    Standing standing;
    int rank = 0;
  };
  std::vector<Entry> entries;
  const Standing usual;
  for (size_t node = 0; node < job.nodes.size(); ++node) {
    const std::vector<RankView>& ranks = job.nodes[node].ranks;
    for (size_t index = 0; index < ranks.size(); ++index) {
      const Standing standing = StandingOf(ranks[index], measures);
      entries.push_back({.place = {.node = node,
                                   .index = index,
                                   .stands_out = standing.Key() != usual.Key(),
                                   .has_problem = standing.problem != kNoProblem},
                         .standing = standing,
                         .rank = ranks[index].rank});
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.standing.Key() != b.standing.Key()) return a.standing.Key() < b.standing.Key();
    return a.rank < b.rank;
  });
  std::vector<RankPlace> places;
  places.reserve(entries.size());
  for (const Entry& entry : entries) places.push_back(entry.place);
  return places;
}

}  // namespace ddprun::launcher
