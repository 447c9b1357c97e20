// `ddprun coordinator`: the rendezvous apart from the agents.
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/wire/hello.h"
#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

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
                                    "--rdzv-endpoint=" +
                                    job.endpoint() + "\n");
    const std::vector<std::string> steps = {"exit:" + std::to_string(code) + "@3"};
    auto a = job.Run(job.NodeOptions(2), steps);
    auto b = job.Run(job.NodeOptions(2), steps);
    REQUIRE_MESSAGE(a->Wait() == code, a->Describe());
    REQUIRE_MESSAGE(b->Wait() == code, b->Describe());
    REQUIRE_MESSAGE(coordinator->Wait() == code, coordinator->Describe());
    const std::string reason = code == 0 ? "all 4 ranks on 2 nodes succeeded" : "rank 3 on node ";
    CHECK(coordinator->err() ==
          Contains("the job has ended with " + std::to_string(code) + ": " + reason));
    CHECK(coordinator->out().empty());
    CHECK(job.IsGone());
  }
}

TEST_CASE("coordinator: on loopback it serves processes of its own user alone") {
  if (geteuid() != 0) return SkipTest("only root makes sockets for other users");
  Job job;
  auto coordinator = Coordinator(job);
  constexpr uid_t kNobody = 65534;
  const auto greet = [&job](uid_t user) {
    syscall(SYS_setfsuid, user);  // of this thread alone
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    syscall(SYS_setfsuid, geteuid());
    const auto place = rendezvous::ResolveName("127.0.0.1", job.port()).addresses.at(0);
    REQUIRE(connect(fd.get(), place.get(), place.size) == 0);
    const std::string hello(rendezvous::kHelloRequest);
    send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
    char reply = 0;
    return recv(fd.get(), &reply, 1, 0);
  };
  CHECK(greet(kNobody) <= 0);
  CHECK(greet(geteuid()) == 1);
  coordinator->Signal(SIGTERM);
  CHECK(coordinator->Wait() == 143);
}

TEST_CASE("coordinator: a signal ends it with 128+n, before anybody has joined") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    Job job;
    auto coordinator = Coordinator(job);
    coordinator->Signal(signal);
    REQUIRE_MESSAGE(coordinator->Wait() == 128 + signal, coordinator->Describe());
    CHECK(coordinator->err() == Contains("stops serving; no node has joined"));
  }
}

TEST_CASE("coordinator: it says that workers go on without it where there are some") {
  Job job;
  auto coordinator = Coordinator(job);
  auto node = job.Run(job.NodeOptions(1, "1"), {"touch:" + job.File("up"), "wait"});
  REQUIRE_MESSAGE(job.WaitForFile("up"), node->Describe());
  coordinator->Signal(SIGTERM);
  REQUIRE_MESSAGE(coordinator->Wait() == 128 + SIGTERM, coordinator->Describe());
  CHECK(coordinator->err() == Contains("workers go on, and so does the job if"));
  node->Signal(SIGTERM);
  CHECK(node->Wait() == 128 + SIGTERM);
}

TEST_CASE("coordinator: agents of another run are told which run it serves") {
  Job job;
  auto coordinator = Coordinator(job, {"--rdzv-id=mine"});
  CHECK(coordinator->err() == Contains("for the run \"mine\""));
  auto other = job.Run(job.NodeOptions(1), {"wait"});
  REQUIRE_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK(other->err() == Contains("serves the run \"mine\", not "));
  coordinator->Signal(SIGTERM);
  CHECK(coordinator->Wait() == 143);
}

TEST_CASE("coordinator: a node of another run is named to the nodes that wait for it") {
  Job job;
  auto coordinator = Coordinator(job);
  const std::vector<std::string> mine = job.NodeOptions(1, "2", {"--rdzv-id=mine"});
  auto waiting = job.Run(mine, {"exit:0"});
  AwaitMissingNodes(*waiting);
  auto other = job.Run(job.NodeOptions(1, "2", {"--rdzv-id=other"}), {"wait"});
  REQUIRE_MESSAGE(other->Wait() == 121, other->Describe());
  CHECK(other->err() == Contains("serves the run \"mine\", not \"other\""));
  REQUIRE_MESSAGE(waiting->WaitForErr("refused: this coordinator serves the run \"mine\", not "
                                      "\"other\" of node "),
                  waiting->Describe());
  auto second = job.Run(mine, {"exit:0"});
  CHECK_MESSAGE(waiting->Wait() == 0, waiting->Describe());
  CHECK_MESSAGE(second->Wait() == 0, second->Describe());
  CHECK(coordinator->Wait() == 0);
}

TEST_CASE("coordinator: where it has few descriptors it says so, and what to do") {
  Job job;
  auto coordinator = job.RunProgram({"/bin/sh", "-c", "ulimit -n 40; exec \"$@\"", "sh",
                                     Runfile("ddprun"), "coordinator", Bind(job)});
  REQUIRE_MESSAGE(coordinator->Wait() == 120, coordinator->Describe());
  CHECK(coordinator->err() == Contains("error: coordinator: the limit on open files is 40, and "));
}

TEST_CASE("coordinator: an address that cannot be is an error that says what can") {
  Job job;
  auto coordinator = job.RunRaw({"coordinator", "--bind=nonsense"});
  REQUIRE_MESSAGE(coordinator->Wait() == 2, coordinator->Describe());
  CHECK(coordinator->err() == Contains("cannot listen on \"nonsense\": not an IP address of this "
                                       "machine; leave the host out for all of them"));
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
  CHECK(err == Contains("use another port, or end the program that has it"));
  first->Signal(SIGTERM);
  CHECK(first->Wait() == 143);
}

}  // namespace
}  // namespace ddprun::testing
