// Thousands of seeds of nonsense against the machine, every invariant after every step, then calm
// and an end. DDPRUN_SEED=N replays one seed and prints its steps.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/sim/random_agents.h"

namespace ddprun::rendezvous::testing {
namespace {

#ifndef DDPRUN_TEST_SEEDS
#define DDPRUN_TEST_SEEDS 1200
#endif
constexpr uint64_t kSeeds = DDPRUN_TEST_SEEDS;

// Runs one seed; false, with everything that tells why, when it broke something.
bool RunSeed(uint64_t seed, Tally& tally, bool is_loud) {
  RandomAgents agents(seed, is_loud);
  for (int i = 0; i < 8 && agents.job().broken().empty(); ++i) agents.Misbehave(10);
  const bool has_ended = agents.job().broken().empty() && agents.Settle();
  agents.AddTo(tally);
  if (agents.job().broken().empty() && has_ended) return true;
  MESSAGE("seed " << seed << (has_ended ? ":\n" : " did not end:\n") << agents.Describe());
  for (const std::string& breach : agents.job().broken()) {
    MESSAGE("seed " << seed << ": " << breach);
  }
  return false;
}

TEST_CASE("machine: no history breaks an invariant, and calm brings every job to its end") {
  Tally tally;
  if (const char* one = std::getenv("DDPRUN_SEED")) {
    CHECK(RunSeed(std::strtoull(one, nullptr, 10), tally, true));
    return;
  }
  int broken = 0;
  for (uint64_t seed = 1; seed <= kSeeds && broken < 3; ++seed) {
    if (!RunSeed(seed, tally, false)) ++broken;
  }
  CHECK(broken == 0);
  MESSAGE("steps " << tally.steps << ", rounds " << tally.rounds << ", successes "
                   << tally.successes << ", failures " << tally.failures << ", given up "
                   << tally.given_up << ", losses " << tally.losses << ", finished "
                   << tally.finished << ", restarts " << tally.restarts);
  // What was to be seen was seen often.
  // A coordinator that is started again after the end of its job begins another.
  CHECK(tally.finished >= static_cast<int>(kSeeds));
  CHECK(tally.rounds > 1000);
  CHECK(tally.successes > 300);
  CHECK(tally.failures > 300);
  CHECK(tally.given_up > 30);
  CHECK(tally.losses > 100);
  CHECK(tally.restarts > 1000);
  CHECK(tally.stops > 30);
  CHECK(tally.bad_nodes > 60);
}

}  // namespace
}  // namespace ddprun::rendezvous::testing
