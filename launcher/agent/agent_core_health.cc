// The health check of this node: before each round beside the stop of the workers, and again while
// it waits for a place.
#include <utility>

#include "launcher/agent/agent_core.h"

namespace ddprun::launcher {

using rendezvous::Health;

void AgentCore::BeginHealthCheck() {
  if (!policy_.health_pause || is_checking_) return;
  is_checking_ = true;
  check_again_at_.reset();
  actions_.push_back(CheckHealth{++health_checks_});
}

void AgentCore::EndHealthCheck() {
  check_again_at_.reset();
  if (std::exchange(is_checking_, false)) actions_.push_back(StopHealthCheck{});
}

// What was found before a round says nothing of the node after it.
void AgentCore::ForgetHealth() {
  EndHealthCheck();
  health_.reset();
}

void AgentCore::AskForPlace() {
  has_asked_ = true;
  notice_.reset();
  if (policy_.health_pause) check_again_at_ = now_ + *policy_.health_pause;
  actions_.push_back(JoinRound{health_.value_or(rendezvous::HealthReport{})});
}

void AgentCore::On(const HealthFound& event) {
  if (!is_checking_ || event.number != health_checks_) return;
  is_checking_ = false;
  const bool is_news = !health_ || *health_ != event.report;
  health_ = event.report;
  if (is_news && health_->health == Health::kUnknown) {
    Tell("warning: --health-check has no result: ", health_->line);
  }
  if (state_ != State::kJoining) return;  // the workers are still being stopped
  if (!has_asked_) return AskForPlace();
  check_again_at_ = now_ + *policy_.health_pause;
  if (is_news) actions_.push_back(ReportHealth{*health_});
}

}  // namespace ddprun::launcher
