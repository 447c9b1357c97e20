#include "tests/sim/sim_leadership.h"

#include <algorithm>

#include "rendezvous/server/job_file.h"
#include "tests/sim/sim_random.h"

namespace ddprun::sim {
namespace {

using rendezvous::EtcdAnswer;
using rendezvous::LeaderCore;
using std::chrono::seconds;

// As the coordinator gives it, for its start and for its end.
constexpr Duration kFileLimit = seconds(2);

}  // namespace

std::string LeaderKeyOf(const Scenario& scenario) {
  return rendezvous::LeaderKeyOf(kEtcdPrefix, scenario.policy.run_id);
}

std::string JobKeyOf(const Scenario& scenario) {
  return rendezvous::JobKeyOf(kEtcdPrefix, scenario.policy.run_id);
}

Duration JobTimeOf(const Scenario& scenario) {
  return std::max(scenario.policy.orphan_timeout, scenario.policy.join_timeout);
}

SimLeadership::SimLeadership(const Scenario& scenario, Timeline& timeline, SimEtcd& etcd,
                             Setup setup)
    : Process(timeline, setup.clock),
      scenario_(scenario),
      etcd_(etcd),
      setup_(std::move(setup)),
      random_(setup_.seed),
      core_({.run_id = scenario.policy.run_id,
             .prefix = kEtcdPrefix,
             .self = EncodeLeader(setup_.self),
             .seen_revision = setup_.seen_revision,
             .job_time = JobTimeOf(scenario),
             .seed = random_.Next(),
             .etcd_text = "etcd"}) {}

void SimLeadership::Begin() {
  begin_by_ = now() + kFileLimit;
  Enter([] {});
}

void SimLeadership::AfterWork() {
  if (is_beginning_ && core_.stage() != Stage::kBeginning) EndBeginning();
  if (!is_alive()) return ArmTimer(std::nullopt);
  std::optional<TimePoint> next;
  for (const Lane lane : {Lane::kLease, Lane::kRecord}) {
    if (calls_[lane].is_asking) continue;
    if (const std::optional<rendezvous::EtcdCall> call = core_.NextCall(lane, now())) {
      Ask(lane, *call);
    } else if (const std::optional<TimePoint> at = core_.NextCallAt(lane)) {
      next = std::max(std::min(next.value_or(*at), *at), now());
    }
  }
  ArmTimer(next);
  if (core_.stage() == Stage::kOver) return TellEnded();
  if (core_.stage() == Stage::kLost && !std::exchange(is_loss_told_, true)) {
    setup_.lost(core_.loss());
  }
}

void SimLeadership::Ask(Lane lane, const rendezvous::EtcdCall& call) {
  Calls& calls = calls_[lane];
  calls.is_asking = true;
  const uint64_t number = ++calls.count;
  const auto hear = [this, lane, number](const EtcdAnswer& answer) {
    Enter([this, lane, number, answer] { Hear(lane, number, answer); });
  };
  etcd_.Ask({.who = static_cast<size_t>(setup_.node),
             .self = EncodeLeader(setup_.self),
             .call = call,
             .is_running = [this] { return is_alive() && !is_paused(); }},
            hear);
  if (!is_beginning_ && core_.stage() != Stage::kEnding) return;
  // The start, and the end, wait no longer for any call.
  const TimePoint by = std::min(core_.end_by(), is_beginning_ ? begin_by_ : TimePoint::max());
  timeline_.At(clock_.WhenReads(by), [hear] {
    hear({.status = absl::UnavailableError("no answer in time"), .key = std::nullopt});
  });
}

void SimLeadership::Hear(Lane lane, uint64_t call, const EtcdAnswer& answer) {
  if (call != calls_[lane].count || !std::exchange(calls_[lane].is_asking, false)) return;
  core_.Hear(lane, now(), answer);
  TellWritten();
  if (!is_beginning_) setup_.changed();
}

void SimLeadership::EndBeginning() {
  is_beginning_ = false;
  if (!core_.failure().ok()) {
    failure_ = std::string(core_.failure().message());
    core_.End(LeaderCore::Ending::kLeave, begin_by_);
    return;
  }
  rendezvous::Beginning beginning{.epoch = Epoch{static_cast<uint64_t>(core_.revision())},
                                  .instance = JobInstance{random_.Next(), random_.Next()},
                                  .verdict = std::nullopt,
                                  .record_limit = core_.record_limit()};
  if (core_.found()) {
    // What is not a record the simulator did not write.
    const std::optional<rendezvous::Record> record = rendezvous::DecodeRecord(*core_.found());
    if (record) rendezvous::Recall(*record, beginning);
  }
  setup_.begun(beginning);
}

void SimLeadership::TellWritten() {
  while (!on_written_.empty() && on_written_.front().first <= core_.done_records()) {
    const std::function<void()> written = std::move(on_written_.front().second);
    on_written_.pop_front();
    written();
  }
}

void SimLeadership::TellEnded() {
  ArmTimer(std::nullopt);
  if (!failure_.empty()) setup_.failed(std::exchange(failure_, ""));
  if (const std::function<void()> ended = std::exchange(ended_, nullptr)) ended();
}

void SimLeadership::Write(const rendezvous::Record& record, std::function<void()> on_written) {
  Enter([this, record, on_written = std::move(on_written)] {
    const uint64_t number = core_.Write(rendezvous::EncodeRecord(record));
    if (on_written) on_written_.emplace_back(number, on_written);
  });
}

void SimLeadership::End(LeaderCore::Ending how, std::function<void()> then) {
  Enter([this, how, then = std::move(then)] {
    ended_ = then;
    core_.End(how, now() + kFileLimit);
    // The driver cancels it.
    if (calls_[Lane::kRecord].is_asking) {
      Hear(Lane::kRecord, calls_[Lane::kRecord].count,
           {.status = absl::CancelledError("nobody wants it"), .key = std::nullopt});
    }
    timeline_.At(clock_.WhenReads(now() + kFileLimit), [this] {
      Enter([this] {
        TellEnded();
        Die();
      });
    });
  });
}

}  // namespace ddprun::sim
