#include "launcher/status/oom_lines.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::launcher {
namespace {

using Scope = OomKill::Scope;

TEST_CASE("oom lines: a record's text, from either of the log's two ways") {
  CHECK(KernelText("6,339,5140900,-;NET: Registered\n SUBSYSTEM=x") ==
        "NET: Registered\n SUBSYSTEM=x");
  CHECK(KernelText("3,1,2,-,caller=T12;text") == "text");
  CHECK(KernelText("<6>[    5.140900] NET: Registered") == "NET: Registered");
  CHECK(KernelText("<3>[    5.140900] [   T12] text") == "text");
  CHECK(KernelText("<3>text") == "text");
}

TEST_CASE("oom lines: what a process wrote into the log is not the kernel's word") {
  CHECK(KernelText("12,339,5140900,-;Out of memory: Killed process 7 (a)") == "");
  CHECK(KernelText("<14>[ 5.1] Out of memory: Killed process 7 (a)") == "");
  for (const char* record :
       {"", ";", "x", "<", "<6", "6", "<6>[", "-1,2;x", "99999999999999999999;"}) {
    CAPTURE(record);
    CHECK(KernelText(record) == "");
  }
}

TEST_CASE("oom lines: the kernel's sentences, new and old") {
  CHECK(
      ParseOomKill("Memory cgroup out of memory: Killed process 1234 (python3) total-vm:207232kB, "
                   "anon-rss:63000kB, file-rss:1800kB, shmem-rss:0kB, UID:0 pgtables:200kB "
                   "oom_score_adj:0") ==
      OomKill{.pid = 1234, .scope = Scope::kCgroup, .anonymous_bytes = 63000 * 1024});
  CHECK(ParseOomKill("Out of memory: Killed process 9 (a) total-vm:1kB, anon-rss:2kB, x") ==
        OomKill{.pid = 9, .scope = Scope::kMachine, .anonymous_bytes = 2048});
  CHECK(ParseOomKill("Out of memory (oom_kill_allocating_task): Killed process 9 (a)") ==
        OomKill{.pid = 9, .scope = Scope::kMachine});
  CHECK(ParseOomKill("Killed process 9 (a) total-vm:1kB, anon-rss:2kB, file-rss:0kB") ==
        OomKill{.pid = 9, .anonymous_bytes = 2048});
}

TEST_CASE("oom lines: a process's name cannot speak for the kernel") {
  CHECK(ParseOomKill("Out of memory: Killed process 9 (anon-rss:77kB) total-vm:1kB, anon-rss:2kB, "
                     "x")
            ->anonymous_bytes == 2048);
  for (const char* text :
       {"", "Killed process", "Killed process x", "Killed process 0 (a)", "Killed process -4 (a)",
        "Killed process 99999999999 (a)", "Out of memory: Kill process 9 (a) score 1 or sacrifice",
        "Out of memory", "x: Killed process 9 (a)", "oom_reaper: reaped process 9 (a)"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseOomKill(text));
  }
  CHECK_FALSE(ParseOomKill("Killed process 9 (a) anon-rss:9223372036854775807kB")->anonymous_bytes);
}

}  // namespace
}  // namespace ddprun::launcher
