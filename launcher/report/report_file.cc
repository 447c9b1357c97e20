#include "launcher/report/report_file.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/agent/worker_end.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;
using rendezvous::FailureReport;

Json IsoTime(int64_t unix_ms) {
  const std::string text = UtcText(unix_ms, 'T');
  return text.empty() ? Json(nullptr) : Json(text);
}

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
          {"time", IsoTime(report.error->unix_time_s * 1000)}};
}

Json SignalJson(int signal) { return signal == 0 ? Json(nullptr) : Json(signal); }

Json FailureJson(const FailureReport& report) {
  return {{"rank", report.rank},
          {"local_rank", report.local_rank},
          {"node_rank", report.node_rank},
          {"node_id", report.node.value},
          {"host", report.host},
          {"pid", report.pid == 0 ? Json(nullptr) : Json(report.pid)},
          {"exit_code", report.exit_code},
          {"signal", SignalJson(report.signal)},
          {"dumped_core", report.dumped_core},
          {"time", IsoTime(report.unix_time_ms)},
          {"message", report.message},
          {"error_file", report.error_file.empty() ? Json(nullptr) : Json(report.error_file)},
          {"error", ErrorJson(report)},
          {"last_lines", Lines(report.stderr_tail)}};
}

Json WorkerJson(const RoundRecord& round, const WorkerRecord& worker) {
  const std::optional<WorkerEnd>& end = worker.end;
  return {{"rank", round.assignment.first_rank + worker.local_rank},
          {"local_rank", worker.local_rank},
          {"pid", worker.pid == 0 ? Json(nullptr) : Json(worker.pid)},
          {"exit_code", end ? Json(end->exit_code) : Json(nullptr)},
          {"signal", SignalJson(end ? end->signal : 0)},
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
          {"end_reason", round.end_reason.empty() ? Json(nullptr) : Json(round.end_reason)},
          {"workers", std::move(workers)}};
}

struct OwnerText {
  const char* outcome;
  Json exit_code_of;
};

OwnerText TextOf(ExitOwner owner) {
  switch (owner) {
    case ExitOwner::kNobody:
      return {"succeeded", nullptr};
    case ExitOwner::kWorker:
      return {"failed", "worker"};
    case ExitOwner::kSignal:
      return {"stopped", "ddprun"};
    case ExitOwner::kDdprun:
      break;
  }
  return {"error", "ddprun"};
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
  const bool is_signal = end.owner == ExitOwner::kSignal;
  const Json report = {
      {"version", 1},
      {"job_id", part.config.run_id},
      {"program", part.program},
      {"node_id", part.node.value},
      {"host", part.host},
      {"outcome", TextOf(end.owner).outcome},
      {"exit_code", end.exit_code},
      {"exit_code_of", TextOf(end.owner).exit_code_of},
      {"stopped_by_signal", is_signal ? Json(end.exit_code - kExitSignalBase) : Json(nullptr)},
      {"reason", end.reason},
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

}  // namespace ddprun::launcher
