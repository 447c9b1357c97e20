// What is said of who is believed: by a job, a coordinator apart from it, and who looks on.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr char kToken[] = "6b1f0c8e5a7d4b2390e1f4a6c8d7b5e3";
constexpr char kOtherToken[] = "0123456789abcdef0123456789abcdef";
constexpr char kTrusts[] = "ddprun: the network is trusted: ";
constexpr char kEncrypts[] =
    "ddprun: agents, the workers' store and ddp's tcp backend are encrypted";

// How a process is given a token; "": not at all.
Subprocess::Options With(const std::string& token) { return {.env = {{"DDPRUN_TOKEN", token}}}; }

void CheckRefused(const Node& who, int code, const std::string& why) {
  CHECK_MESSAGE(who->Wait() == code, who->Describe());
  CHECK(who->err() == Contains(why));
  CHECK_FALSE(CountOf(who->err() + who->out(), kToken));
  CHECK_FALSE(CountOf(who->err() + who->out(), kOtherToken));
}

TEST_CASE("trust: a store of rank 0's worker is refused where a secret could not guard it") {
  Job job;
  const std::string token = WriteFile(job.File("token"), kToken, 0600);
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  const Strings files = {"--tls-cert=" + WriteFile(job.File("cert"), own.certificate),
                         "--tls-key=" + WriteFile(job.File("key"), own.key, 0600),
                         "--tls-ca=" + WriteFile(job.File("ca"), authority.certificate)};
  const auto run = [&](Strings options, const Strings& secret, const std::string& given) {
    options.insert(options.end(), secret.begin(), secret.end());
    Subprocess::Options how = With(given);
    how.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
    return job.Run(options, {"print:ran"}, how);
  };
  const std::string why =
      "ddprun: error: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 opens the workers' store to the "
      "network; the job's token does not guard it there: unset it, or give no token\n";
  const Strings two = job.NodeOptions(1);
  CheckRefused(run(two, {"--token-file=" + token}, ""), 2, why);
  CheckRefused(run(two, {}, kToken), 2, why);
  CheckRefused(run(two, files, ""), 2, why);
  // Nodes may come yet.
  CheckRefused(run(job.NodeOptions(1, "1:2"), {}, kToken), 2, why);
  const std::string etcd = "--rdzv-endpoint=127.0.0.1:1";
  CheckRefused(run({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=e", etcd}, {}, kToken), 2, why);
  // Of one node nobody else is to reach the store.
  const Node alone = run({"--nnodes=1", "--nproc-per-node=1"}, {}, kToken);
  CHECK_MESSAGE(alone->Wait() == 0, alone->Describe());
}

TEST_CASE("trust: of one file for several options the option is named of which it is wrong") {
  Job job;
  const Certificate authority = MakeAuthority(), own = MakeServerCertificate(authority, "DNS:a");
  const std::string key = WriteFile(job.File("key"), own.key, 0600);
  const std::string cert = WriteFile(job.File("cert"), own.certificate);
  const std::string none = WriteFile(job.File("none"), "none", 0600);
  const auto trouble = [&](const std::string& cert, const std::string& key, const std::string& ca) {
    const Node node = job.RunRaw({"coordinator", "--bind=127.0.0.1:0", "--tls-cert=" + cert,
                                  "--tls-key=" + key, "--tls-ca=" + ca});
    REQUIRE_MESSAGE(node->Wait() == 122, node->Describe());
    return node->err();
  };
  CHECK(trouble(cert, key, key) ==
        Contains(": --tls-ca " + key + ": it holds no PEM certificate, but \"PRIVATE KEY\"\n"));
  CHECK(trouble(cert, cert, cert) ==
        Contains(": --tls-cert and --tls-key " + cert + ": it holds no PEM private"));
  CHECK(trouble(none, key, cert) == Contains(": --tls-cert " + none + ": it holds no PEM"));
}

TEST_CASE("trust: a job that only its own machine can reach says nothing of the network") {
  Job job;
  for (const std::string token : {"", kToken}) {
    CAPTURE(token);
    const Node alone = job.Run({"--standalone"}, {"connect"}, With(token));
    const Node a = job.Run(job.NodeOptions(1), {"connect"}, With(token));
    const Node b = job.Run(job.NodeOptions(1), {"connect"}, With(token));
    for (const Node* node : {&alone, &a, &b}) {
      CHECK_MESSAGE((*node)->Wait() == 0, (*node)->Describe());
      CHECK_MESSAGE((*node)->err().empty(), (*node)->Describe());
    }
  }
}

TEST_CASE("trust: of a job that others can reach the node that serves it says so once") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Job job;
  for (const std::string token : {"", kToken}) {
    CAPTURE(token);
    const auto run = [&](int host) {
      Subprocess::Options how = With(token);
      how.netns = hosts->Name(host);
      return job.Run({"--nnodes=2", "--nproc-per-node=1", "--max-restarts=1",
                      "--rdzv-id=trust" + token.substr(0, 4),
                      "--rdzv-endpoint=" + hosts->Address(1) + ":29400"},
                     {"connect", "exit:3@1#0"}, how);
    };
    const Node a = run(1), b = run(2);
    for (const Node* node : {&a, &b}) {
      CHECK_MESSAGE((*node)->Wait() == 0, (*node)->Describe());
      const bool serves = node == &a;
      CHECK_MESSAGE(CountOf((*node)->err(), kTrusts) == (serves && token.empty() ? 1 : 0),
                    (*node)->Describe());
      CHECK_MESSAGE(CountOf((*node)->err(), kEncrypts) == (serves && !token.empty() ? 1 : 0),
                    (*node)->Describe());
    }
  }
}

// A coordinator apart from the agents, at the job's endpoint.
Node Coordinator(Job& job, const std::string& token) {
  Node coordinator = job.RunRaw({"coordinator", "--bind=" + job.endpoint()}, With(token));
  REQUIRE_MESSAGE(coordinator->WaitForErr("listening on"), coordinator->Describe());
  return coordinator;
}

TEST_CASE("trust: a coordinator with a token takes agents and onlookers that have it, no others") {
  Job job;
  const Node coordinator = Coordinator(job, kToken);
  const Strings status = {"status", "--coordinator=" + job.endpoint()};
  const Strings node = job.NodeOptions(1);
  CheckRefused(job.RunRaw(status, With("")), 122,
               "it asks for TLS, and this node was given no token");
  CheckRefused(job.RunRaw(status, With(kOtherToken)), 122, "its token is another one");
  CheckRefused(job.Run(node, {}, With("")), 122,
               "it asks for TLS, and this node was given no token");
  CheckRefused(job.Run(node, {}, With(kOtherToken)), 122, "its token is another one");
  const Strings steps = {"connect", "until:" + job.File("go")};
  const Node a = job.Run(node, steps, With(kToken)), b = job.Run(node, steps, With(kToken));
  REQUIRE_MESSAGE(a->WaitForOut("connected"), a->Describe());
  REQUIRE_MESSAGE(b->WaitForOut("connected"), b->Describe());
  CheckRefused(job.RunRaw(status, With("")), 122,
               "it asks for TLS, and this node was given no token");
  CheckRefused(job.RunRaw(status, With(kOtherToken)), 122, "its token is another one");
  const Node looks = job.RunRaw(status, With(kToken));
  CHECK_MESSAGE(looks->Wait() == 0, looks->Describe());
  CHECK(looks->out() == Contains("2 of 2 nodes"));
  job.Touch("go");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
  CHECK_MESSAGE(coordinator->Wait() == 0, coordinator->Describe());
  for (const char* told : {"it does not speak TLS, as a node that was given no token\n",
                           "it did not prove that it has the job's token\n"}) {
    CHECK_MESSAGE(CountOf(coordinator->err(), told) == 1, coordinator->Describe());
  }
}

TEST_CASE("trust: a token that may be guessed is warned of once, and taken") {
  Job job;
  const std::string warning = "warning: the token can be guessed from a recorded connection: ";
  const std::string way_out = "make one with `ddprun token new`\n";
  for (const std::string& token :
       {std::string("correct-horse-battery-staple-2024"), std::string(kToken)}) {
    const size_t count = token == kToken ? 0 : 1;
    const Node node = job.Run({"--nproc-per-node=2"}, {}, With(token));
    CHECK_MESSAGE(node->Wait() == 0, node->Describe());
    CHECK_MESSAGE(CountOf(node->err(), warning) == count, node->Describe());
    CHECK_MESSAGE(CountOf(node->err(), way_out) == count, node->Describe());
    CHECK(node->err() != Contains(token));
    const Node coordinator = Coordinator(job, token);
    coordinator->Signal(SIGTERM);
    CHECK_MESSAGE(coordinator->Wait() == 128 + SIGTERM, coordinator->Describe());
    CHECK_MESSAGE(CountOf(coordinator->err(), warning) == count, coordinator->Describe());
  }
}

TEST_CASE("trust: a coordinator without a token takes nobody who was given one") {
  Job job;
  const Node coordinator = Coordinator(job, "");
  const std::string why = "it runs without a token, which this node was given";
  CheckRefused(job.RunRaw({"status", "--coordinator=" + job.endpoint()}, With(kToken)), 122, why);
  CheckRefused(job.Run(job.NodeOptions(1), {}, With(kToken)), 122, why);
  coordinator->Signal(SIGTERM);
  CHECK_MESSAGE(coordinator->Wait() == 143, coordinator->Describe());
}

TEST_CASE("trust: coordinator and status end with 122 for a token that is none, and read links") {
  Job job;
  const Strings coordinator = {"coordinator", "--bind=127.0.0.1:0"};
  const Strings status = {"status", "--coordinator=" + job.endpoint()};
  for (Strings words : {coordinator, status}) {
    const std::string command = words[0] == "status" ? "" : "coordinator: ";
    CheckRefused(job.RunRaw(words, With("short")), 122,
                 "ddprun: error: " + command + "DDPRUN_TOKEN: it has 5 characters");
    const std::string open = WriteFile(job.File("open"), kToken, 0644);
    words.push_back("--token-file=" + open);
    CheckRefused(job.RunRaw(words), 122,
                 command + "--token-file " + open + ": its mode is 644, so others may read it");
  }
  // As Kubernetes mounts a secret.
  const Node served = Coordinator(job, kToken);
  const std::string link = job.File("link");
  std::filesystem::create_symlink(WriteFile(job.File("token"), kToken, 0600), link);
  const Node looks = job.RunRaw({status[0], status[1], "--token-file=" + link});
  CHECK_MESSAGE(looks->Wait() == 2, looks->Describe());
  CHECK(looks->err() == Contains("serves no job yet: no node has joined"));
  served->Signal(SIGTERM);
  CHECK_MESSAGE(served->Wait() == 143, served->Describe());
}

}  // namespace
}  // namespace ddprun::testing
