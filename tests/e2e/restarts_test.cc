// What limits restarts beside --max_restarts.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/files.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
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
                      {"--nproc_per_node=2", "--max_restarts=5", "--max_same_failure=2",
                       "--report_file=" + job.File("report")},
                      {"step:7", "err:Boom on rank {rank} of pid {pid}@0#0", "exit:3@0#0",
                       "err:Boom on rank {rank} of pid {pid}@1#1", "exit:3@1#1", "wait"});
  CHECK_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  const std::string sentence =
      "the same failure 2 times in succession, each after step 7: another restart would most "
      "likely end so, too (--max_same_failure=2)";
  CHECK_MESSAGE(ddprun->err().find(sentence) != std::string::npos, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 1 of 5") == 1, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 2 of 5") == 0, ddprun->Describe());
  const auto report = ParseJson(ReadFile(job.File("report")));
  REQUIRE(report.has_value());
  CHECK(report->get<int>("first_failure.step") == 7);
  CHECK(report->get<std::string>("reason").find(sentence) != std::string::npos);
}

TEST_CASE("restarts: a job that gets further, or dies of something else, is restarted") {
  Job job;
  auto ddprun =
      Start(job, {"--nproc_per_node=1", "--max_restarts=5", "--max_same_failure=2"},
            {"step:7#0", "exit:3#0", "step:8#1", "exit:3#1", "step:8#2", "exit:4#2", "step:9"});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "restart 3 of 5") == 1, ddprun->Describe());
}

TEST_CASE("restarts: a program that tells of no step is known by its error alone") {
  Job job;
  auto ddprun = job.Run({"--nproc_per_node=1", "--max_restarts=5", "--max_same_failure=3"},
                        {"err:ImportError: no module {pid}", "exit:1"});
  CHECK_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "the same failure 3 times in succession:") == 1,
                ddprun->Describe());
}

}  // namespace
}  // namespace ddprun::testing
