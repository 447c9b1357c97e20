#include "launcher/status/memory_facts.h"

#include <algorithm>

#include "launcher/status/memory_cgroup.h"
#include "rendezvous/base/read_system_facts.h"

namespace ddprun::launcher {
namespace {

// The names of one version's files.
struct Names {
  const char* limit;
  const char* used;
  const char* peak;
  const char* oom_kills;
  const char* reclaimable;  // key in memory.stat
};
constexpr Names kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                       "memory.max_usage_in_bytes", "memory.oom_control", "total_inactive_file"};
constexpr Names kV2 = {"memory.max", "memory.current", "memory.peak", "memory.events",
                       "inactive_file"};

}  // namespace

MemoryFacts ReadMemoryFacts(const MemoryPlaces& places) {
  const std::string process = places.root + "/proc/" + places.process;
  const std::string machine = ReadSmallFile(places.root + "/proc/meminfo");
  MemoryFacts facts{.limit = ParseKeyedNumber(machine, "MemTotal")};
  const std::optional<int64_t> available = ParseKeyedNumber(machine, "MemAvailable");
  if (facts.limit && available) facts.used = std::max<int64_t>(*facts.limit - *available, 0);

  const std::optional<MemoryCgroup> cgroup =
      FindMemoryCgroup(ReadSmallFile(process + "/mountinfo"), ReadSmallFile(process + "/cgroup"));
  if (!cgroup) return facts;
  const Names& names = cgroup->is_v2 ? kV2 : kV1;
  const auto read = [&](const std::string& directory, const char* name) {
    return ReadSmallFile(places.root + directory + "/" + name);
  };
  std::string tightest;
  for (const std::string& directory : cgroup->directories) {
    const std::optional<int64_t> limit = ParseCgroupBytes(read(directory, names.limit));
    if (!limit || (facts.limit && *limit >= *facts.limit)) continue;
    facts.limit = limit;
    tightest = directory;
  }
  facts.oom_kills =
      ParseKeyedNumber(read(cgroup->directories.front(), names.oom_kills), "oom_kill");
  if (tightest.empty()) return facts;
  facts.is_cgroup = true;
  facts.peak = ParseCgroupBytes(read(tightest, names.peak));  // v2: since Linux 5.19
  facts.used = ParseCgroupBytes(read(tightest, names.used));
  const int64_t files =
      ParseKeyedNumber(read(tightest, "memory.stat"), names.reclaimable).value_or(0);
  if (facts.used) facts.used = std::max<int64_t>(*facts.used - files, 0);
  return facts;
}

void FillNode(const MemoryFacts& facts, std::optional<int64_t> oom_kills_before, NodeView& node) {
  node.memory_used = facts.used;
  node.memory_limit = facts.limit;
  if (facts.oom_kills && oom_kills_before) {
    node.oom_kills = std::max<int64_t>(*facts.oom_kills - *oom_kills_before, 0);
  }
}

}  // namespace ddprun::launcher
