#include "tools/reference_program/samples.h"

#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "bench/report_json.h"
#include "launcher/check/check_json.h"
#include "launcher/doctor/doctor.h"
#include "launcher/dump/dump_folder.h"
#include "launcher/report/event_line.h"
#include "launcher/report/job_json.h"
#include "launcher/status/snapshot_fields.h"
#include "launcher/status/snapshot_json.h"
#include "tools/reference_program/events.h"

namespace ddprun::reference {
namespace {

using namespace launcher;

constexpr int64_t kUnixMs = 1738324800123;

template <typename T>
T Filled();

// Gives each member a value, so that a new one needs no line here.
template <typename T>
struct Filler {
  T value;

  template <typename Value>
  void operator()(const char* /*name*/, Value T::*member) {
    if constexpr (std::is_same_v<Value, std::optional<FaultView>>) {
      value.*member = Filled<FaultView>();
    } else if constexpr (requires {
                           typename Value::value_type;
                           (value.*member).has_value();
                         }) {
      value.*member = typename Value::value_type(1);
    }
  }
  void Hex(const char* /*name*/, uint64_t T::* /*member*/) {}
  void Lines(const char* /*name*/, std::string T::* /*member*/) {}
  template <typename Item>
  void List(const char* /*name*/, std::vector<Item> T::*member, size_t /*max*/) {
    if constexpr (std::is_class_v<Item> && !std::is_same_v<Item, std::string>) {
      value.*member = {Filled<Item>(), Item()};
    } else {
      (value.*member).resize(1);
    }
  }
};

template <typename T>
T Filled() {
  Filler<T> filler;
  VisitMembers<T>(filler);
  return filler.value;
}

Json Parsed(const std::string& text) { return Json::parse(text); }

std::vector<Json> StatusSamples() {
  return {Parsed(RenderJson(JobView())), Parsed(RenderJson(Filled<JobView>()))};
}

std::vector<Json> ListSamples() {
  const JobView job;
  return {Parsed(RenderListJson({{&job, "/tmp/ddprun-0/1.sock"}}))};
}

std::vector<Json> DoctorSamples() {
  DoctorFacts full;
  full.gpu = {.driver = DriverState::kOpened,
              .driver_file = "libcuda.so.1",
              .driver_error = "an error",
              .cuda_version = 13000,
              .gpus = {Gpu()},
              .gpu_error = "an error",
              .nccl_file = "libnccl.so.2",
              .nccl_version = "2.28.7",
              .nccl_cuda_version = 13000,
              .nccl_lacks = {"ncclCommRegister"},
              .nccl_error = "an error",
              .cublas_file = "libcublas.so.13",
              .cublas_version = "13.1.0",
              .cublas_error = "an error",
              .stage = ""};
  full.host = {.system = {.host = "a", .kernel = "Linux", .glibc = "2.36", .cpu = "c", .cpus = 1},
               .driver = {.kernel_module = "580", .visible_devices = "0"},
               .nvcc_file = "nvcc",
               .toolkit_version = "13.0",
               .network = {{.name = "eth0", .addresses = {"::1"}, .megabits = 1},
                           {.name = "lo", .addresses = {}}},
               .infiniband = {{.device = "mlx5_0"}},
               .memlock_bytes = 1,
               .open_files = 1,
               .open_files_hard = 1,
               .has_shm = true,
               .numa_nodes = 1};
  DoctorFacts able = full;
  for (std::string* error : {&able.gpu.driver_error, &able.gpu.gpu_error, &able.gpu.nccl_error,
                             &able.gpu.cublas_error}) {
    error->clear();
  }
  able.gpu.nccl_lacks.clear();
  return {Parsed(DoctorJson(DoctorFacts())), Parsed(DoctorJson(full)), Parsed(DoctorJson(able))};
}

std::vector<Json> CheckSamples() {
  std::vector<Json> samples;
  for (const bool is_by_node : {false, true}) {
    CheckFacts facts{.is_by_node = is_by_node, .ranks = 2};
    facts.units = {{.name = "a"}, {.name = "b", .pass_ms = 1, .memory_gb_s = 1, .inside_gb_s = 1}};
    facts.rounds = {{{.pair = {0, 1}}, {.pair = {0, 1}, .gb_per_s = 1}}};
    samples.push_back(Parsed(CheckJson(facts, {.units = {{.unit = 0}, {.unit = 1}}})));
  }
  return samples;
}

std::vector<Json> BenchSamples() {
  bench::Report report;
  report.machine.core_quota = 1.5;
  report.rows = {
      {.ranks = 1, .step_ms = 1, .memory_bytes = {1}},
      {.ranks = 2, .memory_bytes = {1}, .final_loss = std::numeric_limits<double>::quiet_NaN()}};
  report.timelines = {{.phases = {{.name = "forward"}}, .reductions = {{.name = "bucket 0"}}}};
  report.sweep_ranks = 2;
  report.sweep = {{.cap_mb = 25, .same_mb = {4}, .step_ms = 1}};
  return {Parsed(bench::ReportJson(bench::Report())), Parsed(bench::ReportJson(report))};
}

JobRecord::Part TwoWorkers() {
  JobRecord::Part part{NodeId{"n1"}, "alpha", "./train.py"};
  part.config.workers_per_node = 2;
  return part;
}

// The first: a worker was killed and the other one lives.
std::vector<Json> ReportSamples() {
  JobRecord failed(TwoWorkers(), kUnixMs);
  failed.Note(AgentEvent(HealthFound{1, {rendezvous::Health::kHealthy, "fine"}}), kUnixMs);
  PrepareWorkers start;
  start.assignment.round.value = 1;
  failed.Note(AgentAction(start), kUnixMs);
  failed.WorkerRuns(0, 70, "error.json");
  const WorkerEnd end{.local_rank = 0, .pid = 70, .exit_code = 137, .signal = 9};
  failed.Note(AgentEvent(end), kUnixMs);
  LastWords words = failed.Failed(end);
  words.report = {.node = NodeId{"n1"},
                  .pid = 70,
                  .exit_code = 137,
                  .signal = 9,
                  .stderr_tail = "Killed",
                  .unix_time_ms = kUnixMs,
                  .error_file = "error.json",
                  .error = rendezvous::WorkerError{.message = "boom", .unix_time_s = 1738324800},
                  .step = 7};
  failed.Add(words);
  rendezvous::Concluded killed;
  killed.verdict.first_failure = words.report;
  failed.Note(AgentEvent(killed), kUnixMs);
  failed.Note(AgentEvent(rendezvous::Drained{Round{1}, "rank 0 failed"}), kUnixMs);
  failed.Note(AgentEvent(WorkersGone{}), kUnixMs);
  failed.Note(AgentAction(EndJob{143, ExitOwner::kSignal, "SIGTERM"}), kUnixMs);

  // What a hang ended, of another node; the same with an error file; and nothing but an end.
  std::vector<Json> samples = {Parsed(RenderReportFile(failed)),
                               Parsed(RenderReportFile(JobRecord(TwoWorkers(), 0)))};
  for (const auto& error : {std::optional<rendezvous::WorkerError>(), {{.message = "boom"}}}) {
    JobRecord hung(TwoWorkers(), 0);
    hung.Note(AgentAction(start), 0);
    rendezvous::Concluded concluded;
    concluded.verdict.first_failure =
        rendezvous::FailureReport{.node = NodeId{"n2"}, .error = error, .is_hang = true};
    hung.Note(AgentEvent(concluded), 0);
    samples.push_back(Parsed(RenderReportFile(hung)));
  }
  return samples;
}

std::vector<JobEvent> FullEvents() {
  rendezvous::Assignment place;
  place.note = "a node is lost";
  const rendezvous::FailureReport failure{.pid = 70,
                                          .signal = 9,
                                          .unix_time_ms = kUnixMs,
                                          .error = rendezvous::WorkerError{.message = "boom"}};
  rendezvous::FailureReport hang;
  hang.is_hang = true;
  Problem problem{.kind = "hang", .ranks = {0}, .node = "alpha"};
  std::vector<JobEvent> events = {
      RestartEvent{.reason = "why"},
      RoundStartEvent{.assignment = place, .rendezvous_s = 1},
      FailureEvent{failure},
      FailureEvent{hang},
      ProblemEndEvent{.problem = problem},
      HealthEvent{{rendezvous::Health::kBad, "GPU 3 is lost"}},
      RoundEndEvent{.reason = "why"},
      JobEndEvent{.end = {1, ExitOwner::kWorker, "why"}, .effective_share = 0.5}};
  for (const char* kind : {"hang", "straggler", "disk"}) {
    problem.kind = kind;
    events.emplace_back(ProblemEvent{problem});
  }
  return events;
}

std::vector<Json> EventSamples() {
  std::vector<JobEvent> events = EveryEvent();
  for (JobEvent& event : FullEvents()) events.push_back(std::move(event));
  std::vector<Json> lines;
  for (const JobEvent& event : events) lines.push_back(Parsed(EventLine({}, event)));
  return lines;
}

std::vector<Json> DumpSamples() {
  DumpRequest request;
  request.processes = {{}};
  const DumpResult result{.ranks = {{}}};
  return {Parsed(DumpSummary(request, result, {{}}, "2025-01-31T12:00:00Z", {"an error"}))};
}

}  // namespace

std::vector<Document> Documents() {
  return {{"status", "ddprun status --json", StatusSamples()},
          {"list", "ddprun list --json", ListSamples()},
          {"doctor", "ddprun doctor --json", DoctorSamples()},
          {"check", "ddprun check --json", CheckSamples()},
          {"bench", "ddprun bench --json", BenchSamples()},
          {"report-file", "The file of --report-file", ReportSamples()},
          {"event", "A line of the file of --event-file", EventSamples()},
          {"dump-summary", "summary.json of ddprun dump", DumpSamples()}};
}

}  // namespace ddprun::reference
