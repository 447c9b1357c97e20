#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/cli/cli.h"

namespace ddprun::launcher {
namespace {

using rendezvous::ClusterPlace;
using Words = std::vector<std::string>;

// A task of step 12.0 on the nodes `step` of the job's `n[1-3]`; `more` wins.
ClusterPlace PlaceOf(const std::string& step, Words options, Words more = {}) {
  Environment environment{.variables = std::move(more), .machine = {.fresh_run_id = "f00d"}};
  for (const char* variable : {"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=n[1-3]",
                               "SLURM_NODEID=1", "SLURM_PROCID=1"}) {
    environment.variables.push_back(variable);
  }
  environment.variables.push_back("SLURM_STEP_NODELIST=" + step);
  options.insert(options.begin(), "ddprun");
  options.push_back("./train");
  std::vector<const char*> argv;
  for (const std::string& word : options) argv.push_back(word.c_str());
  const auto result = ParseCommandLine(static_cast<int>(argv.size()), argv.data(), environment);
  INFO("status: ", result.status().ToString());
  REQUIRE(result.ok());
  return std::get<LaunchConfig>(*result).cluster;
}

const ClusterPlace kJob{.job = "Slurm job 12"};
const ClusterPlace kStep{.job = "Slurm job 12", .step = "Slurm step 12.0", .nodes = 3};
const Words kAll = {"--nnodes=3", "--rdzv_endpoint=n1:29400", "--rdzv_id=mine"};

TEST_CASE("slurm step: the coordinator is told of whom an agent is, whatever options say") {
  CHECK(PlaceOf("n[1-3]", kAll) == kStep);
  CHECK(PlaceOf("n[1-3]", kAll, {"DDPRUN_CLUSTER=none"}) == kStep);
}

TEST_CASE("slurm step: where the job is derived from the step all of its nodes have agents") {
  ClusterPlace place = kStep;
  place.node = 1;
  CHECK(PlaceOf("n[1-3]", {}) == place);
  CHECK(PlaceOf("n[1-3]", {"--nnodes=2", "--rdzv_id=mine"}) == place);
  // A job of its own on each node.
  CHECK(PlaceOf("n[1-3]", {"--nnodes=1", "--nproc_per_node=2"}) == kStep);
}

TEST_CASE("slurm step: a job of more nodes than the step's is one of several steps") {
  CHECK(PlaceOf("n1", kAll) == kJob);
  CHECK(PlaceOf("n2", {"--nnodes=1:2", "--rdzv_endpoint=n2:1"}) == kJob);
}

TEST_CASE("slurm step: a step left over from another job, and the agent of a worker, are none") {
  CHECK(PlaceOf("n[7-9]", kAll) == kJob);
  CHECK(PlaceOf("n[1-3]", kAll, {"DDPRUN_JOB_MARK=x"}) == kJob);
}

TEST_CASE("slurm step: outside of a step an agent is nobody's") {
  CHECK(PlaceOf("n[1-3]", kAll, {"SLURM_STEP_ID="}) == ClusterPlace{});
}

}  // namespace
}  // namespace ddprun::launcher
