// A process that the kernel's OOM killer really kills, in a cgroup of the test's own.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "launcher/status/oom_verdict.h"
#include "rendezvous/base/check.h"
#include "tests/launcher/status/limited_cgroup.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

using testing::InChild;
using testing::LimitedCgroup;
using testing::SkipTest;

constexpr int64_t kLimit = 64 << 20;

// As an agent: notes the state, starts a worker that runs `body` and asks why it died.
std::string WhyItDied(const LimitedCgroup& cgroup, bool with_log, const std::function<void()>& body,
                      Duration limit = std::chrono::seconds(20)) {
  return InChild({}, [&]() -> std::string {
    if (!cgroup.Join()) return "the cgroup cannot be joined";
    OomBaseline baseline = ReadOomBaseline();
    if (!with_log) baseline.log = nullptr;
    if (with_log && baseline.log == nullptr) return "no log";
    const pid_t pid = fork();
    if (pid == 0) {
      body();
      _exit(0);
    }
    int status = 0;
    DDP_CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return "not killed";
    return ExplainKill(baseline, pid, limit).value_or("no evidence");
  });
}

void TakeMemory(size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
}

TEST_CASE("real oom: a worker beyond its cgroup's limit is told to have been killed for that") {
  const LimitedCgroup cgroup(kLimit);
  if (!cgroup.why_not().empty()) return SkipTest(cgroup.why_not());
  const std::string text = WhyItDied(cgroup, false, [] { TakeMemory(size_t{200} << 20); });
  CHECK(text == "killed by the OOM killer, limit 64 MiB, peak 64 MiB");
}

TEST_CASE("real oom: the kernel's log says the same and what it held") {
  const LimitedCgroup cgroup(kLimit);
  if (!cgroup.why_not().empty()) return SkipTest(cgroup.why_not());
  const std::string text = WhyItDied(cgroup, true, [] { TakeMemory(size_t{200} << 20); });
  if (text == "no log") return SkipTest("the kernel's log cannot be read here");
  INFO(text);
  CHECK(text.starts_with("killed by the OOM killer, limit 64 MiB, peak 64 MiB, it held "));
  CHECK(text.ends_with(" MiB"));  // more than the limit: some is its parent's, before its fork
}

TEST_CASE("real oom: a worker that somebody killed was not killed for its memory") {
  const LimitedCgroup cgroup(kLimit);
  if (!cgroup.why_not().empty()) return SkipTest(cgroup.why_not());
  for (const bool with_log : {false, true}) {
    const std::string text = WhyItDied(cgroup, with_log, [] {
      TakeMemory(size_t{40} << 20);
      kill(getpid(), SIGKILL);
    });
    if (text == "no log") continue;
    CHECK(text == "no evidence");
  }
}

TEST_CASE("real oom: of two that were killed at once the log knows which it was") {
  const LimitedCgroup cgroup(kLimit);
  if (!cgroup.why_not().empty()) return SkipTest(cgroup.why_not());
  const std::string text = WhyItDied(
      cgroup, true,
      [] {
        const pid_t child = fork();
        if (child == 0) {
          TakeMemory(size_t{200} << 20);
          _exit(0);
        }
        waitpid(child, nullptr, 0);
        kill(getpid(), SIGKILL);
      },
      std::chrono::milliseconds(500));  // lower bound: the log says nothing of it
  if (text == "no log") return SkipTest("the kernel's log cannot be read here");
  CHECK(text == "no evidence");
}

}  // namespace
}  // namespace ddprun::launcher
