// Leaders of a job against a real etcd.
#include "rendezvous/etcd/leadership.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "rendezvous/base/steady_clock.h"
#include "tests/support/contains.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/skip.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EtcdCluster;
using testing::Eventually;
using testing::SkipTest;
using testing::WhyNoEtcd;

constexpr Duration kLong = seconds(20);

// A leader, and what it is told.
struct Candidate {
  Candidate(const EtcdCluster& cluster, const std::string& run, int64_t seen) {
    Leadership::Options options{.etcd = {.members = {}, .prefix = "/test"},
                                .run_id = run,
                                .address = "127.0.0.1",
                                .host = "node",
                                .seen_revision = seen,
                                .job_time = seconds(30),
                                .on_lost = [this](const std::string& why) {
                                  const std::lock_guard lock(mutex);
                                  lost = why;
                                }};
    for (size_t i = 0; i < cluster.size(); ++i) {
      options.etcd.members.push_back({"127.0.0.1", cluster.port(i)});
    }
    leadership = std::make_unique<Leadership>(std::move(options));
  }

  std::string Lost() {
    const std::lock_guard lock(mutex);
    return lost;
  }
  bool WriteAndWait(const Record& record) {
    auto written = std::make_shared<std::promise<void>>();
    leadership->Write(record, [written] { written->set_value(); });
    return written->get_future().wait_for(kLong) == std::future_status::ready;
  }
  bool MayTell() {
    bool has_waited = false;
    leadership->EndWaits();
    return leadership->AwaitTurn(has_waited);
  }

  std::mutex mutex;
  std::string lost;
  std::unique_ptr<Leadership> leadership;
};

Record SomeRecord(int restarts) {
  return {.instance = {.high = 1, .low = 2},
          .epoch = Epoch{7},
          .restart_count = restarts,
          .verdict = std::nullopt};
}

TEST_CASE("leadership: of two that saw no leader one leads, and the next has a greater epoch") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  Candidate a(cluster, "j", 0), b(cluster, "j", 0);
  const auto first = a.leadership->Begin(1001, kLong);
  REQUIRE_MESSAGE(first.ok(), first.status().ToString());
  CHECK_FALSE(first->is_remembered);
  CHECK(first->record_limit == seconds(5));
  CHECK(absl::IsAlreadyExists(b.leadership->Begin(1002, kLong).status()));
  REQUIRE(a.WriteAndWait(SomeRecord(3)));
  a.leadership->Leave(kLong, {});
  CHECK(cluster.KeysUnder("/test/j/leader") == "");
  Candidate c(cluster, "j", 0);
  const auto next = c.leadership->Begin(1003, kLong);
  REQUIRE_MESSAGE(next.ok(), next.status().ToString());
  CHECK(next->epoch > first->epoch);
  CHECK(next->is_remembered);
  CHECK(next->record_limit == seconds(5));
  CHECK(next->restart_count == 3);
  CHECK(next->instance == JobInstance{.high = 1, .low = 2});
  // The run's own, and nobody else's.
  Candidate d(cluster, "other", 0);
  CHECK(d.leadership->Begin(1004, kLong).ok());
  d.leadership->Forget(kLong);
  c.leadership->Forget(kLong);
  CHECK(cluster.KeysUnder("/test") == "");
  CHECK(cluster.Ctl({"lease", "list"}) == "found 0 leases\n");
}

TEST_CASE("leadership: where etcd grants a longer lease a verdict waits longer to be kept") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  // A lease is then one and a half times as long as an election, at the least.
  const EtcdCluster cluster(
      {.members = 1, .more = {"--election-timeout=5000", "--heartbeat-interval=500"}});
  Candidate a(cluster, "j", 0);
  const auto begun = a.leadership->Begin(1001, kLong);
  REQUIRE_MESSAGE(begun.ok(), begun.status().ToString());
  CHECK(begun->record_limit > seconds(8));
  a.leadership->Forget(kLong);
}

TEST_CASE("leadership: who has seen the leader's process gone takes its key, and it is told") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  Candidate a(cluster, "j", 0);
  const auto first = a.leadership->Begin(1001, kLong);
  REQUIRE(first.ok());
  REQUIRE(a.WriteAndWait(SomeRecord(1)));
  // One that saw an older key is not let in.
  Candidate late(cluster, "j", static_cast<int64_t>(first->epoch.value) - 1);
  CHECK(absl::IsAlreadyExists(late.leadership->Begin(1002, kLong).status()));
  Candidate b(cluster, "j", static_cast<int64_t>(first->epoch.value));
  const auto second = b.leadership->Begin(1003, kLong);
  REQUIRE_MESSAGE(second.ok(), second.status().ToString());
  CHECK(second->epoch > first->epoch);
  REQUIRE(b.WriteAndWait(SomeRecord(2)));
  REQUIRE(Eventually([&] { return !a.Lost().empty(); }));
  CHECK(a.Lost() == "node node leads in its place, by etcd's word");
  CHECK_FALSE(a.MayTell());
  // What the old one wants to leave reaches nobody, nor does it take the new one's key along.
  a.leadership->Write(SomeRecord(9), nullptr);
  a.leadership->Forget(kLong);
  CHECK(b.MayTell());
  b.leadership->Leave(kLong, {});
  Candidate c(cluster, "j", 0);
  const auto third = c.leadership->Begin(1004, kLong);
  REQUIRE_MESSAGE(third.ok(), third.status().ToString());
  CHECK(third->restart_count == 2);
  c.leadership->Forget(kLong);
  CHECK(cluster.KeysUnder("/test") == "");
}

TEST_CASE("leadership: a leader waits while etcd is away, and goes on when it is back") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster cluster({.members = 1});
  Candidate a(cluster, "j", 0);
  REQUIRE(a.leadership->Begin(1001, kLong).ok());
  bool has_waited = false;
  CHECK(a.leadership->AwaitTurn(has_waited));
  CHECK_FALSE(has_waited);
  cluster.member(0).Signal(SIGKILL);
  constexpr milliseconds kQuiet(500);  // lower bound: of a wait
  TimePoint last_turn = SteadyNow();   // when the last call began that did not wait
  std::future<bool> turn;
  const TimePoint gone = SteadyNow();
  const auto waits = [&] {
    const TimePoint before = SteadyNow();
    std::promise<void> begun;  // a thread may need long to begin
    turn = std::async(std::launch::async, [&] {
      begun.set_value();
      return a.leadership->AwaitTurn(has_waited);
    });
    begun.get_future().wait();
    if (turn.wait_for(kQuiet) != std::future_status::ready) return true;
    last_turn = before;
    return false;
  };
  REQUIRE(Eventually(waits));
  CHECK(last_turn <= gone + Tenure::kLease + seconds(1));
  // A member that begins anew gives every lease its whole time.
  cluster.Restart(0);
  const bool is_back = turn.wait_for(kLong) == std::future_status::ready;
  a.leadership->EndWaits();
  CHECK(turn.get());
  CHECK(is_back);
  CHECK(has_waited);
  CHECK(a.Lost() == "");
}

TEST_CASE("leadership: a leader that hears nothing of etcd for long gives its place up") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster cluster({.members = 1});
  Candidate a(cluster, "j", 0);
  REQUIRE(a.leadership->Begin(1001, kLong).ok());
  cluster.member(0).Signal(SIGSTOP);
  REQUIRE(Eventually([&] { return !a.Lost().empty(); }));
  CHECK(a.Lost() == Contains("has not renewed its lease for 15 s"));
  CHECK_FALSE(a.MayTell());
  cluster.member(0).Signal(SIGCONT);
}

TEST_CASE("leadership: a foreign value at the job's key is named and left alone") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  cluster.Ctl({"put", "/test/j/job", "somebody's"});
  Candidate a(cluster, "j", 0);
  const auto status = a.leadership->Begin(1001, kLong).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.ToString() == Contains("\"/test/j/job\""));
  CHECK(cluster.KeysUnder("/test") == "/test/j/job\nsomebody's\n");
}

}  // namespace
}  // namespace ddprun::rendezvous
