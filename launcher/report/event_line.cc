#include "launcher/report/event_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/agent/worker_end.h"
#include "launcher/report/job_record.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxRanks = 1024;

struct Told {
  const char* name;
  Json fields;
};

std::string Cut(const std::string& text) { return text.substr(0, CharacterStart(text, kMaxText)); }

// Null for what is not known, or none.
Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(Cut(text)); }
Json OrNull(int number) { return number == 0 ? Json(nullptr) : Json(number); }
Json OrNull(const char* text) { return text == nullptr ? Json(nullptr) : Json(text); }
Json OrNull(std::optional<double> number) { return number ? Json(*number) : Json(nullptr); }

Told Tell(const JobStartEvent& event) {
  return {"job_start",
          {{"program", Cut(event.program)},
           {"min_nodes", event.min_nodes},
           {"max_nodes", event.max_nodes},
           {"workers", event.workers},
           {"max_restarts", event.max_restarts}}};
}

Told Tell(const WaitingEvent& event) { return {"waiting", {{"reason", Cut(event.reason)}}}; }

Told Tell(const RestartEvent& event) {
  return {"restart",
          {{"is_charged", event.is_charged},
           {"restart_count", event.restart_count},
           {"max_restarts", event.max_restarts},
           {"reason", OrNull(event.reason)}}};
}

Told Tell(const RoundStartEvent& event) {
  const rendezvous::Assignment& place = event.assignment;
  return {"round_start",
          {{"node_rank", place.node_rank},
           {"node_count", place.node_count},
           {"world_size", place.world_size},
           {"first_rank", place.first_rank},
           {"workers", event.workers},
           {"restart_count", place.restart_count},
           {"max_restarts", place.max_restarts},
           {"rendezvous_s", OrNull(event.rendezvous_s)},
           {"note", OrNull(place.note)}}};
}

Told Tell(const WorkersStartedEvent& event) {
  return {"workers_started", {{"workers", event.workers}, {"start_s", event.start_s}}};
}

Told Tell(const FirstStepEvent& event) {
  return {"first_step", {{"first_step_s", event.first_step_s}}};
}

Told Tell(const FailureEvent& event) {
  const rendezvous::FailureReport& report = event.report;
  return {"failure",
          {{"rank", report.rank},
           {"local_rank", report.local_rank},
           {"node_rank", report.node_rank},
           {"host", report.host},
           {"pid", OrNull(report.pid)},
           {"exit_code", report.is_hang ? Json(nullptr) : Json(report.exit_code)},
           {"signal", OrNull(report.signal)},
           {"message", Cut(report.message)},
           {"error", report.error ? OrNull(report.error->message) : Json(nullptr)},
           {"ended", report.is_hang ? Json(nullptr) : OrNull(UtcText(report.unix_time_ms, 'T'))}}};
}

Json FieldsOf(const Problem& problem) {
  Json ranks = Json::array();
  for (size_t i = 0; i < std::min(problem.ranks.size(), kMaxRanks); ++i) {
    ranks.push_back(problem.ranks[i]);
  }
  return {{"kind", Cut(problem.kind)},
          {"text", Cut(problem.text)},
          {"ranks", std::move(ranks)},
          {"host", OrNull(problem.node)}};
}

Told Tell(const ProblemEvent& event) {
  const std::string& kind = event.problem.kind;
  Json fields = FieldsOf(event.problem);
  fields["since_s"] = event.problem.since_s;
  return {kind == "hang"        ? "hang"
          : kind == "straggler" ? "straggler"
                                : "problem",
          std::move(fields)};
}

Told Tell(const ProblemEndEvent& event) {
  Json fields = FieldsOf(event.problem);
  fields["lasted_s"] = event.lasted_s;
  return {"problem_end", std::move(fields)};
}

const char* TextOf(StopAskedEvent::How how) {
  switch (how) {
    case StopAskedEvent::How::kAtOnce:
      return "at once";
    case StopAskedEvent::How::kKill:
      return "kill";
    case StopAskedEvent::How::kAfterStep:
      break;
  }
  return "after step";
}

Told Tell(const StopAskedEvent& event) {
  return {"stop_asked", {{"how", TextOf(event.how)}, {"why", Cut(event.why)}}};
}

Told Tell(const HealthEvent& event) {
  return {"health",
          {{"health", HealthName(event.report.health)}, {"line", OrNull(event.report.line)}}};
}

Told Tell(const RoundEndEvent& event) {
  return {"round_end",
          {{"reason", OrNull(event.reason)},
           {"lasted_s", event.lasted_s},
           {"succeeded", event.succeeded},
           {"failed", event.failed},
           {"stopped", event.stopped}}};
}

Told Tell(const JobEndEvent& event) {
  const Outcome outcome = OutcomeOf(event.end.owner);
  return {"job_end",
          {{"outcome", outcome.name},
           {"exit_code", event.end.exit_code},
           {"exit_code_of", OrNull(outcome.exit_code_of)},
           {"reason", OrNull(event.end.reason)},
           {"restart_count", event.restart_count},
           {"lasted_s", event.lasted_s},
           {"effective_share", OrNull(event.effective_share)}}};
}

}  // namespace

std::string EventLine(const EventHead& head, const JobEvent& event) {
  Told told = std::visit([](const auto& any) { return Tell(any); }, event);
  Json line = {{"time", UtcText(head.unix_ms, 'T')},
               {"event", told.name},
               {"run_id", Cut(head.run_id)},
               {"node", Cut(head.node)},
               {"node_id", head.node_id},
               {"round", head.round},
               {"number", head.number}};
  line.update(told.fields);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ddprun::launcher
