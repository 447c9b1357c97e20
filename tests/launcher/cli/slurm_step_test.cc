#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <set>
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
LaunchConfig ConfigOf(const std::string& step, Words options, Words more = {}) {
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
  return std::get<LaunchConfig>(*result);
}

ClusterPlace PlaceOf(const std::string& step, Words options, Words more = {}) {
  return ConfigOf(step, std::move(options), std::move(more)).cluster;
}

const ClusterPlace kJob{.job = "Slurm job 12"};
const ClusterPlace kStep{.job = "Slurm job 12", .step = "Slurm step 12.0", .nodes = 3};
const Words kAll = {"--nnodes=3", "--rdzv-endpoint=n1:29400", "--rdzv-id=mine"};

TEST_CASE("slurm step: the coordinator is told of whom an agent is, whatever options say") {
  CHECK(PlaceOf("n[1-3]", kAll) == kStep);
  CHECK(PlaceOf("n[1-3]", kAll, {"DDPRUN_CLUSTER=none"}) == kStep);
}

TEST_CASE("slurm step: where the job is derived from the step all of its nodes have agents") {
  ClusterPlace place = kStep;
  place.node = 1;
  CHECK(PlaceOf("n[1-3]", {}) == place);
  CHECK(PlaceOf("n[1-3]", {"--nnodes=2", "--rdzv-id=mine"}) == place);
  // A job of its own on each node.
  CHECK(PlaceOf("n[1-3]", {"--nnodes=1", "--nproc-per-node=2"}) == kStep);
}

TEST_CASE("slurm step: a job of more nodes than the step's is one of several steps") {
  CHECK(PlaceOf("n1", kAll) == kJob);
  CHECK(PlaceOf("n2", {"--nnodes=1:2", "--rdzv-endpoint=n2:1"}) == kJob);
}

TEST_CASE("slurm step: a step left over from another job, and the agent of a worker, are none") {
  CHECK(PlaceOf("n[7-9]", kAll) == kJob);
  CHECK(PlaceOf("n[1-3]", kAll, {"DDPRUN_JOB_MARK=x"}) == kJob);
}

TEST_CASE("slurm step: outside of a step an agent is nobody's") {
  CHECK(PlaceOf("n[1-3]", kAll, {"SLURM_STEP_ID="}) == ClusterPlace{});
}

// All ports at which the nodes may meet.
std::vector<int> PortsOf(Words options, Words more = {}) {
  const LaunchConfig config = ConfigOf("n[1-3]", std::move(options), std::move(more));
  std::vector<int> ports = {config.endpoint.port};
  ports.insert(ports.end(), config.more_ports.begin(), config.more_ports.end());
  return ports;
}

TEST_CASE("slurm step: its nodes know the same four ports, first those that Slurm keeps for it") {
  const std::vector<int> own = PortsOf({});
  REQUIRE(own.size() == 4);
  CHECK(std::set<int>(own.begin(), own.end()).size() == 4);
  for (const int port : own) CHECK((port >= 20000 && port < 32000));
  CHECK(PortsOf({}, {"SLURM_NODEID=2", "SLURM_PROCID=2"}) == own);
  // The numbers beside it are other jobs' as soon as its own.
  CHECK(std::abs(own[1] - own[0]) > 1);
  const auto reserved = [](const std::string& ports) {
    return PortsOf({}, {"SLURM_STEP_RESV_PORTS=" + ports});
  };
  CHECK(reserved("12021-12022") == std::vector<int>{12021, 12022, own[1], own[2]});
  CHECK(reserved("12021,12030-12040") == std::vector<int>{12021, 12030, 12031, 12032});
  CHECK(reserved("65535-2147483647") == std::vector<int>{65535, own[1], own[2], own[3]});
  CHECK(reserved("(null)") == own);
}

TEST_CASE("slurm step: other ports are tried where port and run id are the step's, by all alike") {
  CHECK(PortsOf({"--rdzv-id=mine"}).size() == 1);
  CHECK(PortsOf({"--rdzv-conf=is_host=1"}).size() == 1);
  CHECK(PortsOf({"--nnodes=3", "--rdzv-endpoint=n1:29400"}) == std::vector<int>{29400});
  CHECK(PortsOf({"--nnodes=2:3"}).size() == 4);
}

TEST_CASE("slurm step: the node that may host is the first one") {
  const auto is_host = [](const std::string& node, Words options) {
    return ConfigOf("n[1-3]", std::move(options), {"SLURM_NODEID=" + node})
        .rendezvous_options.is_host;
  };
  CHECK(is_host("0", {}) == std::nullopt);  // if the endpoint's name is its own, too
  CHECK(is_host("1", {}) == false);
  CHECK(is_host("1", {"--nnodes=2"}) == false);
  CHECK(is_host("1", {"--rdzv-id=mine"}) == std::nullopt);
}

}  // namespace
}  // namespace ddprun::launcher
