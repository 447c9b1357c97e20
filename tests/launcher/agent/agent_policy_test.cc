#include "launcher/agent/agent_policy.h"

#include <doctest/doctest.h>

#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

TEST_CASE("agent policy: what the user asked for reaches the coordinator and the agent") {
  LaunchConfig config;
  config.nodes = {2, 4};
  config.workers_per_node = 8;
  config.run_id = "job1";
  config.rendezvous = RendezvousKind::kC10d;
  config.max_restarts = 3;
  config.shutdown_timeout = 7s;
  config.local_addr = "10.0.0.9";
  config.role = "trainer";
  config.signals_to_handle = "SIGUSR1";
  config.more_stop_signals = {10};
  config.rendezvous_options.join_timeout = 11s;
  config.rendezvous_options.last_call = 12s;
  config.rendezvous_options.evict_after = 13s;
  config.rendezvous_options.orphan_timeout = 14s;

  const rendezvous::Policy policy = RendezvousPolicyOf(config);
  CHECK(policy.run_id == "job1");
  CHECK(policy.min_nodes == 2);
  CHECK(policy.max_nodes == 4);
  CHECK(policy.max_restarts == 3);
  CHECK(policy.join_timeout == 11s);
  CHECK(policy.last_call == 12s);
  CHECK(policy.evict_after == 13s);
  CHECK_FALSE(policy.is_static);
  const AgentPolicy agent = AgentPolicyOf(config);
  CHECK(agent.local_world_size == 8);
  CHECK(agent.shutdown_timeout == 7s);
  CHECK(agent.orphan_timeout == 14s);
  CHECK(agent.more_stop_signals == std::vector<int>{10});
  const WorkerEnvInput workers = WorkerEnvInputOf(config, {.world_size = 16}, "m4rk");
  CHECK(workers.assignment.world_size == 16);
  CHECK(workers.local_world_size == 8);
  CHECK(workers.run_id == "job1");
  CHECK(workers.role == "trainer");
  CHECK(workers.job_mark == "m4rk");
  CHECK(workers.signals_to_handle == "SIGUSR1");
  CHECK(workers.use_agent_store);
  const rendezvous::NodeInfo node = NodeInfoOf(config);
  CHECK(node.local_world_size == 8);
  CHECK(node.advertised_addr == "10.0.0.9");
  CHECK(node.role == "trainer");
  CHECK(node.node_rank == -1);
}

TEST_CASE("agent policy: a loopback address is one in every spelling that connects there") {
  LaunchConfig config;
  config.rendezvous = RendezvousKind::kC10d;
  const auto place = [&config](const std::string& host) {
    config.endpoint.host = host;
    return LoopbackOf(config);
  };
  for (const std::string host : {"localhost", "LOCALHOST", "LocalHost"}) {
    CHECK(place(host) == "localhost");
  }
  for (const std::string host :
       {"127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0177.0.0.01", "0x7f000001", "2130706433",
        "::ffff:127.0.0.1", "::FFFF:127.0.0.1"}) {
    CAPTURE(host);
    CHECK(place(host) == "127.0.0.1");
  }
  CHECK(place("127.1.2.3") == "127.1.2.3");
  CHECK(place("127.65536") == "127.1.0.0");
  for (const std::string host : {"::1", "0:0:0:0:0:0:0:1", "::0001", "0::1"}) {
    CAPTURE(host);
    CHECK(place(host) == "::1");
  }
  for (const std::string host : {"localhost.",
                                 "local",
                                 "127",
                                 "128.1",
                                 "127.0.0.256",
                                 "127.0.0.08",
                                 "127.0.0.1.1",
                                 "127.",
                                 ".127",
                                 "127.0x",
                                 "10.0.0.1",
                                 "::",
                                 "::2",
                                 "::10",
                                 "1::",
                                 "::1:1",
                                 "0x7f",
                                 "4294967296",
                                 "127.16777216",
                                 "",
                                 "99999999999999999999999",
                                 "::ffff:10.0.0.1",
                                 "node-127.0.0.1"}) {
    CAPTURE(host);
    CHECK(place(host) == "");
  }
  config.endpoint.host = "localhost";
  config.is_endpoint_assumed = true;
  CHECK(LoopbackOf(config) == "");
  // With static all workers are told it.
  config.rendezvous = RendezvousKind::kStatic;
  CHECK(LoopbackOf(config) == "localhost");
  config.is_endpoint_assumed = false;
  CHECK(LoopbackOf(config) == "localhost");
  config.endpoint.host = "head-node";
  CHECK(LoopbackOf(config) == "");
}

TEST_CASE("agent policy: with etcd a job of one node on loopback alone has no network to trust") {
  LaunchConfig config;
  config.rendezvous = RendezvousKind::kEtcd;
  config.etcd_members = {{"127.0.0.1", 2379}, {"localhost", 2379}};
  CHECK(TrustLine(config, false) == "");
  config.local_addr = "10.0.0.7";
  CHECK(TrustLine(config, false) == TrustText(false));
  config.local_addr = "";
  config.nodes = {1, 2};
  CHECK(TrustLine(config, false) == TrustText(false));
  config.nodes = {1, 1};
  for (const char* elsewhere : {"127.example.org", "10.0.0.7"}) {
    config.etcd_members[1].host = elsewhere;
    CHECK_MESSAGE(TrustLine(config, false) == TrustText(false), elsewhere);
  }
}

TEST_CASE("agent policy: by default a killed agent is known to the others within 15 s") {
  const LaunchConfig config;
  // A second more for the machine's tick, which finds those that are silent.
  CHECK(RendezvousPolicyOf(config).evict_after + 1s <= 15s);
  // Where the killed one coordinated, the port refuses.
  CHECK(AgentPolicyOf(config).gone_grace <= 15s);
}

TEST_CASE("agent policy: with static the store's address is the endpoint as it was given") {
  LaunchConfig config;
  config.rendezvous = RendezvousKind::kStatic;
  config.endpoint = {"head", 29500};
  config.node_rank = 1;
  const rendezvous::Policy policy = RendezvousPolicyOf(config);
  CHECK(policy.is_static);
  CHECK(policy.static_master_addr == "head");
  CHECK(policy.static_master_port == 29500);
  CHECK(NodeInfoOf(config).node_rank == 1);
}

TEST_CASE(
    "agent policy: those that wait for other nodes hear that loopback is this machine alone") {
  LaunchConfig config;
  config.rendezvous = RendezvousKind::kC10d;
  config.nodes = {2, 2};
  config.endpoint = {"localhost", 29400};
  CHECK(RendezvousPolicyOf(config).meeting_place ==
        "localhost:29400 (this machine alone; if nodes are on others, give --rdzv-endpoint a host "
        "name that all can reach)");
  config.nodes = {1, 1};
  CHECK(RendezvousPolicyOf(config).meeting_place == "");
  config.nodes = {2, 2};
  config.endpoint = {"node1", 29400};
  CHECK(RendezvousPolicyOf(config).meeting_place == "");
  config.rendezvous = RendezvousKind::kStatic;
  config.endpoint = {"127.0.0.1", 29500};
  CHECK(RendezvousPolicyOf(config).meeting_place == testing::Contains("give --master-addr a host"));
}

TEST_CASE("agent policy: those that wait hear of an endpoint that nobody named") {
  LaunchConfig config;
  config.endpoint = {"127.0.0.1", 29500};
  CHECK(RendezvousPolicyOf(config).meeting_place == "");
  config.is_endpoint_assumed = true;
  CHECK(RendezvousPolicyOf(config).meeting_place ==
        "127.0.0.1:29500 (of this host alone, as no --rdzv-endpoint was given)");
  config.rendezvous = RendezvousKind::kStatic;
  CHECK(RendezvousPolicyOf(config).meeting_place ==
        "127.0.0.1:29500 (of this host alone, as no --master-addr was given)");
}

}  // namespace
}  // namespace ddprun::launcher
