"""The twenty-one faults that the simulator must find.

Each patch is (file, text that stands in it exactly once, text in its place). MUTANT is true while the
fault is switched on.
"""

SWITCH = "::ddprun::sim::IsMutant"
HEADER = "tests/sim/mutant.h"

CORE = "rendezvous/core/"
CLIENT = "rendezvous/client/"
ETCD = "rendezvous/etcd/"
AGENT = "launcher/agent/agent_core.cc"

MUTANTS = [
    {
        "name": "a host in quarantine is let in under another id",
        "patches": [(CORE + "machine_bad_nodes.cc",
                     "  const BadNodeList::Entry* known = bad_nodes.Find(node.host, now);\n",
                     "  const BadNodeList::Entry* known =\n"
                     "      MUTANT ? nullptr : bad_nodes.Find(node.host, now);\n")],
    },
    {
        "name": "a node that comes restarts the round at once",
        "patches": [(CORE + "machine_arrivals.cc",
                     "  const TimePoint called = is_full ? now",
                     "  const TimePoint called = is_full || MUTANT ? now")],
    },
    {
        "name": "workers that end to make room for a node end the job",
        "patches": [(CORE + "machine_round.cc",
                     "  if (HasStoppedToScaleUp()) {\n",
                     "  if (!MUTANT && HasStoppedToScaleUp()) {\n")],
    },
    {
        "name": "two nodes are given one rank",
        "patches": [(CORE + "machine_round.cc",
                     "    assignment.instance = instance;\n",
                     "    assignment.instance = instance;\n"
                     "    if (MUTANT && node_rank > 0) assignment.first_rank = 0;\n")],
    },
    {
        "name": "a round is sealed with one node too few",
        "patches": [(CORE + "membership.cc",
                     "  return policy.is_static ? policy.max_nodes : policy.min_nodes;\n",
                     "  const int needed = policy.is_static ? policy.max_nodes : policy.min_nodes;\n"
                     "  return MUTANT && needed > 1 ? needed - 1 : needed;\n")],
    },
    {
        "name": "nodes are evicted for a time in which the coordinator did not run",
        "patches": [(CORE + "rendezvous_machine.cc",
                     "in our queue.\n  members.GrantAmnesty(now, members.return_time(), lost);\n",
                     "in our queue.\n"
                     "  if (!MUTANT) members.GrantAmnesty(now, members.return_time(), lost);\n")],
    },
    {
        "name": "the loss of a node is charged to the budget",
        "patches": [(CORE + "machine_charge.cc",
                     "void State::ChargeLoss(TimePoint now) {\n",
                     "void State::ChargeLoss(TimePoint now) {\n"
                     "  if (MUTANT && restart_count < policy.max_restarts) ++restart_count;\n")],
    },
    {
        "name": "the latest failure is named and not the first",
        "patches": [(CORE + "machine_round.cc",
                     "  return a.date < b.date;\n",
                     "  return MUTANT ? b.date < a.date : a.date < b.date;\n")],
    },
    {
        "name": "a node that leaves closes the job",
        "patches": [(CORE + "machine_join.cc",
                     "  const NodeId id = member->info.id;\n  RemoveNode(now, id,\n"
                     "             absl::StrCat(\"node \", members.NameOf(*member), \" left\"",
                     "  const NodeId id = member->info.id;\n"
                     "  if (MUTANT && phase == Phase::kSealed) {\n"
                     "    CloseJob(now, {.exit_code = 1, .reason = \"a node left\", .first_failure = {}});\n"
                     "    return;\n"
                     "  }\n"
                     "  RemoveNode(now, id,\n"
                     "             absl::StrCat(\"node \", members.NameOf(*member), \" left\"")],
    },
    {
        "name": "the verdict is told before it is durable",
        "patches": [(CORE + "machine_tell.cc",
                     "  WriteRecord();\n}\n\nvoid State::TellVerdict",
                     "  WriteRecord();\n  if (MUTANT) TellVerdict(now);\n}\n\nvoid State::TellVerdict")],
    },
    {
        "name": "an agent joins again before its workers are gone",
        "patches": [(AGENT,
                     "  if (!HasWorkers()) return GoOn();\n",
                     "  if (MUTANT || !HasWorkers()) return GoOn();\n")],
    },
    {
        "name": "a node has succeeded when its first worker has",
        "patches": [(AGENT,
                     "    if (succeeded_count_ == policy_.local_world_size) Succeed();\n",
                     "    if (succeeded_count_ == (MUTANT ? 1 : policy_.local_world_size)) Succeed();\n")],
    },
    {
        "name": "a coordinator that is started again ends the round that it finds",
        "patches": [(CORE + "machine_readopt.cc",
                     "bool State::MayReadopt(const Stamp& stamp) const {\n",
                     "bool State::MayReadopt(const Stamp& stamp) const {\n  if (MUTANT) return false;\n")],
    },
    {
        "name": "a restart does not wait",
        "patches": [(CORE + "restart_budget.cc",
                     "  return std::min(wait, longest);\n",
                     "  return MUTANT ? Duration{0} : std::min(wait, longest);\n")],
    },
    {
        "name": "restarts are given back without progress",
        "patches": [(CORE + "restart_budget.cc",
                     "spent.progress < limits.budget_period)",
                     "(!MUTANT && spent.progress < limits.budget_period))")],
    },
    {
        "name": "a leader talks on when its lease is over",
        "patches": [(ETCD + "tenure.cc",
                     "  lease_ = lease;\n",
                     "  lease_ = MUTANT ? lease + kMaxPause : lease;\n")],
    },
    {
        "name": "a takeover forgets what the last leader has left",
        "patches": [(ETCD + "leader_core.cc",
                     "  found_ = written_ = job->value;\n",
                     "  written_ = job->value;\n  if (!MUTANT) found_ = written_;\n")],
    },
    {
        "name": "a coordinator that lags loses nodes",
        "patches": [(CORE + "rendezvous_machine.cc",
                     "policy.evict_after / 4);\n  members.GrantAmnesty(now, members.return_time());\n",
                     "policy.evict_after / 4);\n"
                     "  if (!MUTANT) members.GrantAmnesty(now, members.return_time());\n")],
    },
    {
        "name": "two nodes that refuse each other take the lead in turns",
        "patches": [(CLIENT + "contact_election.cc",
                     "is_leader_refusing_ && took_refused_place_;\n",
                     "is_leader_refusing_ && took_refused_place_ && !MUTANT;\n")],
    },
    {
        "name": "a leader that is cut off from its nodes evicts them",
        "patches": [(CORE + "membership.cc",
                     "  if (now < last_word_from_elsewhere_ + lonely_after()) return false;\n",
                     "  if (MUTANT || now < last_word_from_elsewhere_ + lonely_after()) return false;\n")],
    },
    {
        "name": "a node beats as its own options say, whatever the job's are",
        "patches": [(CLIENT + "contact_talk.cc",
                     "  if (answer.interval > Duration{0}) BeatEvery(answer.interval);\n",
                     "  if (!MUTANT && answer.interval > Duration{0}) BeatEvery(answer.interval);\n")],
    },
]
