// A node whose own certificate expires while the job runs.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/faults/wrong_clock.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;
constexpr int64_t kHour = 3600;
constexpr int64_t kAge = 100 * kHour;  // so old that each is warned of

// A job of nodes on hosts of their own, whose clocks agree. The certificate of the second one is
// good for an hour, those of the others for a day.
class Expiring {
 public:
  explicit Expiring(const Hosts& hosts) : hosts_(hosts) {
    ca_ = WriteFile(job.File("ca"), authority_.certificate);
  }

  Node Start(int host, Strings options, const Strings& steps) {
    const std::string name = "node" + std::to_string(host);
    const Certificate own =
        MakeServerCertificate(authority_, "DNS:" + name, -kAge, host == 2 ? kHour : 24 * kHour);
    for (const std::string& option :
         {std::string("--nproc-per-node=1"), "--rdzv-id=" + job.id(),
          "--rdzv-endpoint=" + hosts_.Address(1) + ":29400",
          "--tls-cert=" + WriteFile(job.File(name), own.certificate),
          "--tls-key=" + WriteFile(job.File(name + ".key"), own.key, 0600), "--tls-ca=" + ca_}) {
      options.push_back(option);
    }
    return job.Run(options, steps, {.env = clock_.env(), .netns = hosts_.Name(host)});
  }

  void Expire() {
    CHECK(clock_.HasFired());
    clock_.Jump(2 * kHour);
  }
  // What names the file and the cause.
  std::string Why() const {
    return "own certificate: " + job.File("node2") + ": the certificate was valid until ";
  }

  Job job;

 private:
  const Hosts& hosts_;
  const Certificate authority_ = MakeAuthority(-kAge, 24 * kHour);
  WrongClock clock_{job, "clock"};
  std::string ca_;
};

// A node looks at its certificate every 2 s while it waits for a place, and not at all while its
// workers run.
bool IsSilentOfIt(const Node& a, const Node& b) {
  const std::string word = "the certificate was valid until";
  return !Eventually([&] { return a->err() + b->err() == Contains(word); },
                     std::chrono::seconds(3));
}

TEST_CASE(
    "expiry: a node whose certificate has expired leaves before the next round, and says why") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Expiring on(*hosts);
  const Strings options = {"--nnodes=1:2", "--max-restarts=1", "--rdzv-conf=last_call_timeout=60"};
  const Strings steps = {"touch:" + on.job.File("up{rank}.{restart}"),
                         "until:" + on.job.File("fail"), "exit:3@0#0",
                         "until:" + on.job.File("go")};
  const Node a = on.Start(1, options, steps), b = on.Start(2, options, steps);
  for (const char* up : {"up0.0", "up1.0"}) {
    REQUIRE_MESSAGE(on.job.WaitForFile(up), a->Describe(), b->Describe());
  }
  on.Expire();
  CHECK_MESSAGE(IsSilentOfIt(a, b), a->Describe(), b->Describe());
  on.job.Touch("fail");
  CHECK_MESSAGE(b->Wait() == 122, b->Describe());
  CHECK(b->err() == Contains("ddprun: error: " + on.Why()));
  on.job.Touch("go");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK(a->err() == Contains(on.Why()));
}

TEST_CASE("expiry: where no restart is left the node ends with the job's own code") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Expiring on(*hosts);
  const Strings steps = {"touch:" + on.job.File("up{rank}"), "until:" + on.job.File("fail"),
                         "exit:3@0#0", "until:" + on.job.File("go")};
  const Node a = on.Start(1, {"--nnodes=2"}, steps), b = on.Start(2, {"--nnodes=2"}, steps);
  for (const char* up : {"up0", "up1"}) {
    REQUIRE_MESSAGE(on.job.WaitForFile(up), a->Describe(), b->Describe());
  }
  on.Expire();
  on.job.Touch("fail");
  for (const Node* node : {&a, &b}) {
    CHECK_MESSAGE((*node)->Wait() == 3, (*node)->Describe());
    CHECK((*node)->err() != Contains("the certificate was valid until"));
    CHECK((*node)->err() == Contains("warning: the certificate in " + on.job.File("node")));
  }
}

TEST_CASE("expiry: a spare whose certificate has expired leaves, and disturbs nobody") {
  std::string why;
  const auto hosts = Hosts::Make(3, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Expiring on(*hosts);
  const Strings steps = {"touch:" + on.job.File("up{rank}"), "until:" + on.job.File("go")};
  const Node a = on.Start(1, {"--nnodes=2"}, steps), c = on.Start(3, {"--nnodes=2"}, steps);
  for (const char* up : {"up0", "up1"}) {
    REQUIRE_MESSAGE(on.job.WaitForFile(up), a->Describe(), c->Describe());
  }
  const Node spare = on.Start(2, {"--nnodes=2"}, steps);
  CHECK_MESSAGE(spare->WaitForErr("standing by as a spare"), spare->Describe());
  on.Expire();
  CHECK_MESSAGE(spare->Wait() == 122, spare->Describe());
  CHECK(spare->err() == Contains("ddprun: error: " + on.Why()));
  on.job.Touch("go");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(c->Wait() == 0, c->Describe());
}

TEST_CASE("expiry: a node with workers that comes back with an expired certificate says why") {
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  Expiring on(*hosts);
  const Strings options = {"--nnodes=2",
                           "--rdzv-conf=keep_alive_interval=60,keep_alive_max_attempt=3"};
  const Strings steps = {"touch:" + on.job.File("up{rank}"), "until:" + on.job.File("go")};
  const Node a = on.Start(1, options, steps), b = on.Start(2, options, steps);
  for (const char* up : {"up0", "up1"}) {
    REQUIRE_MESSAGE(on.job.WaitForFile(up), a->Describe(), b->Describe());
  }
  const int pids[] = {on.job.PidOfRank(0), on.job.PidOfRank(1)};
  hosts->SetLink(2, false);
  CHECK_MESSAGE(b->WaitForErr(" is lost: "), b->Describe());
  on.Expire();
  CHECK(b->err() != Contains(on.Why()));
  hosts->SetLink(2, true);
  CHECK_MESSAGE(b->WaitForErr(on.Why()), b->Describe());
  for (int rank : {0, 1}) CHECK(on.job.PidOfRank(rank) == pids[rank]);
  for (const Node* node : {&b, &a}) {
    (*node)->Signal(SIGTERM);
    CHECK_MESSAGE((*node)->Wait() == 143, (*node)->Describe());
  }
}

}  // namespace
}  // namespace ddprun::testing
