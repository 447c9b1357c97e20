#include "launcher/status/rank_index.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "launcher/status/judge_words.h"

namespace ddprun::launcher {
namespace {

// More than any job has; what another node says is not counted up to any further.
constexpr int kMaxRanks = 1 << 20;

}  // namespace

RankIndex::RankIndex(const JobView& job, Duration silent_after) {
  // A rank beyond the round's is what is left of a larger one.
  const int limit = job.world_size > 0 ? std::min(job.world_size, kMaxRanks) : kMaxRanks;
  size_t in_round = 0;
  for (const NodeView& node : job.nodes) {
    if (node.node_rank >= 0) ++in_round;
    const double age_s = SaneSeconds(node.age_s);
    for (const RankView& rank : node.ranks) {
      if (rank.rank < 0 || rank.rank >= limit) continue;
      ranks_.push_back({.view = &rank,
                        .node = &node,
                        .age_s = age_s,
                        .is_silent = age_s >= SecondsOf(silent_after)});
    }
  }
  has_many_nodes_ = std::max(in_round, static_cast<size_t>(std::max(0, job.node_count))) > 1;
  const auto is_before = [](const SeenRank& a, const SeenRank& b) {
    if (a.view->rank != b.view->rank) return a.view->rank < b.view->rank;
    return a.age_s < b.age_s;
  };
  if (!std::is_sorted(ranks_.begin(), ranks_.end(), is_before)) {
    std::stable_sort(ranks_.begin(), ranks_.end(), is_before);
  }
  const auto is_same = [](const SeenRank& a, const SeenRank& b) {
    return a.view->rank == b.view->rank;
  };
  ranks_.erase(std::unique(ranks_.begin(), ranks_.end(), is_same), ranks_.end());

  // Without the round's size there is no telling who is missing.
  world_size_ = job.world_size > 0 ? limit : static_cast<int>(ranks_.size());
  size_t at = 0;
  for (int rank = 0; job.world_size > 0 && rank < world_size_; ++rank) {
    if (at < ranks_.size() && ranks_[at].view->rank == rank) {
      ++at;
    } else {
      unseen_.push_back(rank);
    }
  }
}

const SeenRank* RankIndex::Find(int rank) const {
  const auto at =
      std::lower_bound(ranks_.begin(), ranks_.end(), rank,
                       [](const SeenRank& seen, int wanted) { return seen.view->rank < wanted; });
  return at != ranks_.end() && at->view->rank == rank ? &*at : nullptr;
}

std::string RankIndex::Named(const std::vector<int>& ranks) const {
  std::string out = SomeRanksText(ranks);
  if (!has_many_nodes_) return out;
  constexpr size_t kMaxNodes = 3;
  std::vector<std::string> names;
  for (const int rank : ranks) {
    const SeenRank* seen = Find(rank);
    if (seen == nullptr || seen->node->name.empty()) continue;
    if (std::find(names.begin(), names.end(), seen->node->name) != names.end()) continue;
    names.push_back(seen->node->name);
    if (names.size() > kMaxNodes) return out;
  }
  if (names.empty()) return out;
  return absl::StrCat(out, " (", ByCount(names.size(), "node ", "nodes "), SomeNamesText(names),
                      ")");
}

std::vector<int> StoppedOf(const RankIndex& index, const std::vector<int>& ranks) {
  std::vector<int> stopped;
  for (const int rank : ranks) {
    const SeenRank* seen = index.Find(rank);
    if (seen != nullptr && seen->is_stopped()) stopped.push_back(rank);
  }
  return stopped;
}

}  // namespace ddprun::launcher
