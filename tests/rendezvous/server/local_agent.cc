#include "tests/rendezvous/server/local_agent.h"

#include <utility>

#include "rendezvous/base/steady_clock.h"

namespace ddprun::rendezvous {

LocalAgent::LocalAgent(const Coordinator& coordinator, const Policy& policy, EventLog& log)
    : handler_(log.handler()),
      record_(policy),
      link_(OpenLocalLink(coordinator.inbox(), [gate = gate_](const ContactEvent& event) {
        const std::lock_guard lock(gate->mutex);
        if (gate->agent != nullptr) gate->agent->Hear(event);
      })) {
  const std::lock_guard lock(gate_->mutex);
  gate_->agent = this;  // nothing comes before it has joined
}

LocalAgent::~LocalAgent() {
  const std::lock_guard lock(gate_->mutex);
  gate_->agent = nullptr;
}

void LocalAgent::Join(const NodeInfo& node) {
  const std::lock_guard lock(gate_->mutex);
  record_.Join(node);
  SayNext();
}

void LocalAgent::ReportFailed(Round round, const FailureReport& report) {
  const std::lock_guard lock(gate_->mutex);
  record_.Report(round, WorkersFailed{.stamp = {}, .report = report}, SteadyNow());
  SayNext();
}

void LocalAgent::ReportFirstSuccess(Round round, int rank) {
  const std::lock_guard lock(gate_->mutex);
  record_.Report(round, FirstWorkerSucceeded{.stamp = {}, .rank = rank}, SteadyNow());
  SayNext();
}

void LocalAgent::ReportSucceeded(Round round) {
  const std::lock_guard lock(gate_->mutex);
  record_.Report(round, WorkersSucceeded{}, SteadyNow());
  SayNext();
}

void LocalAgent::AckVerdict() {
  const std::lock_guard lock(gate_->mutex);
  record_.AckVerdict();
  SayNext();
}

void LocalAgent::Hear(const ContactEvent& event) {
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
