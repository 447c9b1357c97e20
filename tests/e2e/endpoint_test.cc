// When the endpoint comes late, at once, twice or never, and what the agents print meanwhile.
#include <signal.h>

#include <doctest/doctest.h>

#include <sstream>

#include "rendezvous/net/socket_address.h"
#include "tests/e2e/job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

// The options of an agent that leaves hosting to the other one.
std::vector<std::string> ClientOptions(Job& job, int workers = 1) {
  return job.NodeOptions(workers, "2", {"--rdzv-conf=is_host=0"});
}

void CheckBothEndWith(int exit_code, const Node& a, const Node& b) {
  REQUIRE_MESSAGE(a->Wait() == exit_code, a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->Wait() == exit_code, a->Describe(), b->Describe());
}

TEST_CASE("endpoint: an agent that starts right before the endpoint's gets in") {
  Job job;
  const Node early = job.Run(ClientOptions(job), {"env:WORLD_SIZE"});
  const Node host = job.Run(job.NodeOptions(1), {"env:WORLD_SIZE"});
  CheckBothEndWith(0, early, host);
  CHECK(early->out() == "WORLD_SIZE=2\n");
}

TEST_CASE("endpoint: an agent that waits says for what, and gets in when the endpoint comes") {
  Job job;
  const Node early = job.Run(ClientOptions(job), {"env:RANK"});
  REQUIRE_MESSAGE(early->WaitForErr("waiting for the coordinator at " + job.endpoint() +
                                    " (this machine alone; "),
                  early->Describe());
  CHECK(early->err() == Contains(" (last try: Connection refused), "));
  const Node host = job.Run(job.NodeOptions(1), {"env:RANK"});
  CheckBothEndWith(0, early, host);
  CHECK(host->out() == "RANK=0\n");
  CHECK(early->out() == "RANK=1\n");
}

TEST_CASE("endpoint: port 0 of this machine, by its name, is a free port of a job of one node") {
  Job job;
  for (const std::string& host : {rendezvous::HostName(), std::string("127.0.0.1")}) {
    const Node node =
        job.Run({"--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=" + host + ":0"},
                {"env:WORLD_SIZE"});
    REQUIRE_MESSAGE(node->Wait() == 0, node->Describe());
    CHECK(node->out() == "WORLD_SIZE=1\n");
  }
  const Node stranger = job.Run({"--nnodes=1", "--rdzv-endpoint=no-such-host.example:0"}, {});
  REQUIRE_MESSAGE(stranger->Wait() == 2, stranger->Describe());
  CHECK(stranger->err() == Contains("no name or address of it is that host"));
}

TEST_CASE("endpoint: a proxy in the environment is not asked") {
  Job job;
  const std::string nobody = "http://127.0.0.1:1";
  const Subprocess::Options how = {.env = {{"http_proxy", nobody},
                                           {"HTTP_PROXY", nobody},
                                           {"https_proxy", nobody},
                                           {"grpc_proxy", nobody},
                                           {"no_proxy", ""},
                                           {"no_grpc_proxy", ""}}};
  const Node a = job.Run(job.NodeOptions(1), {}, how);
  const Node b = job.Run(ClientOptions(job), {}, how);
  CheckBothEndWith(0, a, b);
}

TEST_CASE("endpoint: of two agents that start at the same instant one hosts, every time") {
  Job job;  // also: each time on the port and with the run directory of the time before
  for (int i = 0; i < 20; ++i) {
    std::vector<std::string> arguments = job.NodeOptions(1);
    arguments.push_back("/bin/true");
    const Node a = job.RunRaw(arguments);
    const Node b = job.RunRaw(arguments);
    CAPTURE(i);
    CheckBothEndWith(0, a, b);
  }
}

TEST_CASE("endpoint: when the host gives up, those that wait with it end too, and say why") {
  Job job;
  const std::string timeout = "--rdzv-conf=join_timeout=12";
  const Node host = job.Run(job.NodeOptions(1, "3", {timeout}), {"wait"});
  const Node client = job.Run(job.NodeOptions(1, "3", {timeout + ",is_host=0"}), {"wait"});
  AwaitMissingNodes(*host);
  CheckBothEndWith(121, host, client);
  for (const Node* node : {&host, &client}) {
    const std::string err = (*node)->err();
    CHECK(err == Contains("gave up after 12 s: 2 of 3 nodes, waiting for 1 more"));
    CHECK(err == Contains(job.endpoint()));
  }
}

// Every line must be one of ours: gRPC's begin with a level and a date, a trace's with anything.
void CheckOnlyOurLines(const Node& node) {
  std::stringstream lines(node->err());
  for (std::string line; std::getline(lines, line);) {
    REQUIRE_MESSAGE(line.rfind("ddprun: ", 0) == 0, line);
  }
}

TEST_CASE("endpoint: nothing of gRPC's reaches stderr, whatever breaks and however it is asked") {
  Job job;
  const Subprocess::Options how = {.env = {{"GRPC_VERBOSITY", "DEBUG"}, {"GRPC_TRACE", "all"}}};
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}"), "wait"};
  std::vector<std::string> options = ClientOptions(job);
  options.push_back("--max-restarts=1");
  const Node client = job.Run(options, steps, how);
  const Node host = job.Run(job.NodeOptions(1, "2", {"--max-restarts=1"}), steps, how);
  REQUIRE_MESSAGE(job.WaitForFile("up0"), host->Describe());
  REQUIRE_MESSAGE(job.WaitForFile("up1"), client->Describe());
  const auto port = static_cast<uint16_t>(job.port());
  for (const char* garbage : {"PRI * garbage\r\n", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01"}) {
    const UniqueFd stranger = rendezvous::ConnectTo(port);
    rendezvous::SendAll(stranger.get(), garbage);
    rendezvous::ReadToEnd(stranger.get());
  }
  host->Signal(SIGKILL);
  REQUIRE_MESSAGE(host->Wait() == 137, host->Describe());
  REQUIRE_MESSAGE(client->WaitForErr("is gone"), client->Describe());
  client->Signal(SIGTERM);
  REQUIRE_MESSAGE(client->Wait() == 143, client->Describe());
  CheckOnlyOurLines(client);
  CheckOnlyOurLines(host);
}

}  // namespace
}  // namespace ddprun::testing
