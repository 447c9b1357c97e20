// `ddprun coordinator`: the rendezvous apart from the agents.
#include <signal.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"

namespace ddprun::testing {
namespace {

std::string Bind(const Job& job) { return "--bind=" + job.endpoint(); }

// A coordinator that listens on the job's endpoint.
std::unique_ptr<Subprocess> Coordinator(Job& job, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"coordinator", Bind(job)});
  auto coordinator = job.RunRaw(more);
  REQUIRE_MESSAGE(coordinator->WaitForErr("listening on " + job.endpoint()),
                  coordinator->Describe());
  return coordinator;
}

TEST_CASE("coordinator: agents meet at it, and it ends with the job's exit code") {
  for (const int code : {0, 9}) {
    Job job;
    auto coordinator = Coordinator(job);
    CHECK(coordinator->err() == "ddprun: coordinator: listening on " + job.endpoint() +
                                    " for the first run that joins; agents reach it by "
                                    "--rdzv_endpoint=" +
                                    job.endpoint() + "\n");
    const std::vector<std::string> steps = {"exit:" + std::to_string(code) + "@3"};
    auto a = job.Run(job.NodeOptions(2), steps);
    auto b = job.Run(job.NodeOptions(2), steps);
    REQUIRE_MESSAGE(a->Wait() == code, a->Describe());
    REQUIRE_MESSAGE(b->Wait() == code, b->Describe());
    REQUIRE_MESSAGE(coordinator->Wait() == code, coordinator->Describe());
    CHECK(coordinator->err().find("the job has ended with " + std::to_string(code)) !=
          std::string::npos);
    CHECK(coordinator->out().empty());
    CHECK(job.IsGone());
  }
}

TEST_CASE("coordinator: a signal ends it with 128+n, before anybody has joined") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    Job job;
    auto coordinator = Coordinator(job);
    coordinator->Signal(signal);
    REQUIRE_MESSAGE(coordinator->Wait() == 128 + signal, coordinator->Describe());
  }
}

TEST_CASE("coordinator: agents of another run are told which run it serves") {
  Job job;
  auto coordinator = Coordinator(job, {"--rdzv_id=mine"});
  CHECK(coordinator->err().find("for the run \"mine\"") != std::string::npos);
  auto other = job.Run(job.NodeOptions(1), {"wait"});
  REQUIRE_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK_MESSAGE(other->err().find("\"mine\"") != std::string::npos, other->Describe());
  coordinator->Signal(SIGTERM);
  CHECK(coordinator->Wait() == 143);
}

TEST_CASE("coordinator: a port that is taken ends it with 121 and is named") {
  Job job;
  auto first = Coordinator(job);
  auto second = job.RunRaw({"coordinator", Bind(job)});
  REQUIRE_MESSAGE(second->Wait() == 121, second->Describe());
  const std::string err = second->err();
  CHECK(std::count(err.begin(), err.end(), '\n') == 1);
  CHECK_MESSAGE(err.find("ddprun: error: coordinator: port " + std::to_string(job.port())) == 0,
                err);
  first->Signal(SIGTERM);
  CHECK(first->Wait() == 143);
}

}  // namespace
}  // namespace ddprun::testing
