#include "launcher/status/oom_verdict.h"

#include <doctest/doctest.h>

#include <string>

#include "rendezvous/base/steady_clock.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using Scope = OomKill::Scope;

constexpr int64_t kGiB = int64_t{1} << 30;
const MemoryFacts kLimited{.limit = 64 * kGiB,
                           .used = 60 * kGiB,
                           .peak = 64 * kGiB - 1,
                           .is_cgroup = true,
                           .oom_kills = 3};
const MemoryFacts kMachine{.limit = 125 * kGiB, .used = 120 * kGiB, .oom_kills = 3};

std::string Told(const OomEvidence& evidence) { return OomVerdict(evidence, 9).value_or("none"); }

TEST_CASE("oom verdict: the count alone is evidence") {
  CHECK(Told({.now = kLimited, .oom_kills_before = 2}) ==
        "killed by the OOM killer, limit 64 GiB, peak 63.9 GiB");
  CHECK(Told({.now = kMachine, .oom_kills_before = 2}) ==
        "killed by the OOM killer, out of memory on this machine (125 GiB)");
}

TEST_CASE("oom verdict: a SIGKILL without evidence is nobody's") {
  CHECK(Told({.now = kLimited, .oom_kills_before = 3}) == "none");
  CHECK(Told({.now = kLimited, .oom_kills_before = 4}) == "none");
  CHECK(Told({.now = kLimited}) == "none");
  CHECK(Told({.now = {.limit = kGiB, .used = kGiB, .peak = kGiB, .is_cgroup = true},
              .oom_kills_before = 0}) == "none");
  CHECK(Told({}) == "none");
  CHECK(Told({.now = kMachine, .log = {{.pid = 8, .scope = Scope::kMachine}}}) == "none");
}

TEST_CASE("oom verdict: a line of the log that names the process is evidence without a count") {
  CHECK(Told({.now = {.limit = 125 * kGiB},
              .log = {{.pid = 9, .scope = Scope::kMachine, .anonymous_bytes = 100 * kGiB}}}) ==
        "killed by the OOM killer, out of memory on this machine (125 GiB), it held 100 GiB");
  CHECK(Told({.now = kLimited, .oom_kills_before = 3, .log = {{.pid = 9}}}) ==
        "killed by the OOM killer, limit 64 GiB, peak 63.9 GiB");
  // Of the machine, although its cgroup has a limit.
  CHECK(Told({.now = kLimited, .log = {{.pid = 9, .scope = Scope::kMachine}}}) ==
        "killed by the OOM killer, out of memory on this machine");
  CHECK(Told({.now = kMachine, .log = {{.pid = 9, .scope = Scope::kCgroup}}}) ==
        "killed by the OOM killer of its cgroup");
}

TEST_CASE("oom verdict: whoever else was killed accounts for the count") {
  const OomKill other{.pid = 8, .scope = Scope::kCgroup};
  CHECK(Told({.now = kLimited, .oom_kills_before = 2, .log = {other}}) == "none");
  CHECK(Told({.now = kLimited, .oom_kills_before = 1, .log = {other}}) ==
        "killed by the OOM killer, limit 64 GiB, peak 63.9 GiB");
}

TEST_CASE("kernel log: what is written after it was opened, by the kernel") {
  const testing::TempDir dir;
  const std::string file = dir.File("kmsg");
  testing::WriteFile(file, "3,1,1,-;Out of memory: Killed process 1 (old) total-vm:1kB\n");
  const auto log = KernelLog::OpenForTest(file);
  REQUIRE(log);
  const auto soon = [] { return SteadyNow() + std::chrono::seconds(10); };
  CHECK(log->Kills(soon()).empty());
  const auto append = [&](const std::string& record) {
    testing::WriteFile(file, testing::ReadFile(file) + record);
  };
  append("3,2,2,-;Memory cgroup out of memory: Killed process 2 (a) total-vm:1kB, anon-rss:3kB\n");
  CHECK(log->Kills(soon()) ==
        std::vector<OomKill>{{.pid = 2, .scope = Scope::kCgroup, .anonymous_bytes = 3072}});
  append("12,3,3,-;Out of memory: Killed process 3 (forged)\n");
  CHECK(log->Kills(soon()).size() == 1);
  append("3,4,4,-;Out of memory: Killed process 4 (b)\n");
  CHECK(log->Kills(SteadyNow()).size() == 1);  // no time left
  CHECK(log->Kills(soon()).size() == 2);
  CHECK(KernelLog::OpenForTest(dir.File("none")) == nullptr);
}

}  // namespace
}  // namespace ddprun::launcher
