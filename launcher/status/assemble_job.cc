#include "launcher/status/assemble_job.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "launcher/status/snapshot_json.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

// Of more ranks they would be most of what is sent each second.
constexpr size_t kMaxRanksWithBuckets = 512;

double SecondsBetween(TimePoint from, TimePoint to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

// The coordinator knows which was first; of its own ranks the node knows what they wrote.
void AddFailure(const rendezvous::FailureFact& failure, TimePoint now, JobView& job) {
  if (const std::optional<FaultView>& own = job.first_fault) {
    const bool is_same = own->round == failure.round.value && own->rank == failure.rank;
    if (is_same || own->round > failure.round.value) return;
  }
  job.first_fault = FaultView{.rank = failure.rank,
                              .host = EscapeControl(failure.host),
                              .text = EscapeControl(failure.text),
                              .last_lines = "",
                              .round = failure.round.value,
                              .age_s = SecondsBetween(failure.at, now)};
}

bool RunsRanks(const JobView& job) {
  return std::any_of(job.nodes.begin(), job.nodes.end(), [](const NodeView& node) {
    return std::any_of(node.ranks.begin(), node.ranks.end(),
                       [](const RankView& rank) { return rank.state == "running"; });
  });
}

void AddFacts(const rendezvous::JobFacts& facts, TimePoint now, JobView& job) {
  if (facts.run_id.empty()) return;  // the coordinator knows no job yet
  if (job.run_id.empty()) job.run_id = facts.run_id;
  job.min_nodes = facts.min_nodes;
  job.max_nodes = facts.max_nodes;
  job.restart_count = facts.restart_count;
  job.max_restarts = facts.max_restarts;
  if (facts.round.value != 0) {
    if (facts.round.value != job.round) job.round_over_s.reset();
    job.round = facts.round.value;
    job.node_count = facts.node_count;
    job.world_size = facts.world_size;
  }
  // The coordinator has told a verdict that has not reached the nodes of these ranks yet.
  const std::string phase = facts.phase == "ended" && RunsRanks(job) ? "stopping" : facts.phase;
  // A spare forms nothing.
  if (phase != "running" || job.state == "forming") job.state = phase;
  if (job.state.empty()) job.state = phase;
  if (!facts.waiting_for.empty()) job.waiting_for = EscapeControl(facts.waiting_for);
  job.gone_nodes = EscapeControl(facts.gone);
  job.bad_nodes = facts.bad_nodes;
  job.bad_hosts = EscapeControl(facts.bad_hosts);
  if (facts.deadline) job.waiting_left_s = SecondsBetween(now, *facts.deadline);
  if (facts.failure) AddFailure(*facts.failure, now, job);
}

void DropBucketsOfMany(JobView& job) {
  size_t ranks = 0;
  for (const NodeView& node : job.nodes) ranks += node.ranks.size();
  if (ranks <= kMaxRanksWithBuckets) return;
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      rank.backward_s.reset();
      rank.buckets.clear();
    }
  }
}

}  // namespace

void HidePrivate(NodeView& node) {
  for (RankView& rank : node.ranks) {
    rank.last_line.clear();
    rank.last_line_age_s.reset();
  }
}

void HidePrivate(JobView& job) {
  job.program.clear();
  if (job.first_fault) job.first_fault->last_lines.clear();
  for (NodeView& node : job.nodes) HidePrivate(node);
}

void EndFirstFailed(JobView& job) {
  if (!job.first_fault || job.first_fault->round != job.round || job.state == "running") return;
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      const bool is_it = rank.rank == job.first_fault->rank && node.age_s > 0;
      if (!is_it || rank.state != "running") continue;
      rank.state = "ended";
      rank.end = job.first_fault->text;
    }
  }
}

JobView AssembleJob(JobView job, const rendezvous::GiveAnswers& answers, TimePoint now) {
  std::set<std::string> known;  // of thousands of nodes
  for (const NodeView& node : job.nodes) known.insert(node.id);
  for (const rendezvous::NodeAnswer& answer : answers.answers) {
    if (!known.insert(answer.node.value).second) continue;
    absl::StatusOr<NodeView> node = ParseNodeJson(answer.body);
    if (!node.ok()) {
      job.silent_nodes.push_back(EscapeControl(answer.host));
      continue;
    }
    // What it says of itself was so when it said it; the rest is for whoever looks.
    node->age_s = 0;
    node->name.clear();
    node->id = EscapeControl(answer.node.value);
    node->host = EscapeControl(answer.host);
    job.up_s = std::max(job.up_s, node->up_s);
    job.nodes.push_back(*std::move(node));
  }
  for (const std::string& host : answers.silent) job.silent_nodes.push_back(EscapeControl(host));
  std::stable_sort(job.nodes.begin(), job.nodes.end(), [](const NodeView& a, const NodeView& b) {
    const auto place = [](const NodeView& node) {
      return node.node_rank < 0 ? std::numeric_limits<int>::max() : node.node_rank;
    };
    return place(a) < place(b);
  });
  DropBucketsOfMany(job);
  if (answers.is_last) AddFacts(answers.facts, now, job);
  return job;
}

}  // namespace ddprun::launcher
