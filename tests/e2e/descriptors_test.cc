// An agent without a free file descriptor: who comes then is served later, and the job goes on.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "rendezvous/wire/hello.h"
#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/rendezvous/store/raw_client.h"
#include "tests/support/contains.h"
#include "tests/support/scarce_descriptors.h"

namespace ddprun::testing {
namespace {

using rendezvous::Number;
using rendezvous::RawClient;
using rendezvous::Request;
using rendezvous::StoreOp;

bool IsUnanswered(const UniqueFd& fd) {
  char byte;
  return recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

TEST_CASE("descriptors: without one both ports let connections wait, and the job goes on") {
  Job job;
  const std::vector<std::string> steps = {"env:MASTER_PORT@0", "touch:" + job.File("up{rank}"),
                                          "until:" + job.File("fail"), "exit:9@1", "wait"};
  auto a = job.Run(job.NodeOptions(1), steps);
  AwaitMissingNodes(*a);
  auto b = job.Run(job.NodeOptions(1), steps);
  REQUIRE_MESSAGE(job.WaitForFile("up0"), a->Describe());
  REQUIRE_MESSAGE(job.WaitForFile("up1"), b->Describe());
  REQUIRE_MESSAGE(a->WaitForOut("MASTER_PORT="), a->Describe());
  const int port = std::stoi(a->out().substr(a->out().find('=') + 1));

  RawClient worker(static_cast<uint16_t>(port));
  worker.Expect(rendezvous::Greeting() + Request(StoreOp::kAdd, {"/n"}, 1), Number(1));
  std::vector<RawClient> at_store;
  std::vector<UniqueFd> at_rendezvous;
  {
    const NoMoreDescriptors none(a->pid());
    for (int i = 0; i < 3; ++i) {  // these stand in the kernel's queue
      at_store.emplace_back(static_cast<uint16_t>(port));
      at_store.back().Send(rendezvous::Greeting() + Request(StoreOp::kAdd, {"/late"}, 1));
      at_rendezvous.push_back(rendezvous::ConnectTo(static_cast<uint16_t>(job.port())));
      rendezvous::SendAll(at_rendezvous.back().get(), rendezvous::kHelloRequest);
    }
    // Answered by the very thread that cannot accept.
    for (int i = 2; i < 200; ++i) worker.Expect(Request(StoreOp::kAdd, {"/n"}, 1), Number(i));
    worker.Expect(Request(StoreOp::kGetNumKeys), Number(1));
    for (const UniqueFd& fd : at_rendezvous) CHECK(IsUnanswered(fd));
    CHECK_MESSAGE(a->WaitForErr("warning: no file descriptor is left"), a->Describe());
  }
  for (const UniqueFd& fd : at_rendezvous) {
    const std::string reply = rendezvous::ReadToEnd(fd.get());
    CHECK_MESSAGE(reply.find("ddprun/1 run") == 0, reply);
  }
  for (RawClient& client : at_store) CHECK(client.Receive(8).size() == 8);
  worker.Expect(Request(StoreOp::kAdd, {"/late"}, 1), Number(4));
  CHECK(a->err() != Contains("error"));
  CHECK_MESSAGE(CountOf(a->err(), "no file descriptor") == 1, a->Describe());
  job.Touch("fail");
  REQUIRE_MESSAGE(a->Wait() == 9, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 9, b->Describe());
}

TEST_CASE("descriptors: a coordinator apart says that none is left for a connection") {
  Job job;
  auto coordinator = job.RunRaw({"coordinator", "--bind=" + job.endpoint()});
  REQUIRE_MESSAGE(coordinator->WaitForErr("listening on"), coordinator->Describe());
  UniqueFd waiting;
  {
    const NoMoreDescriptors none(coordinator->pid());
    waiting = rendezvous::ConnectTo(static_cast<uint16_t>(job.port()));
    rendezvous::SendAll(waiting.get(), rendezvous::kHelloRequest);
    CHECK_MESSAGE(coordinator->WaitForErr("no file descriptor is left for a connection"),
                  coordinator->Describe());
  }
  CHECK(rendezvous::ReadToEnd(waiting.get()).find("ddprun/1 apart") == 0);
  coordinator->Signal(SIGTERM);
  CHECK(coordinator->Wait() == 128 + SIGTERM);
}

TEST_CASE("descriptors: an agent that has none for its rendezvous ends with 120 and one sentence") {
  Job job(kGatedDdprun);
  const std::string gate = job.File("gate");
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  // With a file for timers to make, it stops before the rendezvous.
  auto ddprun =
      job.Run({}, {"wait"},
              {.env = {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}, {kFileGate, "beginning:" + gate}}});
  REQUIRE_MESSAGE(ddprun->WaitForErr("the file system does not answer"), ddprun->Describe());
  const NoMoreDescriptors none(ddprun->pid());
  const UniqueFd writer(open(gate.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE_MESSAGE(ddprun->Wait() == 120, ddprun->Describe());
  const std::string err = ddprun->err();
  CHECK(err == Contains("ddprun: error: "));
  CHECK_MESSAGE(CountOf(err, "error") == 1, err);
  CHECK(err == Contains("Too many open files"));
}

// Runs ddprun with `limit` descriptors allowed, of which it has inherited `taken` besides 0 to 2.
std::unique_ptr<Subprocess> RunLimited(int limit, int taken, const std::string& options) {
  const std::string script = "for i in $(seq " + std::to_string(taken) +
                             "); do eval \"exec $((i + 9))</dev/null\"; done; " + "ulimit -n " +
                             std::to_string(limit) + "; exec \"$0\" --standalone --no-python " +
                             options + " true";
  return std::make_unique<Subprocess>(
      std::vector<std::string>{"/bin/bash", "-c", script, Runfile("ddprun")});
}

TEST_CASE("descriptors: what is open already is no part of what ddprun can have") {
  auto ddprun = RunLimited(120, 60, "--nproc-per-node=2");
  REQUIRE_MESSAGE(ddprun->Wait() == 120, ddprun->Describe());
  const std::string err = ddprun->err();
  CHECK(std::count(err.begin(), err.end(), '\n') == 1);
  CHECK(err == Contains("limit on open files is 120, and "));
  CHECK(err == Contains("needs 70 more"));
  CHECK(err == Contains("ulimit -n"));
}

TEST_CASE("descriptors: the number that ddprun asks for is enough") {
  for (const std::string options : {"--nproc-per-node=40", "--nproc-per-node=40 -r 3"}) {
    CAPTURE(options);
    auto refused = RunLimited(100, 0, options);
    REQUIRE_MESSAGE(refused->Wait() == 120, refused->Describe());
    const std::string err = refused->err();
    const size_t taken_at = err.find("and ") + 4;
    const size_t needed_at = err.find("needs ") + 6;
    const int limit = std::stoi(err.substr(taken_at)) + std::stoi(err.substr(needed_at));
    auto ddprun = RunLimited(limit, 0, options);
    CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  }
}

TEST_CASE("descriptors: a low soft limit is raised for ddprun and not for its workers") {
  Subprocess ddprun({"/bin/bash", "-c",
                     "ulimit -S -n 50; exec \"$0\" --standalone --no-python --nproc-per-node=2 "
                     "/bin/sh -c 'ulimit -S -n'",
                     Runfile("ddprun")});
  REQUIRE_MESSAGE(ddprun.Wait() == 0, ddprun.Describe());
  CHECK(ddprun.out() == "50\n50\n");
}

}  // namespace
}  // namespace ddprun::testing
