// A rank that is slow because others have its core.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/faults/bench.h"
#include "tests/faults/cpu_quota.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

std::vector<int> PidsOf(const Job& job) {
  std::vector<int> pids;
  for (int rank = 0; rank < 4; ++rank) pids.push_back(job.PidOfRank(rank));
  return pids;
}

constexpr char kSlow[] = "ddprun: rank 3 is slow: it takes ";

// The rest of the first line that has it, once that is whole.
std::string LineWith(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  const size_t end = at == std::string::npos ? at : text.find('\n', at);
  return end == std::string::npos ? "" : text.substr(at, end - at);
}

std::string SlowDown(Bench& bench, std::unique_ptr<CpuQuota>& quota) {
  Job& job = bench.job();
  const Bench::Node node =
      bench.RunRaw({"--nproc-per-node=4", "--max-restarts=1", "--on-hang=restart",
                    Runfile("tests/faults/stepping_worker"), job.File("up"), job.File("go")});
  for (int rank = 0; rank < 4; ++rank) {
    if (!job.WaitForFile("up" + std::to_string(rank))) return "no steps:" + node->Describe();
  }
  bench.NoteDescriptors(*node);
  const std::vector<int> pids = PidsOf(job);
  if (!quota->Take(pids[3])) return "the fault did not fire";
  // "rank 3 is slow: it takes 251.20 ms a step by itself, the others 5.10 ms; they wait for it".
  // Who is slow lies above the others by a tenth of the step, 25 ms: more than ranks of which each
  // computes for 5 ms wait for a core, where there are fewer cores than ranks.
  if (!bench.Eventually([&] { return !LineWith(node->err(), kSlow).empty(); })) {
    return "nobody is told:" + node->Describe();
  }
  if (CountOf(node->err(), kSlow) != 1 ||
      CountOf(LineWith(node->err(), kSlow), " a step by itself, the others ") != 1) {
    return "not told once, or without figures:" + node->Describe();
  }
  if (quota->throttled() == 0) return "the fault did not fire";
  if (PidsOf(job) != pids) return "a worker is stopped for it:" + node->Describe();
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return bench.Ends(*node, 0) ? "" : "it does not end with 0:" + node->Describe();
}

TEST_CASE("F44: a rank that gets a fiftieth of a core is named as slow, and nothing else happens") {
  std::string why;
  std::unique_ptr<CpuQuota> quota = CpuQuota::Make(2, &why);
  if (quota == nullptr) return SkipTest(why);
  CheckHolds([&](Bench& bench) { return SlowDown(bench, quota); });
}

}  // namespace
}  // namespace ddprun::testing
