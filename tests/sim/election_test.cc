// The election of a job's leader in etcd, over many seeds, and once more without its guards.
#include "tests/sim/election.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

namespace ddprun::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 100;  // instrumented code is several times slower
#else
constexpr uint64_t kSeeds = 1000;
#endif
constexpr uint64_t kMutantSeeds = 2000;

// DDPRUN_TEST_SEEDS: another number of them.
uint64_t Seeds() {
  const char* wanted = std::getenv("DDPRUN_TEST_SEEDS");
  return wanted == nullptr ? kSeeds : std::strtoull(wanted, nullptr, 10);
}

TEST_CASE("election: at most one leads, no record goes back, and behind the faults one leads") {
  ElectionResult all;
  uint64_t broken = 0;
  const uint64_t seeds = Seeds();
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const ElectionResult result = RunElection(seed, ElectionMutant::kNone);
    all.takeovers += result.takeovers;
    all.losses += result.losses;
    all.records += result.records;
    if (result.breach.empty()) continue;
    if (++broken <= 5) MESSAGE("seed ", seed, ": ", result.breach);
  }
  std::printf("%llu seeds, %llu breaches; takeovers %d, places lost %d, durable records %d\n",
              static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(broken),
              all.takeovers, all.losses, all.records);
  CHECK(broken == 0);
  CHECK(all.takeovers > static_cast<int>(seeds) / 2);
  CHECK(all.losses > static_cast<int>(seeds) / 10);
  CHECK(all.records > 10 * static_cast<int>(seeds));
}

TEST_CASE("election: a seed runs alike every time") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CHECK(RunElection(seed, ElectionMutant::kNone).hash ==
          RunElection(seed, ElectionMutant::kNone).hash);
  }
}

TEST_CASE("election: what is left out of a transaction, or of a leader's patience, is missed") {
  for (const auto& [mutant, name] :
       {std::pair{ElectionMutant::kNoFence, "records without the fence"},
        std::pair{ElectionMutant::kNoCompare, "records without comparing"},
        std::pair{ElectionMutant::kNoRevision, "a takeover without the fence"},
        std::pair{ElectionMutant::kTalksOverLease, "a leader without a lease"}}) {
    std::string breach;
    uint64_t seed = 0;
    while (breach.empty() && seed < kMutantSeeds) breach = RunElection(++seed, mutant).breach;
    std::printf("%s: seed %llu, %s\n", name, static_cast<unsigned long long>(seed),
                breach.empty() ? "NOT CAUGHT" : breach.c_str());
    CHECK_MESSAGE(!breach.empty(), std::string(name));
  }
}

}  // namespace
}  // namespace ddprun::sim
