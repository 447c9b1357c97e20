#include "tests/support/shared_results.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace ddprun::testing {
namespace {

// Runs `child` in a process that ends without any handler.
template <typename Child>
void Fork(Child child) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    child();
    _exit(0);
  }
  REQUIRE(waitpid(pid, nullptr, 0) == pid);
}

TEST_CASE("shared_results: the parent reads what the child has written") {
  SharedResults results(4);
  Fork([&] {
    results.Start(0);
    results.End(0, true, 0.5);
    results.Start(1);
    results.AddFailure(1, "one\n");
    results.AddFailure(1, "two\n");
    results.End(1, false, 0.25);
    results.Start(2);
    results.Skip(2, "no torch");
    results.End(2, true, 0);
    results.Finish(1);
  });
  CHECK(results.Read(0).state == CaseState::kPassed);
  CHECK(results.Read(0).seconds == 0.5);
  CHECK_FALSE(results.Read(0).skip_reason.has_value());
  CHECK(results.Read(1).state == CaseState::kFailed);
  CHECK(results.Read(1).failure == "one\ntwo\n");
  CHECK(results.Read(2).skip_reason == "no torch");
  CHECK(results.Read(3).state == CaseState::kNotRun);
  CHECK(results.exit_code() == 1);
}

TEST_CASE("shared_results: a process that ends within a case has not finished") {
  SharedResults results(1);
  Fork([&] {
    results.Start(0);
    results.AddFailure(0, "before the end");
  });
  CHECK(results.Read(0).state == CaseState::kRunning);
  CHECK(results.Read(0).failure == "before the end");
  CHECK(results.Read(0).seconds >= 0);
  CHECK_FALSE(results.exit_code().has_value());
}

TEST_CASE("shared_results: texts that do not fit are cut, and reach no other case") {
  SharedResults results(2);
  const std::string text(100'000, 'x');
  results.AddFailure(0, "first ");
  results.AddFailure(0, text);
  results.AddFailure(0, text);
  results.Skip(0, text);
  const CaseResult first = results.Read(0);
  CHECK(first.failure.size() > 5'000);
  CHECK(first.failure.size() < 10'000);
  CHECK(first.failure.substr(0, 8) == "first xx");
  CHECK(first.skip_reason->find_first_not_of('x') == std::string::npos);
  CHECK(results.Read(1).state == CaseState::kNotRun);
  CHECK(results.Read(1).failure == "");
  CHECK_FALSE(results.Read(1).skip_reason.has_value());
}

}  // namespace
}  // namespace ddprun::testing
