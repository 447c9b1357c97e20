// A bug of ours, as a check finds it: ddprun ends by abort, and its guardian ends the workers.
#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "rendezvous/wire/hello.h"
#include "tests/e2e/job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

TEST_CASE("failed check: it is named on stderr, ddprun ends with 134, and nothing is left") {
  Job job;
  std::vector<std::string> argv = {Runfile("tests/e2e/ddprun_next")};
  for (const std::string& option : job.NodeOptions(2, "1")) argv.push_back(option);
  argv.insert(argv.end(), {Runfile("tests/e2e/toy_worker"), "grandchild",
                           "touch:" + job.File("up{rank}"), "wait"});
  auto ddprun = job.RunProgram(argv, {.env = {{"TEST_RELEASE_BUG", job.File("bug")}}});
  REQUIRE(job.WaitForFile("up0"));
  REQUIRE(job.WaitForFile("up1"));
  CHECK(job.Processes().size() >= 5);
  job.Touch("bug");
  // Whoever greets it meets the bug.
  const UniqueFd fd = rendezvous::TryConnectTo(static_cast<uint16_t>(job.port()));
  REQUIRE(fd.is_open());
  rendezvous::SendAll(fd.get(), rendezvous::kHelloRequest);
  REQUIRE_MESSAGE(ddprun->Wait() == 128 + SIGABRT, ddprun->Describe());
  const std::string said =
      "CHECK failed: bug == nullptr || access(bug, F_OK) != 0 at tests/support/next_release.cc:";
  CHECK(ddprun->err() == Contains(said));
  CHECK(job.IsGone());
}

}  // namespace
}  // namespace ddprun::testing
