#include "tests/sim/election.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/etcd/leader_core.h"
#include "tests/sim/sim_etcd.h"
#include "tests/sim/sim_random.h"
#include "tests/sim/timeline.h"

namespace ddprun::sim {
namespace {

using rendezvous::EtcdAnswer;
using rendezvous::EtcdCall;
using rendezvous::EtcdKey;
using rendezvous::EtcdTransaction;
using rendezvous::LeaderCore;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Lane = LeaderCore::Lane;
using Stage = LeaderCore::Stage;

constexpr char kLeaderKey[] = "/p/j/leader";
constexpr char kJobKey[] = "/p/j/job";
constexpr TimePoint kHealAt(seconds(60));
constexpr TimePoint kLeadBy(kHealAt + seconds(20));
constexpr TimePoint kEndAt(kLeadBy + seconds(5));
constexpr TimePoint kOverAt(kEndAt + seconds(80));
constexpr Duration kJobTime = seconds(60);

class Election {
 public:
  Election(uint64_t seed, ElectionMutant mutant)
      : seed_(seed),
        mutant_(mutant),
        random_(Mix(seed, 1)),
        etcd_(timeline_, seed, kHealAt, kJobKey,
              [this](const auto& asked, const auto& answer, const auto& before) {
                Check(asked, answer, before);
              }),
        candidates_(3) {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      candidates_[i].clock =
          SimClock(random_.Between(Duration(seconds(1)), Duration(seconds(1000))),
                   random_.Between(-1000, 1000));
      timeline_.After(milliseconds(random_.Between(0, 50)), [this, i] { Look(i); });
    }
    DrawFaults();
    timeline_.At(kLeadBy, [this] { CheckLeads(); });
    timeline_.At(kEndAt, [this] { EndJob(); });
  }

  ElectionResult Run() {
    while (result_.breach.empty() && timeline_.RunNext(kOverAt)) {
    }
    etcd_.model().EndLeases(kOverAt);
    const size_t left = etcd_.model().size();
    if (left > 0) Broken(absl::StrCat(left, " keys and leases are left"));
    return result_;
  }

 private:
  struct Candidate {
    SimClock clock;
    std::shared_ptr<LeaderCore> core;  // of the place that is held or wanted
    uint64_t number = 0;               // of that core
    std::set<Lane> asking;             // in which a call is under way
    bool was_leading = false;
    int64_t seen = 0;
    TimePoint stopped_until{};
    std::string newest;  // record
    uint64_t newest_number = 0;
  };

  void Broken(const std::string& what) {
    if (result_.breach.empty()) {
      result_.breach = absl::StrCat(
          what, " (at ", std::chrono::duration<double>(timeline_.now().time_since_epoch()).count(),
          " s)");
    }
  }
  void Hash(uint64_t value) { result_.hash = Mix(result_.hash, value); }
  bool IsWell() const { return timeline_.now() >= kHealAt; }
  Duration Delay() {
    return random_.Between(Duration(milliseconds(1)), Duration(milliseconds(40)));
  }
  TimePoint Now(const Candidate& candidate) const { return candidate.clock.Read(timeline_.now()); }

  void DrawFaults() {
    const int count = random_.Between(0, 10);
    for (int i = 0; i < count; ++i) {
      const TimePoint at(random_.Between(Duration(0), kHealAt.time_since_epoch()));
      const Duration wanted = random_.Between(Duration(milliseconds(50)), Duration(seconds(20)));
      const TimePoint until = std::min(kHealAt, at + wanted);
      const size_t who = random_.Below(candidates_.size());
      const uint64_t kind = random_.Below(5);
      timeline_.At(at, [this, who, kind, until] { Strike(who, kind, until); });
    }
  }

  void Strike(size_t who, uint64_t kind, TimePoint until) {
    Hash(kind);
    Candidate& candidate = candidates_[who];
    switch (kind) {
      case 0:  // SIGSTOP
        candidate.stopped_until = std::max(candidate.stopped_until, until);
        return;
      case 1:
        return etcd_.Cut(who, until);
      case 2:  // SIGKILL, and another one in its place
        Forget(candidate);
        return timeline_.At(until, [this, who] { Look(who); });
      default:  // all of etcd; some of them begin its leases anew
        return etcd_.Stop(until, kind == 4);
    }
  }

  void Forget(Candidate& candidate) {
    candidate.core.reset();
    ++candidate.number;
    candidate.asking.clear();
    candidate.was_leading = false;
    candidate.newest_number = 0;
  }

  // In the candidate's process: now, or when it is continued.
  void Enter(size_t who, std::function<void()> work) {
    const TimePoint until = candidates_[who].stopped_until;
    if (until <= timeline_.now()) return work();
    timeline_.At(until, [this, who, work = std::move(work)] { Enter(who, work); });
  }

  EtcdCall Mutated(EtcdCall call) const {
    auto* transaction = std::get_if<EtcdTransaction>(&call);
    if (transaction == nullptr || transaction->puts.empty()) return call;
    const bool is_record = transaction->puts[0].key == kJobKey;
    std::erase_if(transaction->guards, [&](const EtcdTransaction::Guard& guard) {
      if (is_record && guard.key == kLeaderKey) return mutant_ == ElectionMutant::kNoFence;
      if (guard.key == kJobKey) return mutant_ == ElectionMutant::kNoCompare;
      return !is_record && mutant_ == ElectionMutant::kNoRevision;
    });
    return call;
  }

  void Ask(size_t who, const EtcdCall& call, SimEtcd::Then then) {
    etcd_.Ask({who, SelfOf(who, candidates_[who].number), Mutated(call)}, std::move(then));
  }

  // Records are numbers that grow, of the whole job.
  static uint64_t NumberOf(const std::optional<EtcdKey>& key) {
    uint64_t number = 0;
    if (key) (void)absl::SimpleAtoi(key->value, &number);
    return number;
  }

  void Check(const SimEtcd::Asked& asked, const EtcdAnswer& answer,
             const std::optional<EtcdKey>& before) {
    Hash(static_cast<uint64_t>(answer.outcome.revision) * 16 + asked.call.index());
    const auto* transaction = std::get_if<EtcdTransaction>(&asked.call);
    if (transaction == nullptr || !answer.outcome.is_applied || transaction->puts.empty()) return;
    if (transaction->puts[0].key == kLeaderKey) return CheckPlace(asked.who);
    const uint64_t kept = NumberOf(etcd_.model().Find(kJobKey));
    const uint64_t last = NumberOf(before);
    if (kept < last) Broken(absl::StrCat("record ", kept, " is kept over ", last));
    const std::optional<EtcdKey> leader = etcd_.model().Find(kLeaderKey);
    if (leader && leader->value == asked.self) return;
    Broken(absl::StrCat("a record of n", asked.who, " is kept, which does not lead"));
  }

  void CheckPlace(size_t who) {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (i == who || !Speaks(candidates_[i])) continue;
      Broken(absl::StrCat("n", who, " takes the place of n", i, ", which speaks"));
    }
  }

  bool Speaks(const Candidate& candidate) const {
    const bool is_stopped = candidate.stopped_until > timeline_.now();
    // Clocks differ by a part in a thousand of a lease.
    return candidate.was_leading && candidate.core != nullptr && !is_stopped &&
           MayTell(candidate, Now(candidate) + milliseconds(10));
  }

  bool MayTell(const Candidate& candidate, TimePoint now) const {
    if (candidate.core->stage() != Stage::kLeading) return false;
    return candidate.core->MayTell(now) || mutant_ == ElectionMutant::kTalksOverLease;
  }

  static std::string SelfOf(size_t who, uint64_t number) {
    return absl::StrCat("ddprun 1 10.0.0.", who + 1, ":", 1000 + number % 60000, " n", who);
  }

  // As an agent without a coordinator does, again and again.
  void Look(size_t who) {
    const uint64_t number = candidates_[who].number;
    Ask(who, rendezvous::ReadKey{kLeaderKey}, [this, who, number](const EtcdAnswer& answer) {
      Enter(who, [this, who, number, answer] {
        if (candidates_[who].number != number || is_job_over_) return;
        if (!answer.status.ok() || !IsFree(answer.key)) return LookLater(who);
        candidates_[who].seen = answer.key ? answer.key->revision : 0;
        Stand(who);
      });
    });
  }

  void LookLater(size_t who) {
    const uint64_t number = candidates_[who].number;
    timeline_.After(milliseconds(random_.Between(100, 500)), [this, who, number] {
      Enter(who, [this, who, number] {
        if (candidates_[who].number == number && !is_job_over_) Look(who);
      });
    });
  }

  // Nobody leads, or the leader's machine refuses for it.
  bool IsFree(const std::optional<EtcdKey>& key) const {
    if (!key) return true;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& other = candidates_[i];
      if (other.core != nullptr && SelfOf(i, other.number) == key->value) return false;
    }
    return true;
  }

  void Stand(size_t who) {
    Candidate& candidate = candidates_[who];
    ++candidate.number;
    candidate.core =
        std::make_shared<LeaderCore>(LeaderCore::Options{.run_id = "j",
                                                         .prefix = "/p",
                                                         .self = SelfOf(who, candidate.number),
                                                         .seen_revision = candidate.seen,
                                                         .job_time = kJobTime,
                                                         .seed = Mix(seed_, who, candidate.number),
                                                         .etcd_text = "etcd"});
    candidate.asking.clear();
    candidate.was_leading = false;
    Step(who);
  }

  void Step(size_t who) {
    Candidate& candidate = candidates_[who];
    if (candidate.core == nullptr) return;
    const std::shared_ptr<LeaderCore> core = candidate.core;
    std::optional<TimePoint> next;
    for (const Lane lane : {Lane::kLease, Lane::kRecord}) {
      if (candidate.asking.contains(lane)) continue;
      if (const std::optional<EtcdCall> call = core->NextCall(lane, Now(candidate))) {
        candidate.asking.insert(lane);
        Ask(who, *call, [this, who, core, lane](const EtcdAnswer& answer) {
          Enter(who, [this, who, core, lane, answer] { Hear(who, core, lane, answer); });
        });
      } else if (const std::optional<TimePoint> at = core->NextCallAt(lane)) {
        next = std::min(next.value_or(*at), *at);
      }
    }
    if (core->stage() == Stage::kOver || core->stage() == Stage::kLost) return Leave(who);
    if (!next) return;
    const uint64_t number = ++timers_;
    candidate_timer_[who] = number;
    timeline_.At(candidate.clock.WhenReads(std::max(*next, Now(candidate))),
                 [this, who, core, number] {
                   Enter(who, [this, who, core, number] {
                     if (candidate_timer_[who] == number && candidates_[who].core == core) {
                       Step(who);
                     }
                   });
                 });
  }

  void Hear(size_t who, const std::shared_ptr<LeaderCore>& core, Lane lane,
            const EtcdAnswer& answer) {
    Candidate& candidate = candidates_[who];
    if (candidate.core != core) return;
    candidate.asking.erase(lane);
    core->Hear(lane, Now(candidate), answer);
    if (core->stage() == Stage::kLeading && !std::exchange(candidate.was_leading, true)) {
      TakeUp(who);
    }
    if (candidate.newest_number != 0 && core->done_records() >= candidate.newest_number) {
      uint64_t number = 0;
      (void)absl::SimpleAtoi(candidate.newest, &number);
      durable_ = std::max(durable_, number);
      candidate.newest_number = 0;
      ++result_.records;
    }
    Step(who);
  }

  void TakeUp(size_t who) {
    Candidate& candidate = candidates_[who];
    result_.takeovers += leaders_++ > 0 ? 1 : 0;
    uint64_t found = 0;
    if (candidate.core->found()) (void)absl::SimpleAtoi(*candidate.core->found(), &found);
    // One that was stopped as it was elected says nothing, and is told soon that it is none.
    const bool is_kept = job_ends_at_ > timeline_.now() && MayTell(candidate, Now(candidate));
    if (is_kept && found < durable_) {
      Broken(absl::StrCat("n", who, " finds record ", found, ", and ", durable_, " was durable"));
    }
    Write(who, candidate.number);
  }

  // Records come as a job's rounds do.
  void Write(size_t who, uint64_t number) {
    Candidate& candidate = candidates_[who];
    if (candidate.number != number || candidate.core == nullptr || is_job_over_) return;
    if (MayTell(candidate, Now(candidate))) {
      candidate.newest = absl::StrCat(++last_record_);
      candidate.newest_number = candidate.core->Write(candidate.newest);
      job_ends_at_ = timeline_.now() + kJobTime / 2;
      Step(who);
    }
    timeline_.After(milliseconds(random_.Between(50, 3000)), [this, who, number] {
      Enter(who, [this, who, number] { Write(who, number); });
    });
  }

  // The driver ends it; the agent goes on to look.
  void Leave(size_t who) {
    Candidate& candidate = candidates_[who];
    if (candidate.core->stage() == Stage::kLost) {
      ++result_.losses;
      candidate.core->End(LeaderCore::Ending::kLeave, Now(candidate) + seconds(2));
      return Step(who);
    }
    Forget(candidate);
    if (!is_job_over_) LookLater(who);
  }

  void CheckLeads() {
    const std::optional<EtcdKey> leader = etcd_.model().Find(kLeaderKey);
    bool leads = false;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& candidate = candidates_[i];
      leads |= leader && candidate.core != nullptr && MayTell(candidate, Now(candidate)) &&
               leader->value == SelfOf(i, candidate.number);
    }
    if (!leads) Broken("nobody leads 20 s behind the last fault");
    written_at_heal_ = last_record_;
  }

  void EndJob() {
    is_job_over_ = true;
    if (durable_ <= written_at_heal_) Broken("nothing can be written 20 s behind the last fault");
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& candidate = candidates_[i];
      if (candidate.core == nullptr) continue;
      const bool leads = candidate.core->stage() == Stage::kLeading;
      candidate.core->End(leads ? LeaderCore::Ending::kForget : LeaderCore::Ending::kLeave,
                          Now(candidate) + seconds(2));
      Step(i);
    }
  }

  const uint64_t seed_;
  const ElectionMutant mutant_;
  Random random_;
  Timeline timeline_;
  SimEtcd etcd_;
  std::vector<Candidate> candidates_;
  uint64_t timers_ = 0;
  std::vector<uint64_t> candidate_timer_ = std::vector<uint64_t>(3);
  int leaders_ = 0;
  uint64_t last_record_ = 0;
  uint64_t durable_ = 0;
  uint64_t written_at_heal_ = 0;
  // Up to here the job's key is there, as its lease was renewed or is new.
  TimePoint job_ends_at_{};
  bool is_job_over_ = false;
  ElectionResult result_;
};

}  // namespace

ElectionResult RunElection(uint64_t seed, ElectionMutant mutant) {
  return Election(seed, mutant).Run();
}

}  // namespace ddprun::sim
