// sim: runs seeds of the simulator. tools/sim builds and calls it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/sim/seeds.h"

namespace {

constexpr char kUsage[] =
    "usage: sim [--seeds N] [--seed S] [--nodes N] [--elected]\n"
    "  --seeds N    how many (10000)\n"
    "  --seed S     the first of them (1); without --seeds this one alone, printing all that "
    "happens in it\n"
    "  --nodes N    so many nodes at most in every job; without it the seed decides\n"
    "  --elected    jobs whose coordinator lives in the agent that etcd names\n";

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
