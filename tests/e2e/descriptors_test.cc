// An agent without a free file descriptor: who comes then is served later, and the job goes on.
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include <doctest/doctest.h>

#include "rendezvous/server/hello.h"
#include "tests/e2e/job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/rendezvous/store/raw_client.h"
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
  REQUIRE_MESSAGE(a->WaitForErr("waiting for 1 more"), a->Describe());
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
  }
  for (const UniqueFd& fd : at_rendezvous) {
    const std::string reply = rendezvous::ReadToEnd(fd.get());
    CHECK_MESSAGE(reply.find("ddprun/1 run") == 0, reply);
  }
  for (RawClient& client : at_store) CHECK(client.Receive(8).size() == 8);
  worker.Expect(Request(StoreOp::kAdd, {"/late"}, 1), Number(4));
  CHECK_MESSAGE(a->err().find("error") == std::string::npos, a->Describe());
  job.Touch("fail");
  REQUIRE_MESSAGE(a->Wait() == 9, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 9, b->Describe());
}

}  // namespace
}  // namespace ddprun::testing
