#include "launcher/status/memory_facts.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/status/bytes_text.h"
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

constexpr Duration kShown = std::chrono::minutes(1);

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

void MemoryWatch::Look(TimePoint now, const MemoryFacts& facts, NodeView& node) {
  node.memory_used = facts.used;
  node.memory_limit = facts.limit;
  if (!std::exchange(has_looked_, true)) kills_before_ = facts.oom_kills;
  if (facts.oom_kills && kills_before_) {
    node.oom_kills = std::max<int64_t>(*facts.oom_kills - *kills_before_, 0);
  }
  if (facts.oom_kills && kills_ && *facts.oom_kills > *kills_) killed_at_ = now;
  kills_ = facts.oom_kills;
  if (!killed_at_ || now - *killed_at_ > kShown) return;
  const std::string limit =
      facts.limit ? absl::StrCat(" (", facts.is_cgroup ? "limit " : "the machine has ",
                                 BytesText(*facts.limit), ")")
                  : "";
  node.problems.push_back(
      {.kind = "oom",
       .text = absl::StrCat("the kernel killed a process for want of memory", limit),
       .ranks = {},
       .node = node.host,
       .since_s = std::chrono::duration<double>(now - *killed_at_).count()});
}

}  // namespace ddprun::launcher
