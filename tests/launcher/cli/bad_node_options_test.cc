// --health-check, --max-node-failures, and what belongs to them.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "tests/launcher/cli/parse.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

TEST_CASE("bad node options: no node is bad unless it is asked for") {
  const LaunchConfig config = Config({"p"});
  CHECK(config.bad_nodes == rendezvous::BadNodeRules{});
  CHECK(config.health_check.empty());
  CHECK(config.on_bad_node.empty());
}

TEST_CASE("bad node options: a check, with its defaults and with values") {
  const LaunchConfig config = Config({"--health-check=/opt/check --fast", "p"});
  CHECK(config.health_check == "/opt/check --fast");
  CHECK(config.bad_nodes ==
        rendezvous::BadNodeRules{
            .has_check = true, .check_timeout = 60s, .quarantine = 1h, .max_bad_nodes = 3});
  CHECK(config.warnings.empty());
  const LaunchConfig all = Config(
      {"--health-check=c", "--health-timeout=2.5", "--health-unknown=refuse", "--quarantine=10",
       "--max-bad-nodes=0", "--max-node-failures=2:20", "--on-bad-node=cordon", "p"});
  CHECK(all.bad_nodes == rendezvous::BadNodeRules{.has_check = true,
                                                  .check_timeout = 2500ms,
                                                  .refuses_unknown = true,
                                                  .max_failures = 2,
                                                  .failure_rounds = 20,
                                                  .quarantine = 10s,
                                                  .max_bad_nodes = 0});
  CHECK(all.on_bad_node == "cordon");
  CHECK(Config({"p"}, {"DDPRUN_HEALTH_CHECK=c"}).bad_nodes.has_check);
}

TEST_CASE("bad node options: first failures need no check") {
  const LaunchConfig config = Config({"--max-node-failures=1", "p"});
  CHECK(config.bad_nodes ==
        rendezvous::BadNodeRules{
            .max_failures = 1, .failure_rounds = 10, .quarantine = 1h, .max_bad_nodes = 3});
  CHECK(config.warnings.empty());
}

TEST_CASE("bad node options: what is wrong is refused") {
  for (const std::string bad : {"", "x", "-1", "1:", ":5", "1:0", "5:5", "1:2:3"}) {
    CAPTURE(bad);
    CHECK(ErrorOf({"--max-node-failures=" + bad, "p"}) ==
          "--max-node-failures '" + bad +
              "': expected N or N:ROUNDS, as 1:10, with N from 0 and more ROUNDS than N");
  }
  CHECK(ErrorOf({"--health-unknown=maybe", "p"}) ==
        "--health-unknown 'maybe': expected admit or refuse");
  CHECK(ErrorOf({"--health-check= ", "p"}) == "--health-check ' ': expected a command");
  CHECK(ErrorOf({"--health-timeout=0", "p"}) != "accepted");
  CHECK(ErrorOf({"--quarantine=0", "p"}) != "accepted");
  CHECK(ErrorOf({"--max-bad-nodes=-1", "p"}) != "accepted");
}

TEST_CASE("bad node options: what has no use is said, and makes no difference to other nodes") {
  const LaunchConfig config = Config({"--quarantine=5", "--on-bad-node=c", "p"});
  CHECK(config.bad_nodes == rendezvous::BadNodeRules{});
  CHECK(config.warnings ==
        Words{"--quarantine is not used: no node is found bad without --health-check or "
              "--max-node-failures",
              "--on-bad-node is not used: no node is found bad without --health-check or "
              "--max-node-failures"});
  const LaunchConfig unchecked = Config({"--max-node-failures=1", "--health-timeout=5", "p"});
  CHECK(unchecked.bad_nodes.check_timeout == Duration{0});
  CHECK(unchecked.warnings == Words{"--health-timeout is not used: there is no --health-check"});
  CHECK(Config({"--health-check=c", "--on-bad-node=c", "p"}).warnings ==
        Words{"--on-bad-node is not used: a job of one node ends with its bad node"});
}

TEST_CASE("bad node options: a coordinator of its own tells the site") {
  const auto result = Parse({"coordinator", "--on-bad-node=cordon"});
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  CHECK(std::get<CoordinatorOptions>(*result).on_bad_node == "cordon");
}

}  // namespace
}  // namespace ddprun::launcher
