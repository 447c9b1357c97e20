#include "tests/sim/seeds.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

namespace ddprun::sim {
namespace {

constexpr uint64_t kToldOfAKind = 2;  // more of them say little more

// "S5" of "S5: rank 3 starts twice".
std::string KindOf(const RunResult& result) {
  if (result.breaches.empty()) return "";
  return result.breaches.front().substr(0, result.breaches.front().find(':'));
}

void Tell(uint64_t seed, const SeedRange& range, const RunResult& result) {
  std::printf("seed %llu breaks:\n", static_cast<unsigned long long>(seed));
  for (const std::string& breach : result.breaches) std::printf("  %s\n", breach.c_str());
  const Scenario smallest = Minimise(DrawScenario(seed, range.node_count, range.is_elected));
  std::printf("%sthe faults that are needed for it:\n", Describe(smallest).c_str());
  for (const Fault& fault : smallest.faults) std::printf("  %s\n", Describe(fault).c_str());
  for (const std::string& breach : RunScenario(smallest, range.is_loud).breaches) {
    std::printf("  => %s\n", breach.c_str());
  }
  std::printf("replay: tools/sim --seed %llu%s%s\n", static_cast<unsigned long long>(seed),
              range.node_count > 0 ? (" --nodes " + std::to_string(range.node_count)).c_str() : "",
              range.is_elected ? " --elected" : "");
}

}  // namespace

Scenario Minimise(const Scenario& scenario) {
  Scenario smallest = scenario;
  const std::string kind = KindOf(RunScenario(scenario, false));
  const auto without = [&smallest](size_t first, size_t count) {
    Scenario fewer = smallest;
    const auto begin = fewer.faults.begin() + static_cast<ptrdiff_t>(first);
    fewer.faults.erase(begin, begin + static_cast<ptrdiff_t>(count));
    return fewer;
  };
  for (size_t part = smallest.faults.size(); part >= 1;) {
    bool has_shrunk = false;
    for (size_t first = 0; first < smallest.faults.size();) {
      const size_t count = std::min(part, smallest.faults.size() - first);
      Scenario fewer = without(first, count);
      if (KindOf(RunScenario(fewer, false)) != kind) {
        first += count;
      } else {
        smallest = std::move(fewer);
        has_shrunk = true;
      }
    }
    if (part == 1 && !has_shrunk) break;
    part = std::max<size_t>(1, part / 2);
    if (smallest.faults.empty()) break;
  }
  return smallest;
}

uint64_t RunSeeds(SeedRange& range) {
  uint64_t broken = 0;
  std::map<std::string, uint64_t> kinds;  // by the first breach: "S5"
  uint64_t steps = 0;
  Duration simulated{0};
  for (uint64_t seed = range.first; seed < range.first + range.count; ++seed) {
    const Scenario scenario = DrawScenario(seed, range.node_count, range.is_elected);
    if (range.is_loud) std::printf("%s", Describe(scenario).c_str());
    const RunResult result = RunScenario(scenario, range.is_loud);
    steps += result.steps;
    simulated += result.simulated;
    range.tally.Add(result.tally);
    if (result.breaches.empty()) continue;
    ++broken;
    if (++kinds[KindOf(result)] <= kToldOfAKind) Tell(seed, range, result);
  }
  for (const auto& [kind, count] : kinds) {
    std::printf("%s: %llu seeds\n", kind.c_str(), static_cast<unsigned long long>(count));
  }
  const Tally& tally = range.tally;
  std::printf(
      "rounds %d, successes %d, failures %d, given up %d, losses %d, coordinator starts %d, "
      "rounds taken over %d, restarts %d, stops %d, takeovers %d, arrivals %d, room made %d\n",
      tally.rounds, tally.successes, tally.failures, tally.given_up, tally.losses,
      tally.coordinator_starts, tally.readopted, tally.restarts, tally.stops, tally.takeovers,
      tally.arrivals, tally.made_room);
  std::printf("%llu steps, %.1f simulated hours\n", static_cast<unsigned long long>(steps),
              std::chrono::duration<double>(simulated).count() / 3600);
  std::printf("%llu seeds, %llu breaches\n", static_cast<unsigned long long>(range.count),
              static_cast<unsigned long long>(broken));
  return broken;
}

}  // namespace ddprun::sim
