// What /proc, /sys, the kernel's log and cgroups hold. Programs choose their names and may write to
// the kernel's log.
#include <cstdint>
#include <string>

#include "launcher/placement/cpu_set.h"
#include "launcher/status/memory_cgroup.h"
#include "launcher/status/oom_lines.h"
#include "launcher/status/process_facts.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::TextOf(data, size);
  if (const auto kill = ParseOomKill(KernelText(text))) {
    Promise(kill->pid > 0, "who was killed is a process");
    Promise(kill->anonymous_bytes.value_or(0) >= 0, "no memory is negative");
  }
  if (const auto cpus = ParseCpuList(text); cpus.ok()) {
    const auto again = ParseCpuList(FormatCpuList(*cpus));
    Promise(again.ok() && *again == *cpus, "CPUs are read as they were written");
  }
  if (const auto stat = ParseProcessStat(text)) {
    Promise(stat->pid > 0 && stat->parent >= 0, "a process has a pid and a parent");
    Promise(stat->cpu_ticks >= 0 && stat->start_ticks >= 0, "no time is negative");
  }
  const ProcessStatus status = ParseProcessStatus(text);
  Promise(status.resident_bytes.value_or(0) >= 0, "no memory is negative");
  const std::string wait = ParseWaitChannel(text);
  Promise(wait.size() <= 64 && fuzz::IsPlain(wait, false), "where it waits is a name", wait);
  const auto children = ParseChildren(text, 8);
  Promise(children.size() <= 8, "children are bounded");
  for (const int child : children) Promise(child > 0, "a child is a process");
  const size_t half = text.find("\n\n");
  if (half != std::string_view::npos) {
    (void)FindMemoryCgroup(std::string(text.substr(0, half + 1)),
                           std::string(text.substr(half + 2)));
  }
  Promise(ParseCgroupBytes(text).value_or(0) >= 0, "no limit is negative");
  Promise(ParseKeyedNumber(text, "oom_kill").value_or(0) >= 0, "no count is negative");
  return 0;
}

}  // namespace ddprun::launcher
