// A coordinator that is silent or gone: how long an agent waits for it.
#include <doctest/doctest.h>

#include "launcher/agent/agent_core.h"
#include "tests/launcher/agent/agent_bench.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Concluded;
using rendezvous::ContactLost;
using rendezvous::ContactRestored;
using rendezvous::RendezvousFailed;
using rendezvous::Verdict;

Concluded Failure(int code) { return Concluded{Verdict{code, "rank 1 failed", {}}}; }

TEST_CASE("agent: a silent coordinator stops nobody before orphan_timeout") {
  Bench bench(2, {.orphan_timeout = 600s});
  bench.Run();
  CHECK(bench.Step(ContactLost{"timed out", false}) == "");
  CHECK(bench.Pass(4s) == "");
  CHECK(bench.Pass(595s) == "say");
  SUBCASE("it comes back") {
    CHECK(bench.Step(ContactRestored{}) == "say");
    CHECK(bench.Pass(2000s) == "");
  }
  SUBCASE("it does not") {
    CHECK(bench.Pass(1s) == "say stop:15");
    SUBCASE("") { CHECK(bench.Step(WorkersGone{}) == "end:123"); }
    SUBCASE("before the workers have ended: the job's verdict counts") {
      bench.Step(ContactRestored{});
      CHECK(bench.Step(Failure(7)) == "ack");
      CHECK(bench.Step(WorkersGone{}) == "report end:7");
    }
  }
}

TEST_CASE(
    "agent: an expired certificate is told once more, and waited for as the coordinator does") {
  Bench bench(2, {.orphan_timeout = 600s, .evict_after = 30s});
  bench.Run();
  CHECK(bench.Step(ContactLost{"timed out"}) == "");
  CHECK(bench.Pass(5s) == "say");
  const ContactLost expired{.reason = "own certificate: c.pem", .is_lasting = true};
  CHECK(bench.Step(expired) == "say");
  CHECK(bench.Step(ContactLost{"timed out"}) == "");
  CHECK(bench.Step(expired) == "");
  CHECK(bench.Pass(24s) == "");
  CHECK(bench.Pass(1s) == "say stop:15");
  CHECK(bench.Step(WorkersGone{}) == "end:122");
}

TEST_CASE(
    "agent: success without a coordinator waits for it, unless its node died before the end") {
  Bench bench(1, {.exit_barrier_timeout = 300s});
  bench.Run();
  bench.End(0, 0);
  bench.Step(WorkersGone{});
  SUBCASE("it is silent") {
    bench.Step(ContactLost{"reset"});
    CHECK(bench.Pass(299s) == "say");
    CHECK(bench.Pass(1s) == "say end:0");
  }
  SUBCASE("a certificate has expired: it is no failure of a node that is done") {
    bench.Step(ContactLost{.reason = "expired", .is_lasting = true});
    CHECK(bench.Pass(299s) == "say");
    CHECK(bench.Pass(1s) == "say end:0");
  }
  SUBCASE("its process is gone") {
    bench.Step(ContactLost{"refused", true});
    CHECK(bench.Pass(3s) == "say end:121");
  }
}

TEST_CASE("agent: a failure without the coordinator's answer is reported by this node's own end") {
  Bench bench(1);
  bench.Run();
  bench.End(0, 7);
  CHECK(bench.Step(WorkersGone{}) == "join");
  SUBCASE("told once it was silent for a while, then the contact is lost") {
    CHECK(bench.Pass(8s) == "say");
    CHECK(bench.Step(ContactLost{"its lease is over"}) == "");
    SUBCASE("for good") { CHECK(bench.Step(RendezvousFailed{"nobody"}) == "say report end:7"); }
    SUBCASE("a signal") { CHECK(bench.Step(SignalReceived{15}) == "leave report end:143"); }
    SUBCASE("ddprun stop") {
      CHECK(bench.Step(StopOrder{rendezvous::StopHow::kGracefully, "ddprun stop"}) ==
            "answer-alone say order leave report end:143");
    }
    SUBCASE("this machine's trouble") {
      CHECK(bench.Step(LocalFailure{120, "disk full"}) == "say leave report end:7");
    }
  }
  SUBCASE("a worker that ends with the signal that comes to all has not failed") {
    bench.Pass(500ms);
    CHECK(bench.Step(SignalReceived{2}) == "leave end:130");
  }
  SUBCASE("nor is one named again after which the job goes on") {
    bench.Step(rendezvous::Waiting{"1 of 2 nodes, waiting for 1 more"});
    bench.Pass(8s);
    CHECK(bench.Step(SignalReceived{15}) == "leave say end:143");
  }
}

TEST_CASE("agent: who succeeds long after the coordinator was lost waits for it as long") {
  Bench bench(1, {.exit_barrier_timeout = 300s});
  bench.Run();
  bench.Step(ContactLost{"reset"});
  bench.Pass(400s);
  CHECK(bench.End(0, 0) == "first-success success");
  bench.Step(WorkersGone{});
  CHECK(bench.Pass(299s) == "say");
  CHECK(bench.Pass(1s) == "say end:0");
}

TEST_CASE("agent: one that did not run when its time was over calls the coordinator once more") {
  Bench bench(2, {.orphan_timeout = 600s, .exit_barrier_timeout = 300s});
  bench.Run();
  bench.Step(ContactLost{"reset"});
  bench.Pass(6s);
  SUBCASE("with workers") {
    CHECK(bench.Sleep(3000s) == "");
    CHECK(bench.Pass(5s) == "say stop:15");
  }
  SUBCASE("with its work done") {
    bench.End(0, 0);
    bench.End(1, 0);
    bench.Step(WorkersGone{});
    bench.Pass(6s);
    CHECK(bench.Sleep(3000s) == "");
    bench.Step(ContactRestored{});
    CHECK(bench.Step(Failure(7)) == "ack report end:7");
  }
}

}  // namespace
}  // namespace ddprun::launcher
