#include "launcher/cli/cluster.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/cluster_job.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/slurm_step.h"
#include "launcher/cli/text.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;
using rendezvous::Counted;

absl::StatusOr<ClusterJob> ReadSkyPilot(const Environment& environment, const GivenOptions&) {
  ClusterVariables variables(environment);
  const std::string id = variables.Text("SKYPILOT_TASK_ID");
  const std::vector<std::string> addresses = absl::StrSplit(
      variables.Text("SKYPILOT_NODE_IPS"), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  ClusterJob job = {.title = id.empty() ? "SkyPilot's task" : "SkyPilot task " + EscapeControl(id),
                    .nodes = static_cast<int>(addresses.size())};
  if (addresses.empty()) variables.Fail("SKYPILOT_NODE_IPS", "expected one address per line");
  variables.Expect("SKYPILOT_NUM_NODES", job.nodes, "SKYPILOT_NODE_IPS");
  const int rank = variables.Number("SKYPILOT_NODE_RANK", 0, std::max(job.nodes - 1, 0));
  if (!variables.status().ok()) return variables.status();
  job.size = {absl::StrCat(job.nodes), "SKYPILOT_NUM_NODES"};
  job.node_rank = {absl::StrCat(rank), "SKYPILOT_NODE_RANK"};
  const bool is_ipv6 = absl::StrContains(addresses[0], ':');
  job.endpoint = {absl::StrCat(is_ipv6 ? "[" : "", addresses[0], is_ipv6 ? "]:" : ":",
                               id.empty() ? kDefaultRendezvousPort : PortFor(id)),
                  "SKYPILOT_NODE_IPS"};
  if (!id.empty()) job.id = {id, "SKYPILOT_TASK_ID"};
  job.workers = WorkersOf(variables, "SKYPILOT_NUM_GPUS_PER_NODE");
  return job;
}

// mpirun names no node of the job, and where it runs itself may be none.
absl::StatusOr<ClusterJob> ReadOpenMpi(const Environment& environment, const GivenOptions& given) {
  ClusterVariables variables(environment);
  ClusterJob job = {.title = "Open MPI's job"};
  job.nodes = variables.Number("OMPI_COMM_WORLD_SIZE", 1, kMaxNodes);
  const int rank = variables.Number("OMPI_COMM_WORLD_RANK", 0, job.nodes - 1);
  if (!variables.status().ok()) return variables.status();
  const std::string local = variables.Text("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!local.empty() && local != "1" && LargestSize(given) != 1) {
    return Contradiction(absl::StrCat(job.title, " has ", EscapeControl(local),
                                      " tasks on this node; expected one, which starts that node's "
                                      "workers: mpirun -N 1"));
  }
  job.size = {absl::StrCat(job.nodes), "OMPI_COMM_WORLD_SIZE"};
  job.node_rank = {absl::StrCat(rank), "OMPI_COMM_WORLD_RANK"};
  const std::string name = variables.Text("PMIX_NAMESPACE");
  if (!name.empty()) job.id = {name, "PMIX_NAMESPACE"};
  return job;
}

// Environments that tell a rank and no size: that of a job of `--nnodes` nodes. Of more pods than
// nodes the others are spares.
absl::StatusOr<ClusterJob> ReadRank(const char* title, const char* rank_variable,
                                    const Environment& environment, const GivenOptions& given) {
  const ClusterVariables variables(environment);
  const int nodes = LargestSize(given).value_or(1);
  ClusterJob job = {.title = title, .nodes = nodes};
  const absl::StatusOr<int> rank = ParseNumber(variables.Text(rank_variable), 0, nodes - 1);
  if (rank.ok()) job.node_rank = {absl::StrCat(*rank), rank_variable};
  return job;
}

bool AsksForNodes(const GivenOptions& given) { return LargestSize(given).value_or(1) > 1; }

struct Manager {
  bool (*is_here)(const Environment&, const GivenOptions&);
  absl::StatusOr<ClusterJob> (*read)(const Environment&, const GivenOptions&);
  const char* endpoint;  // what to give for HOST where the environment does not say; nullptr: says
};

// mpirun comes first: within a Slurm job it starts its daemons by srun, whose variables reach us.
constexpr Manager kManagers[] = {
    {[](const Environment& e, const GivenOptions& g) {
       const bool is_told = g.contains("nnodes") && g.contains("rdzv_endpoint");
       return e.Get("OMPI_COMM_WORLD_SIZE").value_or("1") != "1" && e.Get("OMPI_COMM_WORLD_RANK") &&
              !is_told;
     },
     ReadOpenMpi, "the node of rank 0"},
    {[](const Environment& e, const GivenOptions&) { return SlurmStep(e).has_value(); }, ReadSlurm,
     nullptr},
    {[](const Environment& e, const GivenOptions&) {
       return e.Get("SKYPILOT_NODE_IPS") && e.Get("SKYPILOT_NODE_RANK");
     },
     ReadSkyPilot, nullptr},
    {[](const Environment& e, const GivenOptions& g) {
       return e.Get("PMIX_RANK") && AsksForNodes(g);
     },
     [](const Environment& e, const GivenOptions& g) {
       return ReadRank("PMIx", "PMIX_RANK", e, g);
     },
     "the node of rank 0"},
    {[](const Environment& e, const GivenOptions& g) {
       return e.Get("JOB_COMPLETION_INDEX") && AsksForNodes(g);
     },
     [](const Environment& e, const GivenOptions& g) {
       return ReadRank("Kubernetes' indexed Job", "JOB_COMPLETION_INDEX", e, g);
     },
     "the pod of index 0 by its headless service"},
};

bool IsOn(const OptionReader& read, const std::string& flag) {
  const GivenValue* value = read.Find(flag);
  return value != nullptr && ParseFlag(value->text).value_or(false);
}

bool IsSwitchedOff(const OptionReader& read) {
  for (const char* option : {"master_addr", "master_port"}) {
    if (read.FindText(option) != nullptr) return true;
  }
  const std::string backend = read.Text("rdzv_backend");
  const bool is_c10d = backend.empty() || backend == "c10d" || backend == "grpc";
  return !is_c10d || read.Find("node_rank") != nullptr || IsOn(read, "standalone");
}

// Whether the user says all there is to say of where the nodes meet. `is_asked_for`: because the
// environment does not.
bool NamesMeetingPlace(const OptionReader& read, bool is_asked_for) {
  const GivenValue* value = read.FindText("rdzv_endpoint");
  if (value == nullptr) return false;
  if (!is_asked_for || read.FindText("rdzv_backend") != nullptr) return true;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(value->text, kDefaultRendezvousPort);
  return !endpoint.ok() || rendezvous::IsLoopback(endpoint->host);  // one node, or a test
}

std::string NodesText(const NodeRange& asked, int nodes) {
  if (asked.is_elastic()) return absl::StrCat(asked.min, " to ", Counted(asked.max, "node"));
  return absl::StrCat(asked.max < nodes ? absl::StrCat(asked.max, " of ") : "",
                      Counted(nodes, "node"));
}

// "8 workers each"
std::string WorkersText(const std::string& workers, bool is_one_node) {
  int count = 0;
  const std::string text =
      absl::SimpleAtoi(workers, &count) ? Counted(count, "worker") : workers + " workers";
  return absl::StrCat(text, is_one_node ? "" : " each");
}

// What is left open of a job whose size is known.
absl::StatusOr<ClusterAnswer> Derive(const ClusterJob& job, const NodeRange& asked,
                                     const char* endpoint_hint, const GivenOptions& given) {
  ClusterAnswer answer;
  GivenOptions all = given;
  std::erase_if(all, [](const auto& option) { return option.second.text.empty(); });
  const auto stand_in = [&](const char* option, const GivenValue& value) {
    if (value.text.empty() || all.contains(option)) return;
    all[option] = answer.options[option] = value;
  };
  const bool is_one_node = asked.max == 1;
  stand_in("nnodes", job.size);
  if (!all.contains("workers")) stand_in("nproc_per_node", job.workers);
  if (is_one_node && !all.contains("nproc_per_node")) return ClusterAnswer();
  answer.line = absl::StrCat(job.title, ": ", NodesText(asked, job.nodes));
  if (!is_one_node) {
    if (job.endpoint.text.empty() && !all.contains("rdzv_endpoint")) {
      return Contradiction(absl::StrCat(job.title,
                                        " does not tell where its nodes meet; give "
                                        "--rdzv-endpoint=HOST:PORT, HOST ",
                                        endpoint_hint));
    }
    // With fewer nodes than the cluster's job has the others are spares, whose ranks are nobody's.
    const bool has_spares = asked.max < job.nodes;
    if (!has_spares) stand_in("node_rank", job.node_rank);
    stand_in("rdzv_endpoint", job.endpoint);
    stand_in("rdzv_id", job.id);
    stand_in("rdzv_backend", {.text = "c10d", .source = "--rdzv-backend"});
    // A run id of the user's may be another job's, too, and a port that answers to it.
    const bool is_id_ours = answer.options.contains("rdzv_id");
    if (!job.more_ports.empty() && is_id_ours && answer.options.contains("rdzv_endpoint") &&
        !absl::StrContains(OptionReader(given).Text("rdzv_conf"), "is_host=")) {
      answer.more_ports = job.more_ports;
      answer.is_head = job.node_rank.text == "0";
    }
    if (all.contains("node_rank")) {
      absl::StrAppend(&answer.line, ", node rank ", all["node_rank"].text);
    }
    absl::StrAppend(&answer.line, ", head ", EscapeControl(all["rdzv_endpoint"].text));
    // The first node may be a spare, which knows of no failure.
    if (!has_spares && job.node_rank.text != "0") answer.report_node = job.head;
  }
  if (all.contains("nproc_per_node")) {
    absl::StrAppend(&answer.line, ", ",
                    WorkersText(EscapeControl(all["nproc_per_node"].text), is_one_node));
  }
  return answer;
}

}  // namespace

absl::StatusOr<ClusterAnswer> AskCluster(const Environment& environment,
                                         const GivenOptions& given) {
  const OptionReader read(given);
  const std::string choice = environment.Get("DDPRUN_CLUSTER").value_or("");
  if (!choice.empty() && choice != "none") {
    return InvalidArgumentError(
        absl::StrCat("DDPRUN_CLUSTER ", Quoted(choice), ": expected none, or no such variable"));
  }
  if (choice == "none" || IsOn(read, "no_cluster") || environment.machine.is_interactive) {
    return ClusterAnswer();
  }
  if (environment.Get("DDPRUN_JOB_MARK")) return ClusterAnswer();
  if (IsSwitchedOff(read)) return ClusterAnswer();
  if (std::string warning = StaleStepWarning(environment); !warning.empty()) {
    return ClusterAnswer{.options = {}, .line = "", .warning = std::move(warning)};
  }
  if (absl::Status status = CheckSlurmEndpoint(environment, given); !status.ok()) return status;
  for (const Manager& manager : kManagers) {
    if (!manager.is_here(environment, given)) continue;
    if (NamesMeetingPlace(read, manager.endpoint != nullptr)) return ClusterAnswer();
    const absl::StatusOr<ClusterJob> job = manager.read(environment, given);
    if (!job.ok()) return job.status();
    NodeRange asked{.min = job->nodes, .max = job->nodes};
    if (const GivenValue* value = read.Find("nnodes")) {
      const absl::StatusOr<NodeRange> range = ParseNodeRange(value->text);
      if (!range.ok()) return ClusterAnswer();  // the reader of options says so
      asked = *range;
      if (asked.max > job->nodes) {
        return Contradiction(absl::StrCat(value->source, " ", Quoted(value->text), ": ", job->title,
                                          " has ", Counted(job->nodes, "node")),
                             job->speaks);
      }
    }
    return Derive(*job, asked, manager.endpoint, given);
  }
  const bool is_told = read.Find("nnodes") != nullptr || read.FindText("rdzv_endpoint") != nullptr;
  if (is_told) return ClusterAnswer();
  return ClusterAnswer{.options = {}, .line = "", .warning = NoStepWarning(environment)};
}

rendezvous::ClusterPlace PlaceInCluster(const Environment& environment, int max_nodes) {
  return SlurmPlace(environment, max_nodes);
}

std::string CpuWarning(const Environment& environment, const LaunchConfig& config) {
  // Not by SLURM_CPUS_PER_TASK: it is the batch script's, and srun does not follow it (22.05).
  const int cpus = environment.machine.cpu_count;
  const bool is_first = environment.Get("SLURM_PROCID").value_or("0") == "0";
  if (!SlurmStep(environment) || !is_first || config.workers_by != WorkersBy::kNumber ||
      cpus >= config.workers_per_node || environment.Get("DDPRUN_JOB_MARK")) {
    return "";
  }
  return absl::StrCat("Slurm gives this task ", Counted(cpus, "CPU"), " for ",
                      config.workers_per_node, " workers: add --cpus-per-task=N to srun");
}

}  // namespace ddprun::launcher
