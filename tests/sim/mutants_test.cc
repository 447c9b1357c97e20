// Each planted fault is found. `tools/sim --mutants` runs this alone.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "tests/sim/cluster.h"
#include "tests/sim/mutant.h"
#include "tests/sim/scenario.h"

namespace ddprun::sim {
namespace {

constexpr uint64_t kSeeds = 3000;        // for each fault, at most
constexpr uint64_t kControlSeeds = 200;  // without any fault

// The first seed up to `seeds` that breaks something, and what; 0: none does. With etcd and
// without.
uint64_t FirstBreach(uint64_t seeds, std::string& breach) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const bool is_elected : {false, true}) {
      const RunResult result = RunScenario(DrawScenario(seed, 0, is_elected), false);
      if (result.breaches.empty()) continue;
      breach = (is_elected ? "with etcd, " : "") + result.breaches.front();
      return seed;
    }
  }
  return 0;
}

TEST_CASE("sim: every planted fault is found, and without one nothing is") {
  std::string breach;
  CHECK_MESSAGE(FirstBreach(kControlSeeds, breach) == 0, breach);
  const int count = static_cast<int>(MutantNames().size());
  int caught = 0;
  for (int mutant = 1; mutant <= count; ++mutant) {
    SetMutant(mutant);
    const uint64_t seed = FirstBreach(kSeeds, breach);
    const char* name = MutantNames()[static_cast<size_t>(mutant) - 1].c_str();
    std::printf(
        "%2d %s: %s\n", mutant, name,
        seed == 0 ? "NOT CAUGHT" : ("seed " + std::to_string(seed) + ", " + breach).c_str());
    caught += seed == 0 ? 0 : 1;
  }
  SetMutant(0);
  std::printf("%d of %d caught\n", caught, count);
  CHECK(count == 21);
  CHECK(caught == count);
}

}  // namespace
}  // namespace ddprun::sim
