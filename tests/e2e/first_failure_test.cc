// A C++ rank that leaves while the others are in a collective: they see it at once, and may well
// end before it does, but it is the one that is blamed.
#include <doctest/doctest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

std::vector<std::string> Leaving(const Job& job, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"--standalone", "--nproc-per-node=4", "--report-file=" + job.File("report"),
                    Runfile("tests/e2e/leaving_worker")});
  return arguments;
}

void CheckBlamed(const std::vector<std::string>& arguments) {
  Job job;
  auto ddprun = job.RunRaw(Leaving(job, arguments));
  CHECK_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  const auto report = ParseJson(ReadFile(job.File("report")));
  REQUIRE(report.has_value());
  CHECK_MESSAGE(report->get<int>("first_failure.rank") == 1, ddprun->Describe());
  CHECK_MESSAGE(report->get<int>("first_failure.exit_code") == 3, ddprun->Describe());
}

TEST_CASE("first failure: a rank that leaves with 3 is blamed in 100 of 100 jobs") {
  for (int run = 0; run < 100; ++run) {
    const std::string way = run % 2 == 0 ? "wait" : "finish";
    CAPTURE(run);
    CAPTURE(way);
    CheckBlamed({way, "3"});
  }
}

TEST_CASE("first failure: a rank that takes its time to end is blamed as well") {
  // The delay makes it certain that the others have ended before.
  for (const char* way : {"wait", "finish"}) {
    CAPTURE(std::string(way));
    CheckBlamed({way, "3", "100"});
  }
}

// Ranks 0 and 1 abort or end with 1 when rank 2 has raised, and rank 2 ends with 3 when both have
// been reaped.
// The launcher makes $ of $$.
constexpr char kLosingPeers[] = R"(cd "$1"
if [ $RANK = 2 ]; then
  echo 'Traceback (most recent call last):' >&2
  : > raised
  for peer in 0 1; do
    until [ -e pid$peer ]; do sleep 0.01; done
    while kill -0 $(cat pid$peer) 2> /dev/null; do sleep 0.01; done
  done
  exit 3
fi
until [ -e raised ]; do sleep 0.01; done
echo $$$$ > new$RANK && mv new$RANK pid$RANK
echo "RuntimeError: Connection closed by peer" >&2
[ $2 = exit ] && exit 1
kill -ABRT $$$$)";

TEST_CASE("first failure: a rank that has raised is blamed before peers that lose it") {
  for (const char* way : {"abort", "exit"}) {
    CAPTURE(std::string(way));
    Job job;
    auto ddprun =
        job.RunRaw({"--standalone", "--nproc-per-node=3", "--report-file=" + job.File("report"),
                    "/bin/sh", "-c", kLosingPeers, "sh", job.File(""), way});
    CHECK_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
    const auto report = ParseJson(ReadFile(job.File("report")));
    REQUIRE(report.has_value());
    CHECK_MESSAGE(report->get<int>("first_failure.rank") == 2, ddprun->Describe());
    CHECK_MESSAGE(report->get<int>("first_failure.exit_code") == 3, ddprun->Describe());
    const auto failures = report->get_child("failures");
    CHECK_MESSAGE(failures.size() == 3, ddprun->Describe());
  }
}

// Rank 0 aborts on its node when rank 1 has raised on the other, which ends with 3 when rank 0 has
// been reaped.
constexpr char kAbortingNode[] = R"(cd "$1"
if [ $RANK = 1 ]; then
  printf 'Traceback (most recent call last):\n  File "a.py"\nValueError: 5\n' >&2
  : > raised
  until [ -e pid0 ]; do sleep 0.01; done
  while kill -0 $(cat pid0) 2> /dev/null; do sleep 0.01; done
  exit 3
fi
until [ -e raised ]; do sleep 0.01; done
echo $$$$ > new0 && mv new0 pid0
kill -ABRT $$$$)";

TEST_CASE(
    "first failure: a rank that has raised is blamed before one of another node that aborts") {
  Job job;
  const auto run = [&](const std::string& report) {
    std::vector<std::string> arguments =
        job.NodeOptions(1, "2", {"--report-file=" + job.File(report)});
    for (const char* word : {"/bin/sh", "-c", kAbortingNode, "sh"}) {
      arguments.push_back(word);
    }
    arguments.push_back(job.File(""));
    return job.RunRaw(arguments);
  };
  auto a = run("a.json");
  auto b = run("b.json");
  CHECK_MESSAGE(a->Wait() == 3, a->Describe());
  CHECK_MESSAGE(b->Wait() == 3, b->Describe());
  for (const char* name : {"a.json", "b.json"}) {
    const auto report = ParseJson(ReadFile(job.File(name)));
    REQUIRE(report.has_value());
    CHECK_MESSAGE(report->get<int>("first_failure.rank") == 1, a->Describe(), b->Describe());
  }
}

TEST_CASE("first failure: a rank that left early with 0 is named beside the failure") {
  const std::regex named("rank 1 had exited with 0 [0-9]+(\\.[0-9]+)? s before");
  for (const char* way : {"wait", "finish"}) {
    CAPTURE(std::string(way));
    Job job;
    auto ddprun = job.RunRaw(Leaving(job, {way, "0"}));
    CHECK_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
    CHECK_MESSAGE(std::regex_search(ddprun->err(), named), ddprun->Describe());
    const auto report = ParseJson(ReadFile(job.File("report")));
    REQUIRE(report.has_value());
    CHECK_MESSAGE(report->get<int>("first_failure.rank") != 1, ddprun->Describe());
  }
}

TEST_CASE("first failure: ranks that go on when one has left, and end with 0, have succeeded") {
  Job job;
  auto ddprun = job.RunRaw(Leaving(job, {"wait", "0", "0", "0"}));
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("has left the group"));
  CHECK(ddprun->err() != Contains("Failures:"));
}

}  // namespace
}  // namespace ddprun::testing
