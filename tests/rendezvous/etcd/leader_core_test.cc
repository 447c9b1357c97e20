#include "rendezvous/etcd/leader_core.h"

#include <chrono>
#include <string>
#include <variant>

#include <doctest/doctest.h>

#include "tests/rendezvous/etcd/etcd_model.h"

namespace ddprun::rendezvous::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Lane = LeaderCore::Lane;
using Stage = LeaderCore::Stage;

constexpr char kLeaderKey[] = "/p/j/leader";
constexpr char kJobKey[] = "/p/j/job";

EtcdAnswer Lost() { return {.status = absl::UnavailableError("no answer in time")}; }

// A leader, or who wants to be one, and etcd, with one clock.
struct Candidate {
  explicit Candidate(EtcdModel& model, uint64_t seed, int64_t seen = 0)
      : etcd(model),
        core({.run_id = "j",
              .prefix = "/p",
              .self = "ddprun 1 10.0.0.1:4000 node" + std::to_string(seed),
              .seen_revision = seen,
              .job_time = seconds(60),
              .seed = seed,
              .etcd_text = "e:2379"}) {}

  // Carries out all that is due. The number of calls.
  int Run(TimePoint now) {
    int calls = 0;
    for (const Lane lane : {Lane::kLease, Lane::kRecord, Lane::kLease}) {
      while (const std::optional<EtcdCall> call = core.NextCall(lane, now)) {
        core.Hear(lane, now, etcd.Carry(now, *call));
        REQUIRE(++calls < 20);
      }
    }
    return calls;
  }
  // Up to `end`, each call when it is due.
  void RunUntil(TimePoint& now, TimePoint end) {
    for (;;) {
      Run(now);
      std::optional<TimePoint> next = core.NextCallAt(Lane::kLease);
      const std::optional<TimePoint> of_record = core.NextCallAt(Lane::kRecord);
      if (!next || (of_record && *of_record < *next)) next = of_record;
      if (!next || *next > end) break;
      now = std::max(now, *next);
    }
    now = end;
  }

  EtcdModel& etcd;
  LeaderCore core;
};

std::string ValueOf(const EtcdModel& etcd, const std::string& key) {
  const std::optional<EtcdKey> found = etcd.Find(key);
  return found ? found->value : "";
}

TEST_CASE("leader core: it leads, keeps its lease, and leaves nothing when the job is over") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  TimePoint now(seconds(100));
  a.Run(now);
  REQUIRE(a.core.stage() == Stage::kLeading);
  CHECK(a.core.revision() == etcd.Find(kLeaderKey)->revision);
  CHECK_FALSE(a.core.found());
  const uint64_t number = a.core.Write("first");
  a.Run(now);
  CHECK(a.core.done_records() == number);
  a.RunUntil(now, now + seconds(200));
  CHECK(a.core.MayTell(now));
  CHECK(ValueOf(etcd, kJobKey) == "first");
  a.core.End(LeaderCore::Ending::kForget, now + seconds(1));
  a.Run(now);
  CHECK(a.core.stage() == Stage::kOver);
  CHECK(etcd.size() == 0);
}

TEST_CASE("leader core: of two one leads, and the next finds what the last has left") {
  EtcdModel etcd;
  Candidate a(etcd, 1), b(etcd, 2);
  const TimePoint now(seconds(100));
  a.Run(now);
  b.Run(now);
  CHECK(b.core.stage() == Stage::kOver);
  CHECK(absl::IsAlreadyExists(b.core.failure()));
  a.core.Write("left");
  a.core.End(LeaderCore::Ending::kLeave, now + seconds(1));
  a.Run(now);
  CHECK(ValueOf(etcd, kLeaderKey) == "");
  Candidate c(etcd, 3);
  c.Run(now);
  REQUIRE(c.core.stage() == Stage::kLeading);
  CHECK(c.core.found() == "left");
  CHECK(c.core.revision() > a.core.revision());
}

TEST_CASE("leader core: a late copy of a record overwrites none that came after it") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  const TimePoint now(seconds(100));
  a.Run(now);
  a.core.Write("old");
  std::optional<EtcdCall> grant = a.core.NextCall(Lane::kRecord, now);
  a.core.Hear(Lane::kRecord, now, etcd.Carry(now, *grant));
  const std::optional<EtcdCall> late = a.core.NextCall(Lane::kRecord, now);
  REQUIRE(std::holds_alternative<EtcdTransaction>(*late));
  SUBCASE("whose answer was lost") { etcd.Carry(now, *late); }
  SUBCASE("that a member was slow with") {}
  a.core.Hear(Lane::kRecord, now, Lost());
  const uint64_t number = a.core.Write("new");
  a.Run(now + seconds(1));
  CHECK(a.core.done_records() == number);
  CHECK(ValueOf(etcd, kJobKey) == "new");
  etcd.Carry(now + seconds(1), *late);
  CHECK(ValueOf(etcd, kJobKey) == "new");
}

TEST_CASE("leader core: a record whose answer was lost is told as durable once it is known") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  const TimePoint now(seconds(100));
  a.Run(now);
  const uint64_t number = a.core.Write("r");
  const std::optional<EtcdCall> grant = a.core.NextCall(Lane::kRecord, now);
  a.core.Hear(Lane::kRecord, now, etcd.Carry(now, *grant));
  const std::optional<EtcdCall> put = a.core.NextCall(Lane::kRecord, now);
  etcd.Carry(now, *put);
  a.core.Hear(Lane::kRecord, now, Lost());
  CHECK(a.core.done_records() == 0);
  const int64_t revision = etcd.Find(kJobKey)->revision;
  a.Run(now + seconds(1));
  CHECK(a.core.done_records() == number);
  CHECK(etcd.Find(kJobKey)->revision == revision);  // and is not written again
}

TEST_CASE("leader core: who took the place over is believed, and the old one writes nothing more") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  TimePoint now(seconds(100));
  a.Run(now);
  a.core.Write("one");
  a.Run(now);
  Candidate b(etcd, 2, a.core.revision());
  b.Run(now);
  REQUIRE(b.core.stage() == Stage::kLeading);
  CHECK(b.core.found() == "one");
  SUBCASE("by its next record") { a.core.Write("two"); }
  SUBCASE("by its next renewal") { now += seconds(1); }
  a.Run(now);
  CHECK(a.core.stage() == Stage::kLost);
  CHECK_FALSE(a.core.MayTell(now));
  CHECK(ValueOf(etcd, kJobKey) == "one");
  a.core.End(LeaderCore::Ending::kForget, now + seconds(1));
  a.Run(now);
  CHECK(a.core.stage() == Stage::kOver);
  CHECK(etcd.Find(kLeaderKey)->revision == b.core.revision());
  CHECK(ValueOf(etcd, kJobKey) == "one");
}

TEST_CASE("leader core: an answer to the candidacy that was lost is found in the next") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  const TimePoint now(seconds(100));
  a.core.Hear(Lane::kLease, now, etcd.Carry(now, *a.core.NextCall(Lane::kLease, now)));
  const std::optional<EtcdCall> campaign = a.core.NextCall(Lane::kLease, now);
  etcd.Carry(now, *campaign);
  // The client asks the next member, which applies it no second time.
  a.core.Hear(Lane::kLease, now, etcd.Carry(now, *campaign));
  CHECK(a.core.stage() == Stage::kLeading);
  CHECK(a.core.revision() == etcd.Find(kLeaderKey)->revision);
}

TEST_CASE("leader core: silence of etcd makes it wait, and then give its place up") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  TimePoint now(seconds(100));
  a.Run(now);
  const TimePoint since = now;
  while (a.core.stage() == Stage::kLeading) {
    now = std::max(now, *a.core.NextCallAt(Lane::kLease)) + milliseconds(700);
    if (a.core.NextCall(Lane::kLease, now)) a.core.Hear(Lane::kLease, now, Lost());
    CHECK(a.core.MayTell(now) == (now < since + Tenure::kLease));
  }
  CHECK(now >= since + Tenure::kLease + Tenure::kMaxPause);
  CHECK(a.core.loss() == "etcd at e:2379 has not renewed its lease for 15 s");
}

TEST_CASE("leader core: the job's lease that has ended is replaced, and the record kept on it") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  TimePoint now(seconds(100));
  a.Run(now);
  a.core.Write("kept");
  a.Run(now);
  etcd.Carry(now, RevokeLease{etcd.Find(kJobKey)->lease});
  CHECK(ValueOf(etcd, kJobKey) == "");
  a.RunUntil(now, now + seconds(60));
  CHECK(ValueOf(etcd, kJobKey) == "kept");
  a.core.End(LeaderCore::Ending::kForget, now + seconds(1));
  a.Run(now);
  CHECK(etcd.size() == 0);
}

TEST_CASE("leader core: a record that etcd does not keep for long is told once") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  TimePoint now(seconds(100));
  a.Run(now);
  a.core.Write("first");
  const absl::Status full = absl::UnavailableError("database space exceeded");
  // Leases are renewed meanwhile.
  const auto refuse_until = [&](TimePoint end) {
    int told = 0;
    for (; now < end; now += milliseconds(100)) {
      for (const Lane lane : {Lane::kLease, Lane::kRecord}) {
        while (const std::optional<EtcdCall> call = a.core.NextCall(lane, now)) {
          const bool is_record =
              lane == Lane::kRecord && !std::holds_alternative<RenewLease>(*call);
          a.core.Hear(lane, now, is_record ? EtcdAnswer{.status = full} : etcd.Carry(now, *call));
          told += a.core.TakeTrouble() == full ? 1 : 0;
        }
      }
    }
    return told;
  };
  CHECK(refuse_until(now + seconds(4)) == 0);
  CHECK(refuse_until(now + seconds(20)) == 1);
  a.RunUntil(now, now + seconds(1));
  CHECK(ValueOf(etcd, kJobKey) == "first");
  CHECK(a.core.TakeTrouble().ok());
  a.core.Write("second");
  CHECK(refuse_until(now + seconds(4)) == 0);
  CHECK(refuse_until(now + seconds(3)) == 1);
}

TEST_CASE("leader core: a record that etcd is slow with holds up no renewal") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  TimePoint now(seconds(100));
  a.Run(now);
  a.core.Write("slow");
  REQUIRE(a.core.NextCall(Lane::kRecord, now));  // not answered from here on
  for (const TimePoint end = now + seconds(20); now < end; now += milliseconds(500)) {
    while (const std::optional<EtcdCall> call = a.core.NextCall(Lane::kLease, now)) {
      a.core.Hear(Lane::kLease, now, etcd.Carry(now, *call));
    }
    CHECK(a.core.MayTell(now));
  }
  // The end waits for it, and no longer than it may.
  a.core.End(LeaderCore::Ending::kLeave, now + seconds(1));
  CHECK_FALSE(a.core.NextCall(Lane::kLease, now));
  CHECK(a.core.NextCallAt(Lane::kLease) == now + seconds(1));
  a.core.Hear(Lane::kRecord, now, Lost());
  a.Run(now);
  CHECK(ValueOf(etcd, kJobKey) == "slow");
  CHECK_FALSE(etcd.Find(kLeaderKey));
}

TEST_CASE("leader core: an etcd that deletes nothing under a guard keeps nothing of the job") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  const TimePoint now(seconds(100));
  a.Run(now);
  a.core.Write("r");
  a.Run(now);
  a.core.End(LeaderCore::Ending::kForget, now + seconds(1));
  const std::optional<EtcdCall> forget = a.core.NextCall(Lane::kLease, now);
  REQUIRE(std::holds_alternative<EtcdTransaction>(*forget));
  a.core.Hear(Lane::kLease, now, {.status = absl::UnavailableError("database space exceeded")});
  SUBCASE("where it still leads") {
    a.Run(now);
    CHECK(etcd.size() == 0);
  }
  SUBCASE("but for what is the next leader's") {
    Candidate b(etcd, 2, a.core.revision());
    b.Run(now);
    a.Run(now);
    CHECK(etcd.Find(kLeaderKey)->revision == b.core.revision());
    CHECK(ValueOf(etcd, kJobKey) == "r");
  }
  SUBCASE("unless it does not answer") {
    while (a.core.NextCall(Lane::kLease, now)) a.core.Hear(Lane::kLease, now, Lost());
    CHECK(ValueOf(etcd, kJobKey) == "r");
  }
  CHECK(a.core.stage() == Stage::kOver);
}

TEST_CASE("leader core: the end of the job is no record's, whatever was under way") {
  EtcdModel etcd;
  Candidate a(etcd, 1);
  const TimePoint now(seconds(100));
  a.Run(now);
  a.core.Write("r");
  const std::optional<EtcdCall> grant = a.core.NextCall(Lane::kRecord, now);
  a.core.End(LeaderCore::Ending::kForget, now + seconds(1));
  a.core.Hear(Lane::kRecord, now, etcd.Carry(now, *grant));
  a.Run(now);
  CHECK(a.core.stage() == Stage::kOver);
  CHECK(etcd.size() == 0);
}

}  // namespace
}  // namespace ddprun::rendezvous::testing
