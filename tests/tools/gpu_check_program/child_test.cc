#include "tools/gpu_check_program/child.h"

#include <doctest/doctest.h>

#include "tests/support/contains.h"

namespace ddprun::gpu_check {
namespace {

using namespace std::chrono_literals;

Outcome Shell(const std::string& script, std::chrono::milliseconds limit = 60s) {
  return RunUntil({{"/bin/sh", "-c", script}, {{"GIVEN", "yes"}}}, Clock::now() + limit);
}

TEST_CASE("child: values, texts, environment and exit code come back") {
  const Outcome outcome = Shell("echo value a 1.5; echo text b two words; echo $GIVEN; exit 3");
  CHECK(outcome.exit_code == 3);
  CHECK_FALSE(outcome.ok());
  CHECK(outcome.Value("a") == 1.5);
  CHECK_FALSE(outcome.Value("b").has_value());
  CHECK(outcome.Text("b") == "two words");
  CHECK(outcome.out == Contains("yes\n"));
}

TEST_CASE("child: a program that ignores SIGTERM is killed after its limit") {
  const Outcome outcome = Shell("trap '' TERM; echo started >&2; while :; do sleep 0.1; done", 5s);
  CHECK(outcome.is_timed_out);
  CHECK(outcome.exit_code == 128 + 9);
  CHECK(outcome.Complaint() == "did not end in time: started");
}

TEST_CASE("child: what a program leaves behind with its pipes is not waited for") {
  const Outcome outcome = Shell("sleep 20 & exit 0");
  CHECK(outcome.ok());
  CHECK(outcome.seconds < 15);
}

TEST_CASE("child: a missing program is 127 and named") {
  const Outcome outcome = RunUntil({{"/nowhere/program"}, {}}, Clock::now() + 60s);
  CHECK(outcome.exit_code == 127);
  CHECK(outcome.Complaint() == "exit code 127: start /nowhere/program: No such file or directory");
}

}  // namespace
}  // namespace ddprun::gpu_check
