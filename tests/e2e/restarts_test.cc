// What limits restarts beside --max-restarts.
#include <signal.h>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

// How many jobs have a folder below this one, which stands for $XDG_RUNTIME_DIR.
size_t CountJobs(const std::string& folder) {
  namespace fs = std::filesystem;
  size_t count = 0;
  for (const fs::directory_entry& user : fs::directory_iterator(folder)) {
    const fs::directory_iterator jobs(user.path());
    count += static_cast<size_t>(std::distance(begin(jobs), end(jobs)));
  }
  return count;
}

std::unique_ptr<Subprocess> Start(Job& job, std::vector<std::string> options,
                                  const std::vector<std::string>& steps) {
  options.push_back(Runfile("tests/e2e/reporting_worker"));
  options.insert(options.end(), steps.begin(), steps.end());
  return job.RunRaw(options);
}

TEST_CASE("restarts: a job that dies twice after the same step of the same error ends with it") {
  Job job;
  auto ddprun = Start(job,
                      {"--nproc-per-node=2", "--max-restarts=5", "--max-same-failures=1",
                       "--report-file=" + job.File("report")},
                      {"step:7", "err:Boom on rank {rank} of pid {pid}@0#0", "exit:3@0#0",
                       "err:Boom on rank {rank} of pid {pid}@1#1", "exit:3@1#1", "wait"});
  CHECK_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  const std::string sentence =
      "the same failure 2 times in succession, each after step 7: another restart would most "
      "likely end so, too (--max-same-failures=1)";
  CHECK(ddprun->err() == Contains(sentence));
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 1 of 5") == 1, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 2 of 5") == 0, ddprun->Describe());
  const auto report = ParseJson(ReadFile(job.File("report")));
  REQUIRE(report.has_value());
  CHECK(report->get<int>("first_failure.step") == 7);
  CHECK(report->get<std::string>("reason") == Contains(sentence));
}

TEST_CASE("restarts: a job that gets further, or dies of something else, is restarted") {
  Job job;
  auto ddprun =
      Start(job, {"--nproc-per-node=1", "--max-restarts=5", "--max-same-failures=1"},
            {"step:7#0", "exit:3#0", "step:8#1", "exit:3#1", "step:8#2", "exit:4#2", "step:9"});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 3 of 5") == 1, ddprun->Describe());
}

TEST_CASE("restarts: a program that tells of no step is known by its error alone") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=1", "--max-restarts=5", "--max-same-failures=2"},
                        {"err:ImportError: no module {pid}", "exit:1"});
  CHECK_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "the same failure 3 times in succession:") == 1,
                ddprun->Describe());
}

TEST_CASE("restarts: each restart but the first waits, and says so") {
  Job job;
  const auto start = std::chrono::steady_clock::now();
  auto ddprun = job.Run({"--nproc-per-node=1", "--max-restarts=3", "--restart-backoff=1.5"},
                        {"exit:3#0", "exit:3#1", "print:up"});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(1500));
  const std::string waits = "waiting before restart 2 (--restart-backoff)";
  CHECK_MESSAGE(CountOf(ddprun->err(), waits) == 1, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "waiting before restart 1") == 0, ddprun->Describe());
}

TEST_CASE("restarts: a job that waits before a restart is stopped by a signal at once") {
  Job job;
  auto ddprun =
      job.Run({"--nproc-per-node=1", "--max-restarts=3", "--restart-backoff=300"}, {"exit:3"});
  REQUIRE_MESSAGE(ddprun->WaitForErr("waiting before restart 2"), ddprun->Describe());
  ddprun->Signal(SIGTERM);
  CHECK_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
}

TEST_CASE("restarts: a node that is told to end is a preemption, and one that is killed a loss") {
  for (const int signal : {SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    Job job;
    const bool is_preemption = signal == SIGTERM;
    const std::string option = is_preemption ? "--max-preemptions" : "--max-node-losses";
    const std::vector<std::string> options =
        job.NodeOptions(1, "1:2", {"--max-restarts=3", option + "=0"});
    const std::vector<std::string> steps = {"touch:" + job.File("up{rank}"), "wait"};
    // The first hosts the rendezvous, which would go with it.
    auto a = job.Run(options, steps);
    REQUIRE_MESSAGE(a->WaitForErr("last call"), a->Describe());
    auto b = job.Run(options, steps);
    REQUIRE_MESSAGE(job.WaitForFile("up0"), a->Describe(), b->Describe());
    REQUIRE_MESSAGE(job.WaitForFile("up1"), a->Describe(), b->Describe());
    b->Signal(signal);
    CHECK_MESSAGE(a->Wait() == 121, a->Describe());
    const std::string sentence = is_preemption ? "no preemption is allowed (--max-preemptions=0)"
                                               : "no node loss is allowed (--max-node-losses=0)";
    CHECK_MESSAGE(CountOf(a->err(), sentence) > 0, a->Describe());
    b->Wait();
  }
}

TEST_CASE("restarts: a signal on all nodes ends the wait before a restart, and nothing is left") {
  Job job;
  const std::string folder = job.File("run");
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  const Subprocess::Options how = {.env = {{"XDG_RUNTIME_DIR", folder}}};
  const std::vector<std::string> options =
      job.NodeOptions(1, "2", {"--max-restarts=3", "--restart-backoff=300"});
  auto a = job.Run(options, {"exit:3"}, how);
  auto b = job.Run(options, {"exit:3"}, how);
  const std::string waits = "waiting before restart 2 (--restart-backoff)";
  for (auto* node : {&a, &b}) REQUIRE_MESSAGE((*node)->WaitForErr(waits), (*node)->Describe());
  const auto kept = [&] { return CountJobs(folder); };
  REQUIRE_MESSAGE(Eventually([&] { return kept() == 1; }), "no job's folder to lose");
  // The second restart has not begun.
  const std::string id = options[2].substr(std::string("--rdzv-id=").size());
  auto status = job.RunRaw({"status", id});
  REQUIRE(status->Wait().has_value());
  CHECK_MESSAGE(CountOf(status->out(), ", 1 restart (") == 1, status->Describe());
  CHECK_MESSAGE(CountOf(status->out(), waits) == 1, status->Describe());
  for (auto* node : {&a, &b}) (*node)->Signal(SIGTERM);
  for (auto* node : {&a, &b}) {
    REQUIRE_MESSAGE((*node)->Wait() == 143, a->Describe(), b->Describe());
    CHECK_MESSAGE(CountOf((*node)->err(), "SIGTERM: leaving the job \"") == 1, (*node)->Describe());
    CHECK_MESSAGE(CountOf((*node)->err(), "\", which was " + waits) == 1, (*node)->Describe());
  }
  CHECK(kept() == 0);
}

TEST_CASE("restarts: what is used up is given back after progress") {
  // Progress is the time between start and step. An agent that gets no core notes the start late,
  // which takes from it: hence a second.
  Job job;
  auto ddprun =
      Start(job, {"--nproc-per-node=1", "--max-restarts=1", "--restart-budget-period=0.001"},
            {"lasts:1000", "step:1#0", "exit:3#0", "step:2#1", "exit:3#1", "step:3#2", "exit:3#2",
             "step:4#3"});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 2 of 2") == 1, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 3 of 3") == 1, ddprun->Describe());
  // What ended each round is told, though the last restart seemed to be used.
  CHECK_MESSAGE(CountOf(ddprun->err(), "failed: exit code 3") == 3, ddprun->Describe());
}

}  // namespace
}  // namespace ddprun::testing
