#include "rendezvous/server/hosting.h"

#include <doctest/doctest.h>

#include "rendezvous/base/steady_clock.h"

namespace ddprun::rendezvous {
namespace {

RendezvousOptions DynamicAt(const std::string& host) {
  RendezvousOptions options;
  options.mode = RendezvousOptions::Mode::kDynamic;
  options.endpoint_host = host;
  options.endpoint_port = 29400;
  return options;
}

SocketAddress Ip(const std::string& text) {
  const Interrupt interrupt;
  const Resolution found = ResolveName(text, 29400, Duration{0}, interrupt);
  REQUIRE(found.outcome == Resolution::Outcome::kFound);
  return found.addresses.front();
}

TEST_CASE("hosting: the machine's own name hosts without asking a resolver") {
  const MachineNames short_name{"node1", {"10.0.0.1"}};
  const MachineNames full_name{"node1.cluster.example", {"10.0.0.1"}};
  CHECK(HostsByName(DynamicAt("node1"), short_name) == true);
  CHECK(HostsByName(DynamicAt("NODE1."), short_name) == true);
  CHECK(HostsByName(DynamicAt("node1"), full_name) == true);
  CHECK(HostsByName(DynamicAt("node1.cluster.example"), full_name) == true);
  CHECK(HostsByName(DynamicAt("localhost"), short_name) == true);
  CHECK_FALSE(HostsByName(DynamicAt("node1.other.example"), full_name).has_value());
  CHECK_FALSE(HostsByName(DynamicAt("node2"), short_name).has_value());
}

TEST_CASE("hosting: the user's word and the static rank decide") {
  const MachineNames machine{"node1", {}};
  RendezvousOptions options = DynamicAt("node1");
  options.is_host = false;
  CHECK(HostsByName(options, machine) == false);
  options = DynamicAt("elsewhere");
  options.is_host = true;
  CHECK(HostsByName(options, machine) == true);
  options.mode = RendezvousOptions::Mode::kStatic;
  options.node_rank = 1;
  CHECK(HostsByName(options, machine) == false);
  options.node_rank = 0;
  CHECK(HostsByName(options, machine) == true);
}

TEST_CASE("hosting: a name that maps to 127.0.1.1 or to an interface is this machine") {
  const MachineNames machine{"node1", {"127.0.0.1", "10.0.0.1", "fd00::1"}};
  CHECK(HostsByAddress({Ip("127.0.1.1")}, machine));
  CHECK(HostsByAddress({Ip("::1")}, machine));
  CHECK(HostsByAddress({Ip("10.0.0.9"), Ip("10.0.0.1")}, machine));
  CHECK(HostsByAddress({Ip("::ffff:10.0.0.1")}, machine));
  CHECK(HostsByAddress({Ip("fd00::1")}, machine));
  CHECK_FALSE(HostsByAddress({Ip("10.0.0.9")}, machine));
}

TEST_CASE("hosting: this machine has a name and a loopback address") {
  const MachineNames machine = ThisMachine();
  CHECK_FALSE(machine.host_name.empty());
  bool has_loopback = false;
  for (const std::string& address : machine.addresses) {
    has_loopback = has_loopback || address == "127.0.0.1";
  }
  CHECK(has_loopback);
}

TEST_CASE("resolver: a name that cannot be is final, and an interrupt ends the wait") {
  const Interrupt interrupt;
  CHECK(ResolveName("-not a name-", 1, std::chrono::seconds(30), interrupt).outcome !=
        Resolution::Outcome::kFound);
  interrupt.Set();
  CHECK(ResolveName("some.name.example", 1, std::chrono::hours(1), interrupt).outcome ==
        Resolution::Outcome::kInterrupted);
}

}  // namespace
}  // namespace ddprun::rendezvous
