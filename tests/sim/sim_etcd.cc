#include "tests/sim/sim_etcd.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ddprun::sim {
namespace {

using rendezvous::EtcdAnswer;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kPatience = milliseconds(700);  // as with a member
constexpr int kAttempts = 3;
constexpr Duration kLatest = seconds(10);

}  // namespace

SimEtcd::SimEtcd(Timeline& timeline, uint64_t seed, TimePoint heal_at, std::string watched,
                 Watch watch)
    : timeline_(timeline),
      random_(Mix(seed, 2)),
      heal_at_(heal_at),
      watched_(std::move(watched)),
      watch_(std::move(watch)),
      loss_percent_(random_.Between(0, 15)),
      late_percent_(random_.Between(0, 15)) {}

void SimEtcd::Ask(const Asked& asked, const Then& then) { Attempt(asked, kAttempts, then); }

void SimEtcd::Attempt(const Asked& asked, int attempts, const Then& then) {
  const auto is_over = std::make_shared<bool>(false);
  timeline_.After(kPatience, [=, this] {
    if (std::exchange(*is_over, true)) return;
    const bool is_running = !asked.is_running || asked.is_running();
    if (attempts > 1 && is_running) return Attempt(asked, attempts - 1, then);
    then({.status = absl::UnavailableError("no answer in time"), .key = std::nullopt});
  });
  if (Strikes(loss_percent_)) return;
  const Duration late =
      Strikes(late_percent_) ? random_.Between(Duration(0), kLatest) : Duration(0);
  timeline_.After(Delay() + late, [=, this] { Arrive(asked, is_over, then); });
}

void SimEtcd::Arrive(const Asked& asked, const std::shared_ptr<bool>& is_over, const Then& then) {
  const TimePoint until = std::max(stopped_until_, cut_until_[asked.who]);
  if (until > timeline_.now()) {
    return timeline_.At(until, [=, this] { Arrive(asked, is_over, then); });
  }
  const std::optional<rendezvous::EtcdKey> before = model_.Find(watched_);
  if (std::holds_alternative<rendezvous::ReadKey>(asked.call)) {
    ++load_.reads;
  } else if (!std::holds_alternative<rendezvous::RenewLease>(asked.call)) {
    ++load_.writes;
  }
  EtcdAnswer answer = model_.Carry(timeline_.now(), asked.call);
  watch_(asked, answer, before);
  if (Strikes(loss_percent_)) return;
  timeline_.After(Delay(), [is_over, then, answer = std::move(answer)] {
    if (!std::exchange(*is_over, true)) then(answer);
  });
}

void SimEtcd::Stop(TimePoint until, bool is_anew) {
  stopped_until_ = std::max(stopped_until_, until);
  if (is_anew) timeline_.At(until, [this] { model_.RenewAll(timeline_.now()); });
}

void SimEtcd::Slow(TimePoint until, Duration longest) {
  slow_until_ = until;
  slow_by_ = longest;
}

void SimEtcd::Cut(size_t who, TimePoint until) {
  cut_until_[who] = std::max(cut_until_[who], until);
}

Duration SimEtcd::Delay() {
  const Duration delay = random_.Between(Duration(milliseconds(1)), Duration(milliseconds(40)));
  if (timeline_.now() >= slow_until_) return delay;
  return delay + random_.Between(Duration(0), slow_by_);
}

}  // namespace ddprun::sim
