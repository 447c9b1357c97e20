// Who looks at the job, and what is asked of it from outside.
#include <boost/asio/steady_timer.hpp>
#include <utility>
#include <variant>

#include "launcher/agent/agent.h"

namespace ddprun::launcher {

void Agent::Hear(const rendezvous::RendezvousEvent& event) {
  std::visit(
      [this](const auto& e) {
        using Event = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<Event, rendezvous::Asked>) {
          control_.Asked(e.id, e.body);
        } else if constexpr (std::is_same_v<Event, rendezvous::Answered>) {
          control_.Answered(e.part);
        } else {
          Feed(AgentEvent(e));
        }
      },
      event);
}

JobWatch::Options Agent::WatchOptions() const {
  const LaunchConfig& config = setup_.config;
  return {.part = {.node_id = node_id_.value,
                   .host = host_,
                   .run_id = config.run_id,
                   .program = setup_.program.title,
                   .min_nodes = config.nodes.min,
                   .max_nodes = config.nodes.max,
                   .max_restarts = config.max_restarts},
          .policy = {.hang_timeout = config.hang_timeout},
          .is_alone = config.rendezvous == RendezvousKind::kStandalone,
          .log_dir = config.log_dir};
}

JobWatch::Hooks Agent::WatchHooks() {
  return {.ask =
              [this](const rendezvous::Question& question) {
                if (client_ != nullptr) client_->Ask(question);
              },
          .answer =
              [this](uint64_t id, const std::string& body) {
                if (client_ != nullptr) client_->Answer(id, body);
              },
          .say = [this](const std::string& text) { Say(text); },
          .on_hang = [](const HangFound&) {},
          .on_look = [this](const JobSnapshot& snapshot) { control_.Publish(snapshot); },
          .last_line =
              [&logs = logs_](int local_rank) {
                return logs.StderrTail(local_rank, 1, std::chrono::milliseconds(50));
              }};
}

ControlPlane::Hooks Agent::ControlHooks() {
  return {.stop = [this](const StopOrder& order) { Feed(order); },
          .ask =
              [this](const rendezvous::Question& question) {
                if (client_ != nullptr) client_->Ask(question);
              },
          .answer =
              [this](uint64_t id, const std::string& body) {
                if (client_ != nullptr) client_->Answer(id, body);
              },
          .say = [this](const std::string& text) { Say(text); }};
}

void Agent::OpenControl(Duration delay) {
  control_timer_.expires_after(delay);
  control_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !core_.is_leaving()) control_.Start();
  });
}

}  // namespace ddprun::launcher
