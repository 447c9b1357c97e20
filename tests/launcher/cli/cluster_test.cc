#include "launcher/cli/cluster.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/cli/cli.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

// A task on n2 of `sbatch --nodes=3 --gpus-per-node=2`, `srun` (Slurm 22.05.8), what is read of it.
const Variables kStep = {{"SLURM_JOB_ID", "12"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_JOB_NODELIST", "n[1-3]"},
                         {"SLURM_STEP_NODELIST", "n[1-3]"},
                         {"SLURM_STEP_NUM_NODES", "3"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_STEP_RESV_PORTS", "12021-12022"},
                         {"SLURM_GPUS_ON_NODE", "2"},
                         {"SLURM_CPUS_PER_TASK", "3"},
                         {"CUDA_VISIBLE_DEVICES", "0,1"}};

// The batch script itself.
const Variables kBatch = {{"SLURM_JOB_ID", "12"},
                          {"SLURM_JOB_NODELIST", "n[1-3]"},
                          {"SLURM_JOB_NUM_NODES", "3"},
                          {"SLURM_NODEID", "0"},
                          {"SLURM_PROCID", "0"}};

// `base` with the values of `changes`; an empty one takes the variable away.
Variables With(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    base[name] = value;
    if (value.empty()) base.erase(name);
  }
  return base;
}

Environment Of(const Variables& variables, int cpus = 6) {
  Environment environment{.variables = {}, .machine = {.cpu_count = cpus, .fresh_run_id = "f00d"}};
  for (const auto& [name, value] : variables) {
    environment.variables.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

absl::StatusOr<LaunchConfig> Read(const Environment& environment, const Words& options) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& word : options) argv.push_back(word.c_str());
  argv.push_back("./train");
  const auto result = ParseCommandLine(static_cast<int>(argv.size()), argv.data(), environment);
  if (!result.ok()) return result.status();
  return std::get<LaunchConfig>(*result);
}

LaunchConfig Config(const Variables& variables, const Words& options = {}) {
  const absl::StatusOr<LaunchConfig> config = Read(Of(variables), options);
  INFO("status: ", config.status().ToString());
  REQUIRE(config.ok());
  return *config;
}

std::string ErrorOf(const Variables& variables, const Words& options = {}) {
  const absl::StatusOr<LaunchConfig> config = Read(Of(variables), options);
  return config.ok() ? "accepted" : std::string(config.status().message());
}

void CheckAlone(const LaunchConfig& config) {
  CHECK(config.rendezvous == RendezvousKind::kStandalone);
  CHECK(config.nodes.max == 1);
  CHECK(config.workers_per_node == 1);
  CHECK(config.cluster_line == "");
}

TEST_CASE("cluster: a Slurm step tells everything") {
  const LaunchConfig config = Config(kStep);
  CHECK(config.rendezvous == RendezvousKind::kC10d);
  CHECK(config.nodes.min == 3);
  CHECK(config.nodes.max == 3);
  CHECK(config.node_rank == 1);
  CHECK(config.endpoint == Endpoint{.host = "n1", .port = 12021});
  CHECK(config.run_id == "12.0.0");
  CHECK(Config(With(kStep, {{"SLURM_RESTART_COUNT", "2"}})).run_id == "12.0.2");
  CHECK(config.workers_per_node == 2);
  CHECK(config.cluster_line ==
        "Slurm step 12.0: 3 nodes, node rank 1, head n1:12021, 2 workers each");
  CHECK(config.warnings.empty());
  CHECK(config.report_node == "n1");
  CHECK(Config(With(kStep, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).report_node == "");
  CHECK(config.SourceOf("nnodes") == "SLURM_STEP_NODELIST");
  CHECK(config.SourceOf("rdzv_endpoint") == "SLURM_STEP_NODELIST");
}

TEST_CASE("cluster: without reserved ports all nodes of a step choose the same one, by its id") {
  const auto port = [](const Variables& changes) {
    return Config(With(With(kStep, {{"SLURM_STEP_RESV_PORTS", ""}}), changes)).endpoint.port;
  };
  CHECK(port({{"SLURM_NODEID", "0"}}) == port({{"SLURM_NODEID", "2"}}));
  CHECK(port({}) != port({{"SLURM_STEP_ID", "1"}}));
  CHECK(port({}) >= 20000);
  CHECK(port({}) < 32000);
  CHECK(port({{"SLURM_STEP_RESV_PORTS", "none"}}) == port({}));
  CHECK(port({{"SLURM_STEP_RESV_PORTS", "12030,12044"}}) == 12030);
}

TEST_CASE("cluster: the head is the step's first node, not the job's") {
  const LaunchConfig config = Config(With(kStep, {{"SLURM_STEP_NODELIST", "n[2-3]"},
                                                  {"SLURM_STEP_NUM_NODES", "2"},
                                                  {"SLURM_NODEID", "0"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}}));
  CHECK(config.endpoint.host == "n2");
  CHECK(config.nodes.max == 2);
  CHECK(config.node_rank == 0);
  const std::string all = "n[00001-10000]";
  CHECK(Config(With(kStep, {{"SLURM_JOB_NODELIST", all},
                            {"SLURM_STEP_NODELIST", all},
                            {"SLURM_STEP_NUM_NODES", "10000"},
                            {"SLURM_NODEID", "9999"}}))
            .endpoint.host == "n00001");
}

TEST_CASE("cluster: workers are the GPUs of the task, else those of the node, else one") {
  const auto workers = [](const Variables& changes) {
    return Config(With(kStep, changes)).workers_per_node;
  };
  CHECK(workers({{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}) == 4);
  CHECK(workers({{"CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b,MIG-c"}}) == 3);
  CHECK(workers({{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}) == 1);
  CHECK(workers({{"CUDA_VISIBLE_DEVICES", "-1"}}) == 1);
  CHECK(workers({{"CUDA_VISIBLE_DEVICES", ""}}) == 2);
  CHECK(workers({{"CUDA_VISIBLE_DEVICES", ""}, {"SLURM_GPUS_ON_NODE", ""}}) == 1);
  CHECK(workers({{"CUDA_VISIBLE_DEVICES", ""}, {"SLURM_GPUS_ON_NODE", "x"}}) == 1);
  // Set and empty: no GPU.
  Variables none = With(kStep, {});
  none["CUDA_VISIBLE_DEVICES"] = "";
  CHECK(Config(none).workers_per_node == 1);
}

TEST_CASE("cluster: a step of one node needs no meeting place") {
  const LaunchConfig config = Config(
      With(kStep,
           {{"SLURM_STEP_NODELIST", "n2"}, {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"}}));
  CHECK(config.rendezvous == RendezvousKind::kStandalone);
  CHECK(config.workers_per_node == 2);
  CHECK(config.cluster_line == "Slurm step 12.0: 1 node, 2 workers");
  // Asked for on each of three nodes: three jobs.
  const LaunchConfig asked = Config(kStep, {"--nnodes=1"});
  CHECK(asked.run_id == "f00d");
  CHECK(asked.cluster_line == "Slurm step 12.0: 1 of 3 nodes, 2 workers");
}

TEST_CASE("cluster: what the user gives wins, and the rest is derived") {
  const LaunchConfig elastic =
      Config(kStep, {"--nnodes=2:3", "--nproc-per-node=5", "--rdzv-id=mine", "--max-restarts=3"});
  CHECK(elastic.nodes.min == 2);
  CHECK(elastic.workers_per_node == 5);
  CHECK(elastic.run_id == "mine");
  CHECK(elastic.endpoint == Endpoint{.host = "n1", .port = 12021});
  CHECK(elastic.cluster_line ==
        "Slurm step 12.0: 2 to 3 nodes, node rank 1, head n1:12021, 5 workers each");

  // The node that is left over is a spare, so no rank is taken for granted.
  const LaunchConfig fewer = Config(kStep, {"--nnodes=2", "--nproc-per-node=gpu"});
  CHECK(!fewer.node_rank);
  CHECK(fewer.report_node == "");  // the first node may be the spare
  CHECK(fewer.cluster_line == "Slurm step 12.0: 2 of 3 nodes, head n1:12021, gpu workers each");

  CHECK(Config(With(kStep, {{"PET_NPROC_PER_NODE", "7"}})).workers_per_node == 7);
  CHECK(Config(With(kStep, {{"PET_RDZV_ID", ""}, {"PET_RDZV_BACKEND", "c10d"}})).run_id ==
        "12.0.0");
}

TEST_CASE("cluster: switched off") {
  for (const Words& options : std::vector<Words>{{"--no-cluster"},
                                                 {"--standalone"},
                                                 {"--node-rank=0"},
                                                 {"--master-port=4000"},
                                                 {"--rdzv-backend=static"}}) {
    CAPTURE(options[0]);
    const LaunchConfig config = Config(kStep, options);
    CHECK(config.nodes.max == 1);
    CHECK(config.workers_per_node == 1);
    CHECK(config.cluster_line == "");
  }
  CHECK(Config(kStep, {"--rdzv-endpoint=elsewhere:1"}).nodes.max == 1);
  CHECK(Config(kStep, {"--master-addr=n1", "--nnodes=2"}).rendezvous == RendezvousKind::kStatic);
  CheckAlone(Config(With(kStep, {{"DDPRUN_CLUSTER", "none"}})));
  CheckAlone(Config(With(kStep, {{"DDPRUN_JOB_MARK", "of-an-outer-ddprun"}})));
  CHECK(ErrorOf(With(kStep, {{"DDPRUN_CLUSTER", "slurm"}})) ==
        "DDPRUN_CLUSTER 'slurm': expected none, or no such variable");
  CHECK(Config(With(kStep, {{"PET_STANDALONE", "0"}})).nodes.max == 3);
}

TEST_CASE("cluster: what is no step derives nothing") {
  CheckAlone(Config({}));
  CheckAlone(Config(With(kStep, {{"SLURM_STEP_ID", ""}})));        // a batch script, salloc's shell
  CheckAlone(Config(With(kStep, {{"SLURM_STEP_NODELIST", ""}})));  // a container with a few of them
  for (const char* special : {"4294967290", "4294967291", "4294967292", "4294967294", "TBD"}) {
    CheckAlone(Config(With(kStep, {{"SLURM_STEP_ID", special}})));
  }
}

const Variables kFirst = With(kStep, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}});

TEST_CASE("cluster: a contradiction of the whole job is told by its first task") {
  const Variables crowded = {{"SLURM_STEP_TASKS_PER_NODE", "1,4(x2)"}};
  CHECK(
      ErrorOf(With(kFirst, crowded)) ==
      "Slurm step 12.0 has 4 tasks on a node; expected one, which starts that node's workers: srun "
      "--ntasks-per-node=1 (--no-cluster leaves the variables alone)");
  CHECK(ErrorOf(With(kStep, crowded)) == "");
  const Variables odd = {{"SLURM_JOB_ID", "p\xd6"}, {"SLURM_STEP_TASKS_PER_NODE", "\x1b[2J"}};
  CHECK(ErrorOf(With(kFirst, odd)).starts_with("Slurm step p\\xd6.0 has \\x1b[2J tasks on a node"));
  CHECK(ErrorOf(kFirst, {"--nnodes=2:4"}) ==
        "--nnodes '2:4': Slurm step 12.0 has 3 nodes (--no-cluster leaves the variables alone)");
  CHECK(ErrorOf(kStep, {"--nnodes=2:4"}) == "");
  CHECK(
      ErrorOf(With(kFirst, {{"SLURM_JOB_NODELIST", "n[0-3]"}}), {"--rdzv-endpoint=n0:29400"}) ==
      "--rdzv-endpoint 'n0:29400': n0 is a node of the job and none of this step, whose nodes are "
      "'n[1-3]'; if a coordinator runs there, say --rdzv-conf is_host=0 (--no-cluster leaves "
      "the variables alone)");
  CHECK(Config(With(kFirst, {{"SLURM_JOB_NODELIST", "n[0-3]"}}),
               {"--rdzv-endpoint=n0:29400", "--nnodes=3", "--rdzv-conf=is_host=0"})
            .endpoint.host == "n0");
}

TEST_CASE("cluster: variables that contradict each other are named, what all find by the first") {
  const std::string end = " (--no-cluster leaves the variables alone)";
  CHECK(ErrorOf(With(kStep, {{"SLURM_NODEID", "3"}})) ==
        "SLURM_NODEID '3': expected a number from 0 to 2" + end);
  CHECK(ErrorOf(With(kStep, {{"SLURM_STEP_NUM_NODES", "4"}})) == "");
  CHECK(ErrorOf(With(kFirst, {{"SLURM_STEP_NUM_NODES", "4"}})) ==
        "SLURM_STEP_NUM_NODES '4': SLURM_STEP_NODELIST names 3" + end);
  CHECK(ErrorOf(With(kFirst, {{"SLURM_STEP_NODELIST", "n[1-"}})) ==
        "SLURM_STEP_NODELIST 'n[1-': its brackets do not match" + end);
}

TEST_CASE("cluster: variables left over from an outer step are no step") {
  // salloc or sbatch within a step: the job is the inner one's, the step the outer one's.
  const LaunchConfig config =
      Config(With(kStep, {{"SLURM_JOB_ID", "13"}, {"SLURM_JOB_NODELIST", "n[7-8]"}}));
  CheckAlone(config);
  CHECK(
      config.warnings ==
      Words{
          "SLURM_STEP_NODELIST 'n[1-3]': the job's nodes are 'n[7-8]': these are variables of two "
          "jobs, and nothing is derived from them"});
  // Scripts take these away.
  CheckAlone(Config(With(kStep, {{"SLURM_JOB_ID", ""}})));
  CheckAlone(Config(With(kStep, {{"SLURM_NODEID", ""}})));
  CheckAlone(Config(With(kStep, {{"SLURM_HET_SIZE", "2"}})));
}

TEST_CASE("cluster: what is typed into a shell within a step is no task of it") {
  Environment shell = Of(With(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "4(x3)"}}));
  shell.machine.is_interactive = true;
  const absl::StatusOr<LaunchConfig> config = Read(shell, {});
  REQUIRE(config.ok());
  CheckAlone(*config);
}

TEST_CASE("cluster: a job of one task each, and one of several steps") {
  const Variables crowded = With(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "8(x3)"}});
  CHECK(Config(crowded, {"--nnodes=1", "--nproc-per-node=1"}).rendezvous ==
        RendezvousKind::kStandalone);
  // for node in ...; do srun -N1 -w $node ddprun --nnodes=4 --rdzv-endpoint=n0 ./train & done
  const Variables one = With(kStep, {{"SLURM_JOB_NODELIST", "n[0-3]"},
                                     {"SLURM_STEP_NODELIST", "n2"},
                                     {"SLURM_STEP_NUM_NODES", "1"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                     {"SLURM_NODEID", "0"},
                                     {"SLURM_PROCID", "0"}});
  const LaunchConfig config = Config(one, {"--nnodes=4", "--rdzv-endpoint=n0"});
  CHECK(config.nodes.max == 4);
  CHECK(config.cluster_line == "");
}

TEST_CASE("cluster: SkyPilot") {
  const Variables sky = {{"SKYPILOT_NODE_IPS", "10.0.0.5\n10.0.0.6\n"},
                         {"SKYPILOT_NODE_RANK", "1"},
                         {"SKYPILOT_NUM_NODES", "2"},
                         {"SKYPILOT_NUM_GPUS_PER_NODE", "8"},
                         {"SKYPILOT_TASK_ID", "sky-2026-11-01_train_1"}};
  const LaunchConfig config = Config(sky);
  CHECK(config.nodes.max == 2);
  CHECK(config.node_rank == 1);
  CHECK(config.workers_per_node == 8);
  CHECK(config.endpoint.host == "10.0.0.5");
  CHECK(config.run_id == "sky-2026-11-01_train_1");
  CHECK(config.endpoint.port == Config(With(sky, {{"SKYPILOT_NODE_RANK", "0"}})).endpoint.port);
  CHECK(Config(With(sky, {{"SKYPILOT_NODE_IPS", "fd00::5\nfd00::6"}})).endpoint.host == "fd00::5");
  CHECK(ErrorOf(With(sky, {{"SKYPILOT_NUM_NODES", "3"}})) ==
        "SKYPILOT_NUM_NODES '3': SKYPILOT_NODE_IPS names 2 (--no-cluster leaves the variables "
        "alone)");
}

TEST_CASE("cluster: Open MPI tells no head") {
  const Variables mpi = {{"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                         {"PMIX_NAMESPACE", "prterun-ctl-77@1"}};
  CHECK(
      ErrorOf(mpi) ==
      "Open MPI's job does not tell where its nodes meet; give --rdzv-endpoint=HOST:PORT, HOST the "
      "node of rank 0 (--no-cluster leaves the variables alone)");
  CHECK(ErrorOf(With(mpi, {{"OMPI_COMM_WORLD_RANK", "1"}})) == ErrorOf(mpi));
  const LaunchConfig config =
      Config(With(mpi, {{"OMPI_COMM_WORLD_RANK", "1"}}), {"--rdzv-endpoint=n1:29400"});
  CHECK(config.nodes.max == 2);
  CHECK(config.node_rank == 1);
  CHECK(config.run_id == "prterun-ctl-77@1");
  CHECK(config.rendezvous == RendezvousKind::kC10d);
  CHECK(config.cluster_line == "Open MPI's job: 2 nodes, node rank 1, head n1:29400");
  CHECK(ErrorOf(With(mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})) ==
        "Open MPI's job has 2 tasks on this node; expected one, which starts that node's workers: "
        "mpirun "
        "-N 1 (--no-cluster leaves the variables alone)");
  // mpirun -n 1, or a library that thinks so.
  CheckAlone(Config(With(mpi, {{"OMPI_COMM_WORLD_SIZE", "1"}})));
  // All is said, also that several agents share a node.
  CHECK(!Config(With(mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
                {"--nnodes=2", "--rdzv-endpoint=n1:29400"})
             .node_rank);
  CheckAlone(Config(mpi, {"--rdzv-endpoint=localhost:0"}));
  // Its daemons are tasks of a Slurm step.
  Variables both = kStep;
  both.insert(mpi.begin(), mpi.end());
  CHECK(Config(both, {"--rdzv-endpoint=n1:29400"}).nodes.max == 2);
}

TEST_CASE("cluster: a rank without a size counts where nodes are asked for") {
  for (const char* variable : {"JOB_COMPLETION_INDEX", "PMIX_RANK"}) {
    CAPTURE(variable);
    CheckAlone(Config({{variable, "3"}}));
    const LaunchConfig config =
        Config({{variable, "3"}}, {"--nnodes=4", "--rdzv-endpoint=job-0.net:29400", "--rdzv-id=j"});
    CHECK(config.node_rank == 3);
    CHECK(config.rendezvous == RendezvousKind::kC10d);
    // A spare, and a command that leaves nothing open.
    CHECK(!Config({{variable, "4"}}, {"--nnodes=4", "--rdzv-endpoint=job-0.net:29400"}).node_rank);
    CHECK(!Config({{variable, "3"}},
                  {"--nnodes=4", "--rdzv-endpoint=job-0.net:29400", "--rdzv-backend=c10d"})
               .node_rank);
    CHECK(ErrorOf({{variable, "0"}}, {"--nnodes=4"}) ==
          Contains("does not tell where its nodes meet"));
    // Kubeflow's Trainer gives the rank itself.
    CHECK(Config({{variable, "3"},
                  {"PET_NODE_RANK", "1"},
                  {"PET_NNODES", "4"},
                  {"PET_MASTER_ADDR", "job-0.net"},
                  {"PET_MASTER_PORT", "29400"}})
              .node_rank == 1);
  }
}

TEST_CASE("cluster: workers that must share CPUs are told why") {
  const auto warnings = [](const Variables& variables, int cpus, const Words& options) {
    const absl::StatusOr<LaunchConfig> config = Read(Of(variables, cpus), options);
    REQUIRE(config.ok());
    return config->warnings;
  };
  // SLURM_CPUS_PER_TASK is the batch script's: srun may have given the task less.
  const Words told = {"Slurm gives this task 1 CPU for 2 workers: add --cpus-per-task=N to srun"};
  CHECK(warnings(kFirst, 1, {}) == told);
  CHECK(warnings(kFirst, 1, {"--standalone", "--nproc-per-node=2"}) == told);
  CHECK(warnings(kFirst, 2, {}).empty());
  CHECK(warnings(kStep, 1, {}).empty());
  CHECK(warnings({}, 1, {"--nproc-per-node=2"}).empty());
}

TEST_CASE("cluster: a batch script of several nodes without srun is told what would use them") {
  const std::string told =
      "Slurm job 12 has 3 nodes, and this command runs on one of them: `srun ddprun ...` starts it "
      "on all";
  CHECK(Config(kBatch).warnings == Words{told});
  CHECK(Config(kBatch).nodes.max == 1);
  for (const Words& said : {Words{"--standalone"}, Words{"--nnodes=1"}, Words{"--no-cluster"},
                            Words{"--rdzv-endpoint=n1:29400"}}) {
    CHECK(Config(kBatch, said).warnings.empty());
  }
  CHECK(Config(With(kBatch, {{"SLURM_JOB_NUM_NODES", "1"}})).warnings.empty());
  CHECK(Config(With(kBatch, {{"DDPRUN_JOB_MARK", "m"}})).warnings.empty());
}

TEST_CASE("cluster: any values give a configuration or one line") {
  const std::vector<std::string> values = {"",           "0",     "1",
                                           "3",          "-1",    "n[1-3]",
                                           "n[",         "x",     "99999999999999999999",
                                           "1(x3)",      "a b",   "\xff\n\x01",
                                           "4294967295", "n1,n2", "12021-",
                                           "0,1",        ":",     "[::1]"};
  std::vector<std::string> names = {
      "SKYPILOT_NODE_IPS",    "SKYPILOT_NODE_RANK", "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_RANK", "PMIX_RANK",          "JOB_COMPLETION_INDEX"};
  for (const auto& [name, value] : kStep) names.push_back(name);
  std::mt19937 random(11);
  for (int run = 0; run < 4000; ++run) {
    Variables variables = kStep;
    for (size_t changes = random() % 4; changes > 0; --changes) {
      variables =
          With(variables, {{names[random() % names.size()], values[random() % values.size()]}});
    }
    const Words options = random() % 2 == 0 ? Words{} : Words{"--nnodes=2"};
    const std::string error = ErrorOf(variables, options);
    CHECK(error != Contains("\n"));
    CHECK(error.size() < 600);
  }
}

}  // namespace
}  // namespace ddprun::launcher
