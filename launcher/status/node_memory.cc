#include "launcher/status/node_memory.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ddprun::launcher {
namespace {

double AgeOf(TimePoint at, TimePoint now) {
  return std::max(0.0, std::chrono::duration<double>(now - at).count());
}

}  // namespace

void NodeMemory::Recall(TimePoint now, bool is_cut_off, JobView& job) {
  // All others are silent where the coordinator is. Between two looks that lie far apart it may
  // have answered.
  if (!is_cut_off || now > looked_at_ + 2 * kQuietInterval) cut_off_since_.reset();
  looked_at_ = now;
  if (is_cut_off && !cut_off_since_) cut_off_since_ = now;
  // Before the others' words are in, its state is this node's: one that stops its workers may
  // have ended the coordinator that it hosted.
  if (is_cut_off && job.round > 0 && !job.is_ending && job.state != "stopping") {
    job.coordinator_silent_s = AgeOf(*cut_off_since_, now);
  }
  const std::set<std::string> silent(job.silent_nodes.begin(), job.silent_nodes.end());
  std::set<std::string> there;
  for (const NodeView& node : job.nodes) there.insert(node.id);
  for (const auto& [id, last] : nodes_) {
    const bool is_silent = is_cut_off || silent.contains(last.view.host);
    if (!is_silent || there.contains(id)) continue;
    job.nodes.push_back(last.view);
    job.nodes.back().age_s = AgeOf(last.at, now);
  }
  std::map<std::string, LastWord> heard;
  for (const NodeView& node : job.nodes) {
    heard[node.id] = node.age_s > 0 ? nodes_[node.id] : LastWord{node, now};
  }
  nodes_ = std::move(heard);
}

}  // namespace ddprun::launcher
