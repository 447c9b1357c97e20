// Who may join, and who is refused by name.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/release.h"
#include "rendezvous/core/machine_state.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

namespace {

// Far above any node there is; keeps world sizes far from overflow.
constexpr int kMaxLocalWorldSize = 4096;
constexpr size_t kMaxRefusalText = 300;

std::string NnodesText(const Policy& policy) {
  if (policy.min_nodes == policy.max_nodes) return absl::StrCat("--nnodes=", policy.min_nodes);
  return absl::StrCat("--nnodes=", policy.min_nodes, ":", policy.max_nodes);
}

std::string RestartsText(const Policy& policy) {
  return absl::StrCat("--max-restarts=", policy.max_restarts);
}

// "--nnodes" of "--nnodes=2" and of "no --nnodes".
std::string OptionIn(const std::string& text) {
  const size_t begin = text.find("--");
  return text.substr(begin, text.find('=') - begin);
}

std::string LimitText(const char* option, const std::optional<int>& limit) {
  return limit ? absl::StrCat(option, "=", *limit) : absl::StrCat("no ", option);
}

std::string LimitText(const char* option, Duration limit) {
  const double seconds = std::chrono::duration<double>(limit).count();
  return limit == Duration{0} ? absl::StrCat("no ", option) : absl::StrCat(option, "=", seconds);
}

std::string NodeLossesText(const Policy& policy) {
  return LimitText("--max-node-losses", policy.limits.max_node_losses);
}

std::string PreemptionsText(const Policy& policy) {
  return LimitText("--max-preemptions", policy.limits.max_preemptions);
}

std::string BackoffText(const Policy& policy) {
  return LimitText("--restart-backoff", policy.limits.backoff);
}

std::string PeriodText(const Policy& policy) {
  return LimitText("--restart-budget-period", policy.limits.budget_period);
}

std::string SameFailureText(const Policy& policy) {
  const int ends_at = policy.limits.max_same_failure;
  return LimitText("--max-same-failures", ends_at == 0 ? std::nullopt : std::optional(ends_at - 1));
}

std::string HealthCheckText(const Policy& policy) {
  return policy.bad_nodes.has_check ? "--health-check" : "no --health-check";
}

std::string HealthTimeoutText(const Policy& policy) {
  return LimitText("--health-timeout", policy.bad_nodes.check_timeout);
}

std::string HealthUnknownText(const Policy& policy) {
  return policy.bad_nodes.refuses_unknown ? "--health-unknown=refuse" : "--health-unknown=admit";
}

std::string NodeFailuresText(const Policy& policy) {
  const BadNodeRules& rules = policy.bad_nodes;
  const std::string text = LimitText("--max-node-failures", rules.max_failures);
  return rules.max_failures ? absl::StrCat(text, ":", rules.failure_rounds) : text;
}

std::string QuarantineText(const Policy& policy) {
  return LimitText("--quarantine", policy.bad_nodes.quarantine);
}

std::string BadNodesText(const Policy& policy) {
  return absl::StrCat("--max-bad-nodes=", policy.bad_nodes.max_bad_nodes);
}

std::string ScaleUpText(const Policy& policy) {
  return absl::StrCat("--scale-up=", ScaleUpName(policy.scale_up));
}

std::string BackendText(const Policy& policy) {
  return policy.is_static ? "--rdzv-backend=static" : "--rdzv-backend=c10d";
}

}  // namespace

std::optional<Refuse> State::CheckAdmission(TimePoint now, const NodeJoined& event) const {
  const auto refuse = [&event](Refusal kind, std::string message) {
    return Refuse{.session = event.stamp.session, .kind = kind, .message = std::move(message)};
  };
  const NodeInfo& node = event.node;
  const Member* holder = members.FindBySession(event.stamp.session);
  if (holder != nullptr && holder->info.id != node.id) {
    return refuse(Refusal::kFinal,
                  absl::StrCat("this session already serves node ", NodeName(holder->info)));
  }
  if (std::string difference = FindDifference(event); !difference.empty()) {
    // A coordinator that was started again may have heard somebody else first: its mistake ends no
    // workers.
    return refuse(event.held ? Refusal::kOtherJob : Refusal::kFinal, std::move(difference));
  }
  if (node.local_world_size < 1 || node.local_world_size > kMaxLocalWorldSize) {
    return refuse(Refusal::kFinal,
                  absl::StrCat("node ", NodeName(node), " offers ", node.local_world_size,
                               " workers: 1 to ", kMaxLocalWorldSize, " are possible"));
  }
  // No instance is taken up whose epochs are made up.
  const bool may_take_up = !is_instance_settled && event.stamp.epoch.value < kClaimLimit;
  if (event.held && event.stamp.instance != instance && !may_take_up) {
    return refuse(Refusal::kOtherJob,
                  absl::StrCat("node ", NodeName(node), " runs workers of an earlier job \"",
                               policy.run_id, "\": the coordinator of that one is gone"));
  }
  if (std::string other = FindOtherCluster(node); !other.empty()) {
    return refuse(event.held ? Refusal::kOtherJob : Refusal::kFinal, std::move(other));
  }
  std::string wrong = FindFalseClaim(event);
  if (wrong.empty() && IsRankInDoubt(now, event)) {
    const Member& holder = *OtherOfRank(node);
    return refuse(
        Refusal::kRankHeld,
        absl::StrCat("--node-rank=", node.node_rank, " is held by node ", NodeName(holder.info),
                     ", which is not heard: it is free once that node is lost"));
  }
  if (wrong.empty()) wrong = FindTakenRank(event);
  if (wrong.empty()) wrong = FindOtherProgram(event);
  if (wrong.empty()) return std::nullopt;
  return refuse(Refusal::kFinal, std::move(wrong));
}

// A second job by chance: nobody has named either. One with the same program is a spare.
std::string State::FindOtherProgram(const NodeJoined& event) const {
  const bool is_surplus = phase == Phase::kSealed && !HasRoom() && !event.held &&
                          members.Find(event.node.id) == nullptr;
  if (!is_surplus || event.node.program == 0) return "";
  bool is_known = false;
  for (const auto& [id, seat] : seats) {
    const Member* member = members.Find(id);
    if (member == nullptr || member->info.program == 0) continue;
    // One that is cut off may be gone, and this node its successor with other arguments.
    if (!member->is_connected || member->info.program == event.node.program) return "";
    is_known = true;
  }
  if (!is_known) return "";
  return absl::StrCat("the job here runs another program, or with other arguments, on ",
                      Counted(static_cast<int>(seats.size()), "node"),
                      ", and takes no more; for a job of its own, give this one another "
                      "--rdzv-endpoint and an --rdzv-id");
}

std::string State::FindOtherRelease(const NodeInfo& node) {
  const Release ours = ThisRelease();
  if (Understand(node.release, ours)) return "";
  return absl::StrCat("node ", NodeName(node), " runs ", ReleaseText(node.release),
                      ", the coordinator ", ReleaseText(ours), ": ", kOneProtocol);
}

std::string State::FindDifference(const NodeJoined& event) const {
  const Policy& theirs = event.policy;
  const NodeInfo& node = event.node;
  if (!policy.run_id.empty() && theirs.run_id != policy.run_id) {
    return absl::StrCat("this coordinator serves the run \"", policy.run_id, "\", not \"",
                        theirs.run_id, "\" of node ", NodeName(node));
  }
  if (!has_policy) return "";
  // Not the static address: each node may spell it in its own way, and has come by it.
  for (const auto text :
       {NnodesText, RestartsText, SameFailureText, NodeLossesText, PreemptionsText, BackoffText,
        PeriodText, HealthCheckText, NodeFailuresText, HealthTimeoutText, HealthUnknownText,
        QuarantineText, BadNodesText, ScaleUpText, BackendText}) {
    const std::string own = text(theirs);
    const std::string ours = text(policy);
    if (own == ours) continue;
    return absl::StrCat("node ", NodeName(node), " was started with ", own, ", the job with ", ours,
                        ": all nodes need the same ", OptionIn(ours));
  }
  return "";
}

std::string State::FindOtherCluster(const NodeInfo& node) const {
  // All were silent for the evict time: this may be the next job on the same endpoint.
  if (members.CutOffSince().has_value()) return "";
  const ClusterPlace& place = node.cluster;
  const auto differ = [](const std::string& own, const std::string& ours) {
    return !own.empty() && !ours.empty() && own != ours;
  };
  const bool is_other_job = differ(place.job, cluster.job);
  if (is_other_job || differ(place.step, cluster.step)) {
    return absl::StrCat("node ", NodeName(node), " is of ", is_other_job ? place.job : place.step,
                        ", the nodes here of ", is_other_job ? cluster.job : cluster.step,
                        ": give each its own --rdzv-endpoint, or none, which is then derived");
  }
  const int count = static_cast<int>(members.members().size());
  if (place.step.empty() || place.nodes == 0 || count < place.nodes) return "";
  if (members.Find(node.id) != nullptr) return "";
  // A suspect may have died and this be its successor.
  const auto others = std::ranges::count_if(members.members(), [&](const auto& member) {
    return member.second.is_connected && member.second.info.cluster.step == place.step;
  });
  if (others < place.nodes) return "";
  return absl::StrCat(place.step, " has ", Counted(place.nodes, "node"),
                      " and more agents, one on ", "node ", NodeName(node),
                      " among them; expected one on a node, which starts ",
                      "that node's workers: srun --ntasks-per-node=1");
}

std::string State::FindFalseClaim(const NodeJoined& event) const {
  const Stamp& stamp = event.stamp;
  const bool is_nobodys = stamp.instance == instance && !MayBeGivenOut(stamp);
  const bool has_restarts = event.restart_count != 0 || event.max_restarts != 0;
  const bool is_of_nothing =
      ((event.held || has_restarts) && (stamp.round == Round{} || !stamp.instance.is_known())) ||
      event.restart_count > event.max_restarts ||
      (event.held && (event.held->epoch != stamp.epoch || event.held->round != stamp.round));
  if (is_nobodys || is_of_nothing) {
    return absl::StrCat("node ", NodeName(event.node), " claims round ", stamp.round.value,
                        " of epoch ", stamp.epoch.value,
                        ", which no coordinator of this job gave out");
  }
  const std::string contradiction = FindContradiction(event);
  if (contradiction.empty()) return "";
  return absl::StrCat("node ", NodeName(event.node), " claims a place in round ", stamp.round.value,
                      " that cannot be: ", contradiction);
}

bool State::MayBeGivenOut(const Stamp& stamp) const {
  if (stamp.epoch == own_epoch) return stamp.round <= (epoch == own_epoch ? round : Round{});
  // Nobody but us has given out any.
  if (!is_instance_inherited) return stamp.epoch == Epoch{} && stamp.round == Round{};
  // After a greater epoch there must be room: one claim must not take it from the honest ones.
  return stamp.epoch < own_epoch || stamp.epoch.value < kClaimLimit;
}

std::string State::FindTakenRank(const NodeJoined& event) const {
  const NodeInfo& node = event.node;
  const Policy& rules = PolicyFor(event);
  const std::string range = absl::StrCat("0..", rules.max_nodes - 1, " (", NnodesText(rules), ")");
  const std::string given =
      absl::StrCat("--node-rank=", node.node_rank, " of node ", NodeName(node));
  if (rules.is_static && (node.node_rank < 0 || node.node_rank >= rules.max_nodes)) {
    return absl::StrCat(given, " is not in ", range);
  }
  const Member* holder = OtherOfRank(node);
  if (holder == nullptr || (!holder->is_connected && holder->info.host == node.host)) return "";
  return absl::StrCat(given, " is held by node ", NodeName(holder->info),
                      ": each needs one of its own in ", range);
}

bool State::IsRankInDoubt(TimePoint now, const NodeJoined& event) const {
  // With workers it is no replacement: one of the two is wrong.
  if (event.held || FindTakenRank(event).empty()) return false;
  const Member* holder = OtherOfRank(event.node);
  return holder != nullptr && (!holder->is_connected || members.IsSilent(*holder, now));
}

const Member* State::OtherOfRank(const NodeInfo& node) const {
  if (node.node_rank < 0) return nullptr;
  for (const auto& [id, member] : members.members()) {
    if (id != node.id && member.info.node_rank == node.node_rank) return &member;
  }
  return nullptr;
}

bool State::AwaitsNodesOfStep() const {
  return !step_nodes.empty() && static_cast<int>(step_nodes.size()) < cluster.nodes;
}

void State::NoteNodeOfStep(const NodeInfo& node) {
  if (cluster.job.empty()) cluster.job = node.cluster.job;
  if (cluster.step.empty()) {
    cluster.step = node.cluster.step;
    cluster.nodes = node.cluster.nodes;
  }
  const bool is_of_step = !cluster.step.empty() && node.cluster.step == cluster.step;
  if (is_of_step && node.cluster.node >= 0) step_nodes.insert(node.cluster.node);
}

void State::NoteRefusal(const NodeInfo& node, const std::string& why) {
  std::erase_if(refused, [&](const RefusedNode& other) { return other.host == NodeName(node); });
  if (refused.size() == kNamedNodes) refused.erase(refused.begin());
  refused.push_back(
      {.host = NodeName(node), .why = why.substr(0, CharacterStart(why, kMaxRefusalText))});
  needs_review = true;
}

}  // namespace ddprun::rendezvous
