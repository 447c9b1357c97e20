// sim: runs seeds of the simulator. tools/sim builds and calls it.
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "tests/sim/crowd.h"
#include "tests/sim/seeds.h"

namespace {

constexpr char kUsage[] =
    "usage: sim [--seeds N] [--seed S] [--nodes N] [--elected]\n"
    "       sim --crowd N\n"
    "  --seeds N    how many (10000)\n"
    "  --seed S     the first of them (1); without --seeds this one alone, printing all that "
    "happens in it\n"
    "  --nodes N    so many nodes at most in every job; without it the seed decides\n"
    "  --elected    jobs whose coordinator lives in the agent that etcd names\n"
    "  --crowd N    one job of so many nodes, 2 to 100000; a line of JSON for each phase of it\n";

int64_t PeakResident_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

int PrintCrowd(int nodes) {
  using Ms = std::chrono::duration<double, std::milli>;
  const ddprun::sim::CrowdResult crowd = ddprun::sim::RunCrowd(nodes);
  for (const ddprun::sim::CrowdPhase& phase : crowd.phases) {
    if (phase.took.count() < 0) {  // some node never heard it
      std::printf("{\"phase\": \"%s\"}\n", phase.name.c_str());
      continue;
    }
    std::printf(
        "{\"phase\": \"%s\", \"virtual_ms\": %.1f, \"said_a_node\": %.2f, \"told_a_node\": "
        "%.2f}\n",
        phase.name.c_str(), Ms(phase.took).count(), static_cast<double>(phase.sent.said) / nodes,
        static_cast<double>(phase.sent.told) / nodes);
  }
  for (const std::string& breach : crowd.run.breaches) std::printf("  %s\n", breach.c_str());
  std::printf(
      "{\"phase\": \"the whole run\", \"cpu_ms\": %.0f, \"steps\": %llu, \"kib_a_node\": %.1f}\n",
      1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC,
      static_cast<unsigned long long>(crowd.run.steps),
      static_cast<double>(PeakResident_kib()) / nodes);
  return crowd.run.breaches.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  ddprun::sim::SeedRange range;
  bool has_count = false;
  bool has_seed = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--elected") {
      range.is_elected = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    char* end = nullptr;
    const uint64_t number = value == nullptr ? 0 : std::strtoull(value, &end, 10);
    const bool is_number = value != nullptr && *value != '\0' && *end == '\0';
    if (name == "--seeds" && is_number) {
      range.count = number;
      has_count = true;
    } else if (name == "--seed" && is_number) {
      range.first = number;
      has_seed = true;
    } else if (name == "--crowd" && is_number && number >= 2 && number <= 100'000) {
      return PrintCrowd(static_cast<int>(number));
    } else if (name == "--nodes" && is_number && number <= 64) {
      range.node_count = static_cast<int>(number);
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (has_seed && !has_count) {
    range.count = 1;
    range.is_loud = true;
  }
  return ddprun::sim::RunSeeds(range) == 0 ? 0 : 1;
}
