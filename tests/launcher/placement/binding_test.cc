#include "launcher/placement/binding.h"

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

using Sets = std::vector<CpuSet>;

// Two sockets; node 1 has memory only, node 2 is the other socket.
Topology TwoSockets() {
  Topology topology;
  topology.nodes = {{0, {.cpus = {0, 1, 2, 3, 4}, .package = 0}},
                    {1, {.cpus = {}, .package = 0}},
                    {2, {.cpus = {5, 6}, .package = 1}},
                    {3, {.cpus = {7}, .package = 1}}};
  return topology;
}

Sets Bind(NumaBinding binding, const Topology& topology, const std::vector<int>& device_nodes) {
  const auto bound =
      BindWorkers(binding, topology, device_nodes, static_cast<int>(device_nodes.size()));
  REQUIRE_MESSAGE(bound.ok(), bound.status().message());
  return *bound;
}

std::string ErrorOf(NumaBinding binding, const Topology& topology,
                    const std::vector<int>& device_nodes) {
  const auto bound =
      BindWorkers(binding, topology, device_nodes, static_cast<int>(device_nodes.size()));
  REQUIRE_FALSE(bound.ok());
  CHECK(absl::IsFailedPrecondition(bound.status()));
  return std::string(bound.status().message());
}

TEST_CASE("binding: node and socket follow the device") {
  CHECK(Bind(NumaBinding::kNode, TwoSockets(), {2, 0}) == Sets{{5, 6}, {0, 1, 2, 3, 4}});
  CHECK(Bind(NumaBinding::kSocket, TwoSockets(), {2, 0}) == Sets{{5, 6, 7}, {0, 1, 2, 3, 4}});
}

TEST_CASE("binding: exclusive gives the first devices the cores that are left over") {
  Topology topology = TwoSockets();
  // Five threads on four cores, the first with two; CPU 4's leader is not allowed.
  topology.leader_of = {{0, 0}, {1, 0}, {2, 2}, {3, 3}, {4, 100}, {5, 5}, {6, 6}, {7, 7}};
  CHECK(Bind(NumaBinding::kExclusive, topology, {0, 2, 0, 0}) == Sets{{0, 1, 2}, {5, 6}, {3}, {4}});
}

TEST_CASE("binding: devices without a worker have their share too") {
  Topology topology = TwoSockets();
  topology.leader_of = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}, {7, 7}};
  const auto bound = BindWorkers(NumaBinding::kExclusive, topology, {2, 2}, 1);
  REQUIRE(bound.ok());
  CHECK(*bound == Sets{{5}});
}

TEST_CASE("binding: core-complex takes the largest first and begins anew after the last") {
  Topology topology = TwoSockets();
  topology.leader_of = {{0, 0}, {1, 1}, {2, 1}, {3, 3}, {4, 3}};
  CHECK(Bind(NumaBinding::kCoreComplex, topology, {0, 0, 0, 0}) ==
        Sets{{1, 2}, {3, 4}, {0}, {1, 2}});
}

TEST_CASE("binding: a worker without a CPU is named, with why") {
  Topology topology = TwoSockets();
  topology.leader_of = {{5, 5}, {6, 5}};
  CHECK(ErrorOf(NumaBinding::kNode, topology, {0, 1}) ==
        "local rank 1: NUMA node 1 has no CPU that this process may use");
  CHECK(ErrorOf(NumaBinding::kSocket, topology, {9}) ==
        "local rank 0: the kernel has no NUMA node 9 in /sys/devices/system/node");
  CHECK(ErrorOf(NumaBinding::kExclusive, topology, {2, 2}) ==
        "local rank 0: NUMA node 2 has 1 physical cores for 2 workers; --numa-binding=node lets "
        "them share");
}

TEST_CASE("binding: workers without GPUs are spread in equal blocks over the nodes with CPUs") {
  const Topology topology = TwoSockets();
  CHECK(SpreadOverNodes(topology, 1) == std::vector<int>{0});
  CHECK(SpreadOverNodes(topology, 3) == std::vector<int>{0, 2, 3});
  CHECK(SpreadOverNodes(topology, 6) == std::vector<int>{0, 0, 2, 2, 3, 3});
  CHECK(SpreadOverNodes(topology, 7) == std::vector<int>{0, 0, 0, 2, 2, 3, 3});
  CHECK(SpreadOverNodes(Topology{}, 2).empty());
}

}  // namespace
}  // namespace ddprun::launcher
