// ddp::Spawn, called by real programs.
#include "ddp/spawn.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

// So that a check that fails shows the lines.
template <>
struct doctest::StringMaker<std::vector<std::string>> {
  static doctest::String convert(const std::vector<std::string>& lines) {
    return absl::StrJoin(lines, " | ").c_str();
  }
};

namespace ddp::testing {
namespace {

using ddprun::UniqueFd;
using ddprun::testing::kPatience;
using ddprun::testing::Runfile;
using ddprun::testing::Subprocess;
using ddprun::testing::TempDir;

Subprocess Started(const std::string& what, const std::map<std::string, std::string>& env = {}) {
  return Subprocess({Runfile("tests/worker_runtime/spawn/spawn_program"), what}, {.env = env});
}

// The lines of a program that ends with `code`, sorted.
std::vector<std::string> Lines(const std::string& what, int code,
                               const std::map<std::string, std::string>& env = {}) {
  Subprocess program = Started(what, env);
  CHECK_MESSAGE(program.Wait() == code, program.Describe());
  std::vector<std::string> lines = absl::StrSplit(program.out(), '\n', absl::SkipEmpty());
  std::sort(lines.begin(), lines.end());
  return lines;
}

using Text = std::vector<std::string>;

TEST_CASE("spawn: four ranks find each other and sum") {
  CHECK(Lines("sum", 0) ==
        Text{"OK", "rank 0 of 4: 6", "rank 1 of 4: 6", "rank 2 of 4: 6", "rank 3 of 4: 6"});
}

TEST_CASE("spawn: one rank is a group of one") {
  CHECK(Lines("one", 0) == Text{"OK", "rank 0 of 1: 0"});
}

TEST_CASE("spawn: under a launcher its own ranks win") {
  CHECK(Lines("one", 0, {{"RANK", "5"}, {"WORLD_SIZE", "9"}, {"MASTER_PORT", "1"}}) ==
        Text{"OK", "rank 0 of 1: 0"});
}

TEST_CASE("spawn: exit codes, signals and exceptions are told apart") {
  CHECK(Lines("code", 3) == Text{"ABORTED: rank 2 of 4 failed: exit code 7"});
  CHECK(Lines("large", 3).back() == Contains("failed: exit code 255"));
  // The sanitizers would exit instead.
  const Text killed =
      Lines("segfault", 3, {{"ASAN_OPTIONS", "handle_segv=0"}, {"TSAN_OPTIONS", "handle_segv=0"}});
  REQUIRE(killed.size() == 1);
  CHECK(killed[0].find("ABORTED: rank 1 of 4 was killed by SIGSEGV (signal 11)") == 0);
  const Text thrown = Lines("throw", 3);
  REQUIRE(thrown.size() == 1);
  CHECK(thrown[0].find("ABORTED: rank 0 of 4 ended by an exception: no \\x1b[31mdata\\nxxx") == 0);
  CHECK(thrown[0].size() < 1200);
  CHECK(Lines("number", 3)[0] == Contains("ended by an exception: of a type that is not derived"));
}

TEST_CASE("spawn: a rank that fails because another one left does not hide the cause") {
  CHECK(Lines("leave", 3) == Text{"ABORTED: rank 3 of 4 failed: exit code 7"});
  CHECK(Lines("leave-late", 3) == Text{"ABORTED: rank 3 of 4 failed: exit code 7"});
  CHECK(Lines("leave-without-note", 3) == Text{"ABORTED: rank 3 of 4 failed: exit code 7"});
}

TEST_CASE("spawn: a rank that is stopped is continued, to see that it must end") {
  CHECK(Lines("stopped-rank", 3) ==
        Text{"ABORTED: rank 0 of 2 failed: exit code 7", "rank 1 saw SIGTERM"});
}

TEST_CASE("spawn: a rank that does not come to the call is named") {
  const Text lines = Lines("missing", 3);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == Contains("of 2 failed: exit code 0, before it came to this call of Spawn"));
}

// The group's own timeout is ten minutes here.
TEST_CASE("spawn: a rank that returns before the group forms is named by those that wait for it") {
  for (const int missing : {0, 1}) {
    const Text lines = Lines(absl::StrCat("without-rank-", missing), 3);
    REQUIRE(!lines.empty());
    CHECK(lines[0].find("ABORTED: rank ") == 0);
    CHECK(lines[0].ends_with(" failed: exit code 3"));
    REQUIRE(lines.size() >= 2);  // those that are stopped may say nothing
    for (size_t i = 1; i < lines.size(); ++i) {
      CAPTURE(lines[i]);
      CHECK(lines[i] == Contains(absl::StrCat(": ABORTED: forming the group failed: rank ", missing,
                                              " has returned before the group formed; ")));
    }
  }
}

TEST_CASE("spawn: a rank that returns after its last group is named by those that form another") {
  const Text lines = Lines("one-group-more", 3);
  REQUIRE(lines.size() >= 6);
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
          return line.find("rank 1 has returned before the group formed; ") != std::string::npos;
        }) >= 1);
}

TEST_CASE("spawn: ranks that return as soon as they have the group hold up nobody") {
  CHECK(Lines("form-and-return", 0) == Text{"OK"});
}

TEST_CASE("spawn: calls follow each other, and each runs its own function") {
  CHECK(Lines("two-calls", 0) ==
        Text{"OK", "first 0", "first 1", "second 0", "second 1", "second 2"});
}

TEST_CASE("spawn: a call within the function is refused") {
  const Text lines = Lines("nested", 3);
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
          return line.find("FAILED_PRECONDITION: spawn 2 ranks: this process is rank ") == 0;
        }) >= 1);
}

// Each such process would start ranks of its own, and those again, without end.
TEST_CASE("spawn: a process that was meant to be a rank and is none starts no others") {
  for (const std::string program : {"fork-before", "close-before"}) {
    CAPTURE(program);
    const Text lines = Lines(program, 3);
    CHECK(lines.size() >= 2);
    CHECK(lines.size() <= 3);
    CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
            return line.find(
                       "FAILED_PRECONDITION: spawn 2 ranks: this process was started as a "
                       "rank, and has forked or closed its descriptors") == 0;
          }) >= 1);
  }
}

TEST_CASE("spawn: a program that a rank starts may call it, too") {
  CHECK(Lines("spawn-of-rank", 0) == Text{"OK", "OK", "rank 0 of 1: 0"});
}

TEST_CASE("spawn: a rank of a late call is no stray for the programs that it starts") {
  CHECK(Lines("twelfth-call", 0) == Text{"OK", "OK", "rank 0 of 1: 0"});
}

TEST_CASE("spawn: wrong arguments are refused") {
  CHECK(Lines("wrong-arguments", 3) ==
        Text{"INVALID_ARGUMENT: spawn -1 ranks: expected 1 to 4096",
             "INVALID_ARGUMENT: spawn 0 ranks: expected 1 to 4096",
             "INVALID_ARGUMENT: spawn 1 ranks: there is no function to run",
             "INVALID_ARGUMENT: spawn 4097 ranks: expected 1 to 4096"});
}

TEST_CASE("spawn: a limit is named, and those that have started are ended") {
  const Text lines = Lines("few-descriptors", 3);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("RESOURCE_EXHAUSTED: spawn rank ") == 0);
  CHECK(lines[0] == Contains("the limit on open files is reached (ulimit -n)"));
  CHECK(lines[1] == "no child is left");
}

TEST_CASE("spawn: ranks whose connections do not fit are ended") {
  const Text lines = Lines("few-connections", 3);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("RESOURCE_EXHAUSTED: spawn 40 ranks: each connects") == 0);
  CHECK(lines[0] == Contains("raise the limit on open files (ulimit -n)"));
}

TEST_CASE("spawn: other children of the caller stay its own") {
  CHECK(Lines("own-children", 0) == Text{"OK", "reaped 21", "the other one lives"});
}

TEST_CASE("spawn: any thread may call") {
  CHECK(Lines("from-thread", 0) == Text{"OK", "rank 0 of 2: 1", "rank 1 of 2: 1"});
}

TEST_CASE("spawn: where SIGCHLD is ignored the results are known, and signals are not") {
  CHECK(Lines("ignored-ok", 0).size() == 5);
  CHECK(Lines("ignored-code", 3) == Text{"ABORTED: rank 2 of 4 failed: exit code 7"});
  const Text lines = Lines("ignored-signal", 3);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        Contains("rank 1 of 4 ended, and the kernel does not tell how: SIGCHLD is ignored"));
}

TEST_CASE("spawn: no descriptor is left in the caller or leaks into a rank") {
  // The one more is the pipe by which the rank tells its caller.
  CHECK(Lines("descriptors", 0) ==
        Text{"OK", "rank 0 has 1 more", "rank 1 has 1 more", "the caller has 0 more"});
}

TEST_CASE("spawn: the notes of the ranks are removed") {
  const TempDir folder;
  CHECK(Lines("leave", 3, {{"TMPDIR", folder.path().string()}}).size() == 1);
  CHECK(std::filesystem::is_empty(folder.path()));
}

// The processes that have said "WORD RANK PID", as pidfds.
std::vector<UniqueFd> Said(Subprocess& program, const std::string& word,
                           const std::vector<int>& ranks) {
  std::vector<UniqueFd> pidfds;
  for (const int rank : ranks) {
    const std::string text = absl::StrCat(word, " ", rank, " ");
    REQUIRE_MESSAGE(program.WaitForOut(text), program.Describe());
    const std::string out = program.out();
    const int pid = std::atoi(out.c_str() + out.find(text) + text.size());
    pidfds.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    REQUIRE(pidfds.back().is_open());
  }
  return pidfds;
}

bool HasEnded(const UniqueFd& pidfd) {
  pollfd polled{pidfd.get(), POLLIN, 0};
  return poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) == 1;
}

TEST_CASE("spawn: the ranks die with a caller that is killed, and no file is left") {
  for (const int signal : {SIGKILL, SIGTERM}) {
    const TempDir folder;
    Subprocess program = Started("sleep", {{"TMPDIR", folder.path().string()}});
    const std::vector<UniqueFd> ranks = Said(program, "asleep", {0, 1, 2, 3});
    program.Signal(signal);
    for (const UniqueFd& rank : ranks) CHECK(HasEnded(rank));
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("spawn: a function may end its rank by exit()") {
  CHECK(Lines("exit", 3) == Text{"ABORTED: rank 1 of 4 failed: exit code 9"});
  CHECK(Lines("exit-all", 0) ==
        Text{"OK", "rank 0 exits", "rank 1 exits", "rank 2 exits", "rank 3 exits"});
}

TEST_CASE("spawn: works where 0, 1 and 2 are closed before the call") {
  CHECK(Lines("closed-standard-files", 0).empty());
}

TEST_CASE("spawn: an environment that is too large is named") {
  CHECK(Lines("large-environment", 3) ==
        Text{"RESOURCE_EXHAUSTED: spawn rank 0 of 2: execve(\"/proc/self/exe\"): Argument list too "
             "long (E2BIG)"});
}

TEST_CASE("spawn: a rank that ignores SIGTERM is killed after the grace") {
  Subprocess program = Started("ignore-term");
  const std::vector<UniqueFd> ranks = Said(program, "ignoring", {0, 2, 3});
  CHECK_MESSAGE(program.Wait() == 3, program.Describe());
  CHECK(program.out() == Contains("ABORTED: rank 1 of 4 failed: exit code 9\n"));
  for (const UniqueFd& rank : ranks) CHECK(HasEnded(rank));
}

}  // namespace
}  // namespace ddp::testing
