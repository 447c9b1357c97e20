// What limits restarts beside --max-restarts.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "tests/launcher/cli/parse.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("restart options: all are off unless asked for") {
  CHECK(Config({"p"}).limits == rendezvous::RestartLimits{});
  CHECK(Config({"--max-restarts=3", "p"}).limits == rendezvous::RestartLimits{});
}

TEST_CASE("restart options: how often the same failure may come") {
  // Two are allowed, and the third ends the job.
  const LaunchConfig config = Config({"--max-restarts=3", "--max-same-failures=2", "p"});
  CHECK(config.limits.max_same_failure == 3);
  CHECK(config.warnings.empty());
  CHECK(Config({"--max-restarts=3", "p"}, {"PET_MAX_SAME_FAILURES=4"}).limits.max_same_failure ==
        5);
  for (const std::string bad : {"0", "-2", "x", "", "2.5"}) {
    CAPTURE(bad);
    CHECK(ErrorOf({"--max-same-failures=" + bad, "p"}) ==
          "--max-same-failures '" + bad + "': expected a number from 1 to 1000000");
  }
}

TEST_CASE("restart options: --max_same_failure counts the last failure, too, and says so") {
  const LaunchConfig config = Config({"--max-restarts=3", "--max-same-failure=2", "p"});
  CHECK(config.limits.max_same_failure == 2);
  CHECK(config.warnings ==
        Words{"--max-same-failure is an old name: instead of --max-same-failure=N write "
              "--max-same-failures=N-1 (deprecated since ddprun 0.1.0)"});
  CHECK(ErrorOf({"--max-same-failure=1", "p"}) ==
        "--max-same-failure '1': expected a number from 2 to 1000000");
  CHECK(ErrorOf({"--max-same-failure=2", "--max-same-failures=1", "p"}) ==
        "--max-same-failures is given by its old name, too: expected one of them");
  const auto limit = [](const Words& words, const Words& variables) {
    return Config(words, variables).limits.max_same_failure;
  };
  // The same option: what wins does not hang on the name.
  CHECK(limit({"--max-restarts=3", "p"}, {"PET_MAX_SAME_FAILURE=4"}) == 4);
  CHECK(limit({"--max-restarts=3", "--max-same-failures=1", "p"}, {"PET_MAX_SAME_FAILURE=9"}) == 2);
  CHECK(limit({"--max-restarts=3", "--max-same-failure=3", "p"}, {"PET_MAX_SAME_FAILURES=9"}) == 3);
  // Cut short, either could be meant.
  CHECK(ErrorOf({"--max_same_fail=2", "p"}).find("option '--max_same_fail' could be --") == 0);
}

TEST_CASE("restart options: losses, preemptions, back-off and the period") {
  const LaunchConfig config =
      Config({"--max-restarts=3", "--max-node-losses=0", "--max-preemptions=7",
              "--restart-backoff=0.5", "--restart-budget-period=3600", "p"});
  CHECK(config.warnings.empty());
  CHECK(config.limits.max_node_losses == 0);
  CHECK(config.limits.max_preemptions == 7);
  CHECK(config.limits.backoff == std::chrono::milliseconds(500));
  CHECK(config.limits.budget_period == std::chrono::hours(1));
  CHECK(Config({"--max-restarts=3", "p"}, {"PET_RESTART_BACKOFF=2"}).limits.backoff ==
        std::chrono::seconds(2));
  for (const std::string option :
       {"--max-node-losses", "--max-preemptions", "--restart-backoff", "--restart-budget-period"}) {
    for (const std::string bad : {"-1", "x", ""}) {
      CAPTURE(option);
      CAPTURE(bad);
      CHECK(ErrorOf({option + "=" + bad, "p"}).find(option + " '" + bad + "': expected ") == 0);
    }
  }
  CHECK(ErrorOf({"--restart-backoff=0", "p"}).find("--restart-backoff '0'") == 0);
}

TEST_CASE("restart options: with a range of nodes losses are limited without restarts, too") {
  CHECK(Config({"--nnodes=1:2", "--rdzv-endpoint=h", "--max-node-losses=2", "p"}).warnings.empty());
  const LaunchConfig config =
      Config({"--nnodes=2", "--rdzv-endpoint=h", "--max-node-losses=2", "p"});
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0] ==
        "--max-node-losses is not used: with --max-restarts=0, the default, the first failure or "
        "loss of a node ends the job");
}

TEST_CASE("restart options: without restarts one line says that they limit nothing") {
  const LaunchConfig config = Config({"p"}, {"PET_MAX_SAME_FAILURES=2"});
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0] ==
        "PET_MAX_SAME_FAILURES is not used: with --max-restarts=0, the default, no failure is "
        "followed by a restart");
}

TEST_CASE("restart options: when a running job takes nodes in") {
  using rendezvous::ScaleUp;
  const Words elastic = {"--nnodes=1:3", "--rdzv-endpoint=h"};
  const auto of = [&](const std::string& option, const Words& variables) {
    Words words = elastic;
    if (!option.empty()) words.push_back(option);
    words.push_back("p");
    const LaunchConfig config = Config(words, variables);
    CHECK(config.warnings.empty());
    return config.scale_up;
  };
  CHECK(of("", {}) == ScaleUp::kNow);
  CHECK(of("--scale-up=now", {}) == ScaleUp::kNow);
  CHECK(of("--scale-up=graceful", {}) == ScaleUp::kGraceful);
  CHECK(of("--scale_up=restart", {}) == ScaleUp::kRestart);
  CHECK(of("", {"DDPRUN_SCALE_UP=graceful"}) == ScaleUp::kGraceful);
  for (const std::string bad : {"", "never", "Now", "now,graceful"}) {
    CAPTURE(bad);
    CHECK(ErrorOf({"--scale-up=" + bad, "p"}) ==
          "--scale-up '" + bad + "': expected now, graceful or restart");
  }
  CHECK(Config({"--scale-up=restart", "p"}).warnings ==
        Words{"--scale-up is not used: the number of nodes is fixed; expected --nnodes=MIN:MAX"});
}

}  // namespace
}  // namespace ddprun::launcher
