// An agent that gets hardly any processor time.
#include <doctest/doctest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/faults/apart.h"
#include "tests/faults/bench.h"
#include "tests/faults/cpu_quota.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// An agent beats every second, or as soon as its share lets it: twenty of them may be late, by its
// share or because the machine itself stands still.
constexpr char kEvictAfter20[] = "--rdzv-conf=keep_alive_interval=5,keep_alive_max_attempt=4";
// Of 0.1 s each: longer than the evict time, so that an agent that says nothing would be lost.
constexpr int64_t kPeriods = 220;

std::string Starve(Bench& bench, const CpuQuota& quota) {
  Apart apart(bench);
  if (!apart.StartNodes({"--max-restarts=1", kEvictAfter20})) {
    return "no round forms:" + apart.coordinator().Describe();
  }
  const std::vector<int> pids = apart.Pids();
  const int agent = apart.node(1).pid();
  {
    // Takes what the quota has.
    const Subprocess spinner({"/bin/sh", "-c", "while :; do :; done"});
    const int64_t before = quota.throttled();
    if (!quota.Take(spinner.pid()) || !quota.Take(agent) ||
        !bench.Eventually([&] { return quota.throttled() >= before + kPeriods; })) {
      return "the fault did not fire";
    }
  }
  if (!quota.Free(agent)) return "the fault does not end";
  if (apart.Pids() != pids) return "workers are stopped for it:" + apart.node(1).Describe();
  kill(pids[1], SIGKILL);
  if (!apart.AwaitWorkers(1)) return "no restart:" + apart.node(1).Describe();
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const std::string err = apart.node(i).err();
    if (CountOf(err, "is lost") + CountOf(err, "coordinator lost") > 0) {
      return "somebody is lost:" + apart.node(i).Describe();
    }
  }
  return apart.Finish();
}

TEST_CASE("F39: an agent that shares a hundredth of a core is not lost, and the job goes on") {
  std::string why;
  const std::unique_ptr<CpuQuota> quota = CpuQuota::Make(1, &why);
  if (quota == nullptr) return SkipTest(why);
  CheckHolds([&](Bench& bench) { return Starve(bench, *quota); });
}

}  // namespace
}  // namespace ddprun::testing
