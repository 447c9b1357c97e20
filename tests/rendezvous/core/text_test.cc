#include "rendezvous/core/text.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::rendezvous {
namespace {

FailureReport Failed(const std::string& said) {
  FailureReport report;
  report.exit_code = 1;
  report.message = "exit code 1";
  report.error = WorkerError{.message = said, .traceback = {}};
  return report;
}

TEST_CASE("text: a cause is one line of what the worker says") {
  CHECK(CauseText(Failed("ValueError: boom\nmore")) == "exit code 1 (ValueError: boom)");
  CHECK(CauseText(Failed("")) == "exit code 1");
}

TEST_CASE("text: a cause cannot steer the terminal") {
  CHECK(CauseText(Failed("\x1b[31mred\r \xff")) == "exit code 1 (\\x1b[31mred\\r \\xff)");
  FailureReport report = Failed("");
  report.message = "exec \x1b[2J";
  CHECK(CauseText(report) == "exec \\x1b[2J");
}

TEST_CASE("text: a long cause is cut between characters") {
  const std::string said = std::string(199, 'x') + "\xc3\xa9 and more";
  CHECK(CauseText(Failed(said)) == "exit code 1 (" + std::string(199, 'x') + "...)");
}

}  // namespace
}  // namespace ddprun::rendezvous
