#include "launcher/cli/slurm_step.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/node_list.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

// Steps from here on are Slurm's own: interactive, batch, extern (slurm.h: SLURM_INTERACTIVE_STEP
// is the lowest of them).
constexpr uint64_t kFirstSpecialStep = 4294967290;

bool IsFirstSlurmTask(const ClusterVariables& variables) {
  return !variables.Has("SLURM_PROCID") || variables.Text("SLURM_PROCID") == "0";
}

// "1(x3),2": the first count that is not 1.
std::optional<std::string> SeveralTasks(const std::string& tasks_per_node) {
  for (const absl::string_view part : absl::StrSplit(tasks_per_node, ',', absl::SkipEmpty())) {
    const absl::string_view count = part.substr(0, part.find('('));
    if (count != "1") return std::string(count);
  }
  return std::nullopt;
}

// Whether all of the step's nodes are the job's: not so, where variables of an outer step are left.
bool IsWithinJob(const ClusterVariables& variables) {
  const std::string job = variables.Text("SLURM_JOB_NODELIST");
  const std::string step = variables.Text("SLURM_STEP_NODELIST");
  if (job.empty() || job == step) return true;
  absl::StatusOr<std::vector<std::string>> of_job = ExpandNodeList(job);
  const absl::StatusOr<std::vector<std::string>> of_step = ExpandNodeList(step);
  if (!of_job.ok() || !of_step.ok()) return true;  // its reader says so
  std::sort(of_job->begin(), of_job->end());
  return std::all_of(of_step->begin(), of_step->end(), [&](const std::string& node) {
    return std::binary_search(of_job->begin(), of_job->end(), node);
  });
}

// Where the step's nodes may meet: first those that Slurm has kept for it, "12021-12022,12030".
std::vector<uint16_t> SlurmPorts(const ClusterVariables& variables, const std::string& step) {
  constexpr size_t kPorts = 4;
  std::vector<uint16_t> ports;
  const auto add = [&ports](int port) {
    if (port <= 0 || ports.size() == kPorts) return;
    if (!absl::c_linear_search(ports, port)) ports.push_back(static_cast<uint16_t>(port));
  };
  const std::string reserved = variables.Text("SLURM_STEP_RESV_PORTS");
  for (const absl::string_view range : absl::StrSplit(reserved, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends[0], &first) || !absl::SimpleAtoi(ends.back(), &last)) break;
    for (int port = first; port <= std::min(last, int{UINT16_MAX}); ++port) add(port);
  }
  if (ports.empty()) add(PortFor(step));
  // Not the numbers next to it, which other jobs have for theirs.
  for (int i = 1; ports.size() < kPorts; ++i) add(PortFor(absl::StrCat(step, "/", i)));
  return ports;
}

}  // namespace

std::optional<std::string> SlurmStep(const Environment& environment) {
  const ClusterVariables variables(environment);
  uint64_t step = 0;
  const std::string text = variables.Text("SLURM_STEP_ID");
  if (!absl::SimpleAtoi(text, &step) || step >= kFirstSpecialStep) return std::nullopt;
  // Scripts take some of these away to be none; the jobs of one step may be several (--het-group).
  for (const char* name : {"SLURM_JOB_ID", "SLURM_NODEID", "SLURM_STEP_NODELIST"}) {
    if (!variables.Has(name)) return std::nullopt;
  }
  if (variables.Has("SLURM_HET_SIZE")) return std::nullopt;
  return absl::StrCat(variables.Text("SLURM_JOB_ID"), ".", text);
}

std::string StaleStepWarning(const Environment& environment) {
  const ClusterVariables variables(environment);
  if (!SlurmStep(environment) || IsWithinJob(variables)) return "";
  return absl::StrCat("SLURM_STEP_NODELIST ", Quoted(variables.Text("SLURM_STEP_NODELIST")),
                      ": the job's nodes are ", Quoted(variables.Text("SLURM_JOB_NODELIST")),
                      ": these are variables of two jobs, and nothing is derived from them");
}

std::string NoStepWarning(const Environment& environment) {
  const ClusterVariables variables(environment);
  uint64_t step = kFirstSpecialStep;
  int nodes = 0;
  const bool is_in_step =
      variables.Has("SLURM_STEP_NODELIST") ||
      (absl::SimpleAtoi(variables.Text("SLURM_STEP_ID"), &step) && step < kFirstSpecialStep);
  const bool has_several =
      absl::SimpleAtoi(variables.Text("SLURM_JOB_NUM_NODES"), &nodes) && nodes > 1;
  if (is_in_step || !has_several || !variables.Has("SLURM_JOB_ID")) return "";
  return absl::StrCat("Slurm job ", EscapeControl(variables.Text("SLURM_JOB_ID")), " has ", nodes,
                      " nodes, and this command runs on one of them: `srun ddprun ...` starts it "
                      "on all");
}

rendezvous::ClusterPlace SlurmPlace(const Environment& environment, int max_nodes) {
  ClusterVariables variables(environment);
  const std::optional<std::string> step = SlurmStep(environment);
  if (!step) return {};
  rendezvous::ClusterPlace place{.job = "Slurm job " + variables.Text("SLURM_JOB_ID")};
  const int nodes = static_cast<int>(variables.Nodes("SLURM_STEP_NODELIST").size());
  // In a worker of another ddprun several agents may share a node on purpose.
  const bool is_nested = environment.Get("DDPRUN_JOB_MARK").has_value();
  if (!variables.status().ok() || is_nested || !IsWithinJob(variables) || max_nodes > nodes) {
    return place;
  }
  place.step = "Slurm step " + *step;
  place.nodes = nodes;
  const int node = variables.Number("SLURM_NODEID", 0, nodes - 1);
  if (variables.status().ok()) place.node = node;
  return place;
}

absl::StatusOr<ClusterJob> ReadSlurm(const Environment& environment, const GivenOptions& given) {
  ClusterVariables variables(environment);
  const std::optional<std::string> step = SlurmStep(environment);
  DDP_CHECK(step);
  ClusterJob job = {.title = "Slurm step " + EscapeControl(*step),
                    .speaks = IsFirstSlurmTask(variables)};
  const std::vector<std::string> nodes = variables.Nodes("SLURM_STEP_NODELIST");
  job.nodes = static_cast<int>(nodes.size());
  if (!nodes.empty()) variables.Expect("SLURM_STEP_NUM_NODES", job.nodes, "SLURM_STEP_NODELIST");
  if (!variables.status().ok()) return job.speaks ? variables.status() : Contradiction("", false);
  const int rank = variables.Number("SLURM_NODEID", 0, job.nodes - 1);
  if (!variables.status().ok()) return variables.status();
  const auto tasks = SeveralTasks(variables.Text("SLURM_STEP_TASKS_PER_NODE"));
  if (tasks && LargestSize(given) != 1) {
    return Contradiction(absl::StrCat(job.title, " has ", EscapeControl(*tasks),
                                      " tasks on a node; expected one, which starts that node's "
                                      "workers: srun --ntasks-per-node=1"),
                         job.speaks);
  }
  const std::string restarts = variables.Text("SLURM_RESTART_COUNT");
  job.size = {absl::StrCat(job.nodes), "SLURM_STEP_NODELIST"};
  job.node_rank = {absl::StrCat(rank), "SLURM_NODEID"};
  job.head = nodes[0];
  const std::vector<uint16_t> ports = SlurmPorts(variables, *step);
  job.endpoint = {absl::StrCat(nodes[0], ":", ports[0]), "SLURM_STEP_NODELIST"};
  job.more_ports.assign(ports.begin() + 1, ports.end());
  job.id = {absl::StrCat(*step, ".", restarts.empty() ? "0" : restarts), "SLURM_STEP_ID"};
  job.workers = WorkersOf(variables, "SLURM_GPUS_ON_NODE");
  return job;
}

absl::Status CheckSlurmEndpoint(const Environment& environment, const GivenOptions& given) {
  ClusterVariables variables(environment);
  const OptionReader read(given);
  const GivenValue* value = read.FindText("rdzv_endpoint");
  if (value == nullptr || !SlurmStep(environment) || !variables.Has("SLURM_JOB_NODELIST") ||
      absl::StrContains(read.Text("rdzv_conf"), "is_host=")) {
    return absl::OkStatus();
  }
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(value->text, kDefaultRendezvousPort);
  const std::vector<std::string> of_job = variables.Nodes("SLURM_JOB_NODELIST");
  const std::vector<std::string> of_step = variables.Nodes("SLURM_STEP_NODELIST");
  // A job of more nodes than the step's is one of several steps.
  const bool is_of_step = LargestSize(given).value_or(1) <= static_cast<int>(of_step.size());
  if (!endpoint.ok() || !variables.status().ok() || !is_of_step ||
      !absl::c_linear_search(of_job, endpoint->host) ||
      absl::c_linear_search(of_step, endpoint->host)) {
    return absl::OkStatus();
  }
  return Contradiction(absl::StrCat(value->source, " ", Quoted(value->text), ": ", endpoint->host,
                                    " is a node of the job and none of this step, whose nodes are ",
                                    Quoted(variables.Text("SLURM_STEP_NODELIST")),
                                    "; if a coordinator runs there, say --rdzv-conf is_host=0"),
                       IsFirstSlurmTask(variables));
}

}  // namespace ddprun::launcher
