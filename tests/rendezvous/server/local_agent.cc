#include "tests/rendezvous/server/local_agent.h"

#include <utility>

#include "rendezvous/base/steady_clock.h"

namespace ddprun::rendezvous {

LocalAgent::LocalAgent(const Coordinator& coordinator, const Policy& policy, EventLog& log)
    : handler_(log.handler()),
      record_(policy),
      link_(OpenLocalLink(coordinator.inbox(), [this](const ContactEvent& e) { Hear(e); })) {}

void LocalAgent::Join(const NodeInfo& node) {
  const std::lock_guard lock(mutex_);
  record_.Join(node);
  SayNext();
}

void LocalAgent::ReportFailed(Round round, const FailureReport& report) {
  const std::lock_guard lock(mutex_);
  record_.ReportFailed(round, report, SteadyNow());
  SayNext();
}

void LocalAgent::ReportFirstSuccess(Round round, int rank) {
  const std::lock_guard lock(mutex_);
  record_.ReportFirstSuccess(round, rank, SteadyNow());
  SayNext();
}

void LocalAgent::ReportSucceeded(Round round) {
  const std::lock_guard lock(mutex_);
  record_.ReportSucceeded(round);
  SayNext();
}

void LocalAgent::AckVerdict() {
  const std::lock_guard lock(mutex_);
  record_.AckVerdict();
  SayNext();
}

void LocalAgent::Hear(const ContactEvent& event) {
  const std::lock_guard lock(mutex_);
  if (std::holds_alternative<Said>(event)) {
    is_saying_ = false;
    SayNext();
  }
  const auto* heard = std::get_if<Heard>(&event);
  if (heard == nullptr) return;
  if (auto told = record_.Hear(heard->instance, heard->action)) handler_(*std::move(told));
}

void LocalAgent::SayNext() {
  if (is_saying_) return;
  std::optional<Event> event = record_.NextToSay(SteadyNow());
  if (!event) return;
  is_saying_ = true;
  link_->Say({.event = *std::move(event)});
}

}  // namespace ddprun::rendezvous
