#include "launcher/report/job_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/agent/file_timers.h"
#include "launcher/agent/worker_end.h"
#include "launcher/process/exit_status.h"
#include "launcher/report/last_words.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;
using rendezvous::FailureReport;

// Null for 0 and "": not known, or none.
template <typename Value>
Json OrNull(const Value& value) {
  return value == Value() ? Json(nullptr) : Json(value);
}

Json IsoTime(int64_t unix_ms) { return OrNull(UtcText(unix_ms, 'T')); }

Json Lines(absl::string_view text) {
  Json lines = Json::array();
  if (text.empty()) return lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    lines.push_back(std::string(absl::StripSuffix(line, "\r")));  // a terminal's line: \r\n
  }
  return lines;
}

Json ErrorJson(const FailureReport& report) {
  if (!report.error) return nullptr;
  return {{"message", report.error->message},
          {"traceback", report.error->traceback},
          {"time", OrNull(UtcTextOfSecond(report.error->unix_time_s, 'T'))}};
}

Json FailureJson(const FailureReport& report) {
  return {{"rank", report.rank},
          {"local_rank", report.local_rank},
          {"node_rank", report.node_rank},
          {"node_id", report.node.value},
          {"host", report.host},
          {"pid", OrNull(report.pid)},
          {"exit_code", report.is_hang ? Json(nullptr) : Json(report.exit_code)},
          {"signal", OrNull(report.signal)},
          {"dumped_core", report.dumped_core},
          {"time", IsoTime(report.unix_time_ms)},
          {"step", report.step ? Json(*report.step) : Json(nullptr)},
          {"message", report.message},
          {"error_file", OrNull(report.error_file)},
          {"error", ErrorJson(report)},
          {"last_lines", Lines(report.stderr_tail)}};
}

Json WorkerJson(const RoundRecord& round, const WorkerRecord& worker) {
  const std::optional<WorkerEnd>& end = worker.end;
  return {{"rank", round.assignment.first_rank + worker.local_rank},
          {"local_rank", worker.local_rank},
          {"pid", OrNull(worker.pid)},
          {"exit_code", end ? Json(end->exit_code) : Json(nullptr)},
          {"signal", OrNull(end ? end->signal : 0)},
          {"was_stopped", end && end->was_told_to_stop}};
}

Json RoundJson(const RoundRecord& round) {
  const rendezvous::Assignment& to = round.assignment;
  Json workers = Json::array();
  for (const WorkerRecord& worker : round.workers) workers.push_back(WorkerJson(round, worker));
  return {{"epoch", to.epoch.value},
          {"round", to.round.value},
          {"restart_count", to.restart_count},
          {"node_rank", to.node_rank},
          {"node_count", to.node_count},
          {"world_size", to.world_size},
          {"started", IsoTime(round.started_unix_ms)},
          {"ended", IsoTime(round.ended_unix_ms)},
          {"end_reason", OrNull(round.end_reason)},
          {"workers", std::move(workers)}};
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

int CodeOf(const WorkerRecord& worker) {
  return worker.end ? TorchrunCode(worker.end->exit_code, worker.end->signal) : 0;
}

// The error file again; what torchrun has for a worker without one, where it knows a code alone or
// a signal.
std::string RawError(const WorkerRecord& worker) {
  if (worker.failure && worker.failure->error) {
    return ErrorTextOf(*worker.failure->error, std::nullopt);
  }
  Json error = {{"message", "<NONE>"}};
  if (CodeOf(worker) >= 0) {
    error["errorTraits"] = {{"category", "system_terminated_error"}, {"retryability", "False"}};
  }
  return Dump(error);
}

}  // namespace

std::string RenderReportFile(const JobRecord& record) {
  const JobRecord::Part& part = record.part();
  const EndJob& end = record.end();
  const FailureReport* first = nullptr;
  if (record.verdict() && record.verdict()->first_failure) {
    first = &*record.verdict()->first_failure;
  }
  Json failures = Json::array();
  bool has_first = first == nullptr;
  for (const RoundRecord& round : record.rounds()) {
    for (const FailureReport& failure : round.Failures()) {
      has_first = has_first || IsSameWorker(failure, *first);
      Json json = FailureJson(failure);
      json["round"] = round.assignment.round.value;
      json["restart_count"] = round.assignment.restart_count;
      failures.push_back(std::move(json));
    }
  }
  if (!has_first) failures.push_back(FailureJson(*first));  // of another node
  Json rounds = Json::array();
  for (const RoundRecord& round : record.rounds()) rounds.push_back(RoundJson(round));
  const rendezvous::Assignment none;
  const rendezvous::Assignment& last =
      record.rounds().empty() ? none : record.rounds().back().assignment;
  const bool is_checked = record.health().health != rendezvous::Health::kUnchecked;
  const bool is_signal = end.owner == ExitOwner::kSignal;
  const Outcome outcome = OutcomeOf(end.owner);
  const Json report = {
      {"version", 1},
      {"job_id", part.config.run_id},
      {"program", part.program},
      {"node_id", part.node.value},
      {"host", part.host},
      {"outcome", outcome.name},
      {"exit_code", end.exit_code},
      {"exit_code_of", outcome.exit_code_of ? Json(outcome.exit_code_of) : Json(nullptr)},
      {"stopped_by_signal", is_signal ? Json(end.exit_code - kExitSignalBase) : Json(nullptr)},
      {"reason", end.reason},
      {"health", is_checked ? Json(HealthName(record.health().health)) : Json(nullptr)},
      {"health_line", OrNull(record.health().line)},
      {"started", IsoTime(record.started_unix_ms())},
      {"ended", IsoTime(record.ended_unix_ms())},
      {"restarts", last.restart_count},
      {"max_restarts", record.rounds().empty() ? part.config.max_restarts : last.max_restarts},
      {"first_failure", first != nullptr ? FailureJson(*first) : Json(nullptr)},
      {"failures", std::move(failures)},
      {"failures_left_out", record.failures_left_out()},
      {"rounds", std::move(rounds)},
      {"rounds_left_out", record.rounds_left_out()}};
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

struct StatusEvents::Event {
  std::string state;
  const WorkerRecord* worker = nullptr;  // null: the agent's
  bool has_ended = false;                // the worker: its pid and code are told
  std::optional<std::string> raw_error{};
  std::optional<double> duration_ms{};
  const TimerRequest* timer = nullptr;
  std::string timer_event{};  // torchrun's name
};

void StatusEvents::RoundFormed(int64_t unix_ms, double waited_ms) {
  Waited(unix_ms, waited_ms);
  // The place in the round says the ranks: there is nothing more to ask.
  Write({.state = "ASSIGN_WORKER_RANKS", .duration_ms = 0.0}, unix_ms);
}

void StatusEvents::Waited(int64_t unix_ms, double waited_ms) {
  Write({.state = "RENDEZVOUS", .duration_ms = waited_ms}, unix_ms);
}

void StatusEvents::WorkerRuns(const WorkerRecord& worker, int64_t unix_ms) {
  Write({.state = "START", .worker = &worker}, unix_ms);
}

void StatusEvents::JobEnded(int64_t unix_ms) {
  if (!emit_) return;
  const RoundRecord none;
  const RoundRecord& round = record_.rounds().empty() ? none : record_.rounds().back();
  for (const WorkerRecord& worker : round.workers) {
    if (worker.pid == 0) continue;
    const bool has_succeeded = worker.end && worker.end->exit_code == 0;
    const bool has_failed = worker.failure || (worker.end && !worker.end->was_told_to_stop);
    Event event{.state = has_succeeded ? "SUCCEEDED"
                         : has_failed  ? "FAILED"
                                       : "TERMINATED",
                .worker = &worker,
                .has_ended = worker.end && has_failed && !has_succeeded};
    if (event.state == "FAILED") event.raw_error = RawError(worker);
    Write(event, unix_ms);
  }
  // As in torchrun, the agent has succeeded when it came to the job's end, whatever that was.
  const ExitOwner owner = record_.end().owner;
  const bool is_over =
      owner == ExitOwner::kNobody || owner == ExitOwner::kWorker || owner == ExitOwner::kRequeue;
  Event event{.state = is_over ? "SUCCEEDED" : "FAILED"};
  if (!is_over) event.raw_error = record_.end().reason;
  Write(event, unix_ms);
}

void StatusEvents::TimerEvent(const TimerRequest& timer, bool is_kill, int64_t unix_ms) {
  Write({.state = "RUNNING",
         .timer = &timer,
         .timer_event = is_kill ? "kill worker process" : "timer expired"},
        unix_ms);
}

void StatusEvents::Write(const Event& event, int64_t unix_ms) {
  if (!emit_) return;
  const JobRecord::Part& part = record_.part();
  const RendezvousKind kind = part.config.rendezvous;
  const char* backend = kind == RendezvousKind::kStatic ? "static"
                        : kind == RendezvousKind::kEtcd ? "etcd"
                                                        : "c10d";
  const rendezvous::Assignment none;
  const bool has_round = !record_.rounds().empty();
  const rendezvous::Assignment& round = has_round ? record_.rounds().back().assignment : none;
  const Json nothing = nullptr;
  Json details = {{"group_world_size", has_round ? Json(round.node_count) : nothing},
                  {"entry_point", part.program.substr(part.program.rfind('/') + 1)}};
  Json rank = nullptr, worker_id = nullptr;
  if (event.worker != nullptr) {
    const WorkerRecord& worker = *event.worker;
    rank = round.first_rank + worker.local_rank;
    worker_id = std::to_string(worker.pid);
    // Lists of one, as torchrun has them.
    details["local_rank"] = Json::array({worker.local_rank});
    details["role_rank"] = Json::array({round.role_first_rank + worker.local_rank});
    details["role_world_size"] = Json::array({round.role_world_size});
    details["exit_code"] = Json::array({event.has_ended ? Json(CodeOf(worker)) : nothing});
    details["worker_pid"] = Json::array({event.has_ended ? Json(worker.pid) : nothing});
  }
  if (event.timer != nullptr) {
    details = {{"watchdog_event", event.timer_event},
               {"worker_pid", std::to_string(event.timer->pid)},
               {"scope_id", event.timer->scope},
               {"expiration_time", std::to_string(event.timer->expires)},
               {"signal", std::to_string(event.timer->signal)}};
  }
  const Json line = {{"name", event.timer != nullptr ? event.timer_event
                                                     : "torchelastic.worker.status." + event.state},
                     {"source", event.worker != nullptr ? "WORKER" : "AGENT"},
                     {"timestamp", unix_ms},
                     {"metadata",
                      {{"run_id", part.config.run_id},
                       {"global_rank", std::move(rank)},
                       {"group_rank", has_round ? Json(round.node_rank) : nothing},
                       {"worker_id", std::move(worker_id)},
                       {"role", part.config.role},
                       {"hostname", part.host},
                       {"state", event.state},
                       {"total_run_time", (unix_ms - record_.started_unix_ms()) / 1000},
                       {"rdzv_backend", backend},
                       {"raw_error", event.raw_error ? Json(*event.raw_error) : nothing},
                       {"metadata", Dump(details)},
                       {"agent_restarts", round.restart_count},
                       {"duration_ms", event.duration_ms ? Json(*event.duration_ms) : nothing}}}};
  emit_(Dump(line));
}

}  // namespace ddprun::launcher
