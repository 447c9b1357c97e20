#include "launcher/report/job_reporter.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launcher/agent/file_timers.h"
#include "tests/launcher/logs/console_file.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using testing::ElementOf;
using testing::Json;

PrepareWorkers RoundOf(uint64_t number) {
  PrepareWorkers start;
  start.assignment.round.value = number;
  start.assignment.first_rank = 4;
  start.assignment.node_rank = 2;
  start.assignment.node_count = 3;
  start.assignment.restart_count = static_cast<int>(number) - 1;
  return start;
}

WorkerEnd Exited(int local_rank, int code, bool was_told_to_stop = false) {
  return {.local_rank = local_rank,
          .pid = 70 + local_rank,
          .exit_code = code,
          .was_told_to_stop = was_told_to_stop,
          .message = "exit code " + std::to_string(code)};
}

EndJob EndOf(int code) { return {code, ExitOwner::kWorker, "rank 5 failed"}; }

// One node with two workers of rank 4 and 5, its console and its files.
struct Fixture {
  explicit Fixture(const std::string& handler = "null", Duration file_patience = 60s)
      : patience(file_patience) {
    JobReporter::Options options{.part = {NodeId{"n1"}, "alpha"}};
    options.part.config.workers_per_node = 2;
    options.part.config.run_id = "run7";
    options.part.config.role = "trainer";
    options.part.config.report_file = report_file;
    options.part.config.event_log_handler = handler;
    options.part.program = "./bin/train.py";
    options.own_error_file = own_error_file;
    Make(std::move(options));
  }
  void Make(JobReporter::Options options) {
    options.write_timeout = options.describe_timeout = options.complete_timeout = patience;
    reporter.emplace(std::move(options), console.router(), workers_files, own_files);
  }
  void Hear(const AgentEvent& event) { reporter->Note(event); }
  void Do(const AgentAction& action) { reporter->Note(action); }
  // Runs until what was asked has been answered, or a minute.
  void Await(const bool& is_done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_done && std::chrono::steady_clock::now() < end) {
      if (io.stopped()) io.restart();
      io.run_one_for(std::chrono::seconds(1));
    }
    REQUIRE(is_done);
  }
  rendezvous::FailureReport Describe(const WorkerEnd& end) {
    bool is_done = false;
    rendezvous::FailureReport report;
    reporter->Describe(end, [&](const rendezvous::FailureReport& told) {
      report = told;
      is_done = true;
    });
    CHECK_FALSE(is_done);
    Await(is_done);
    return report;
  }
  void CompleteRound() {
    bool is_done = false;
    reporter->CompleteRound([&] { is_done = true; });
    Await(is_done);
  }
  void WriteReport() {
    bool is_done = false;
    reporter->WriteReport([&] { is_done = true; });
    Await(is_done);
  }
  void Start(uint64_t round) {
    Do(JoinRound{});
    Do(RoundOf(round));
    for (const int local_rank : {0, 1}) {
      reporter->WorkerRuns(local_rank, 70 + local_rank, ErrorFile(local_rank));
    }
  }
  // Worker 1 fails and is reported, worker 0 is stopped because of it.
  rendezvous::FailureReport FailSecond() {
    Hear(Exited(1, 3));
    const rendezvous::FailureReport report = Describe(Exited(1, 3));
    Hear(Exited(0, 143, /*was_told_to_stop=*/true));
    CompleteRound();
    Hear(WorkersGone{});
    return report;
  }
  void LeaveErrorFile(int local_rank, const std::string& text) {
    std::ofstream(ErrorFile(local_rank)) << text;
  }
  std::string ErrorFile(int local_rank) const {
    return dir.File("error" + std::to_string(local_rank));
  }
  Json JsonOf(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto json = testing::ParseJson(text);
    REQUIRE_MESSAGE(json, path, ": ", text);
    return *json;
  }
  std::string Console() {
    reporter.reset();
    return console.Close();
  }

  const Duration patience;
  testing::TempDir dir;
  std::string report_file = dir.File("report.json");
  std::string own_error_file = dir.File("own.json");
  ConsoleFile console;
  boost::asio::io_context io;
  FileThread workers_files{io};
  FileThread own_files{io};
  std::optional<JobReporter> reporter;
};

rendezvous::Verdict VerdictOn(const rendezvous::FailureReport& first) {
  return {.exit_code = first.exit_code, .reason = "a worker failed", .first_failure = first};
}

TEST_CASE("job reporter: the report file has each round with what failed in it") {
  Fixture fixture;
  fixture.Start(1);
  fixture.FailSecond();
  fixture.Start(2);
  for (const int local_rank : {0, 1}) {
    fixture.Hear(Exited(local_rank, 0));
  }
  fixture.Hear(WorkersGone{});
  fixture.Do(EndJob{0, ExitOwner::kNobody, ""});
  fixture.WriteReport();
  const Json report = fixture.JsonOf(fixture.report_file);
  CHECK(report.get<std::string>("job_id") == "run7");
  CHECK(report.get<std::string>("outcome") == "succeeded");
  REQUIRE(report.get_child("rounds").size() == 2);
  const Json& first = ElementOf(report, "rounds", 0);
  CHECK(ElementOf(first, "workers", 0).get<std::string>("was_stopped") == "true");
  CHECK(ElementOf(first, "workers", 1).get<int>("exit_code") == 3);
  // A stop is no failure, and a success leaves none.
  REQUIRE(report.get_child("failures").size() == 1);
  CHECK(ElementOf(report, "failures", 0).get<int>("rank") == 5);
  CHECK(ElementOf(report, "failures", 0).get<int>("restart_count") == 0);
  CHECK(fixture.Console().empty());
}

TEST_CASE("job reporter: an error file that a stopped worker left is told at the end") {
  Fixture fixture;
  fixture.Start(1);
  fixture.LeaveErrorFile(0, R"({"message": "also broken"})");
  fixture.FailSecond();
  fixture.Do(EndOf(3));
  fixture.WriteReport();
  const Json report = fixture.JsonOf(fixture.report_file);
  REQUIRE(report.get_child("failures").size() == 2);
  CHECK(ElementOf(report, "failures", 1).get<std::string>("error.message") == "also broken");
}

TEST_CASE("job reporter: people are told of the first failure and of all of this node") {
  Fixture fixture;
  fixture.Start(1);
  rendezvous::FailureReport elsewhere;
  elsewhere.node.value = "n2";
  elsewhere.host = "beta";
  elsewhere.rank = 9;
  elsewhere.exit_code = 6;
  elsewhere.message = "exit code 6";
  fixture.FailSecond();
  fixture.reporter->Print(VerdictOn(elsewhere));
  const std::string said = fixture.Console();
  CHECK(said == Contains("./bin/train.py FAILED\n"));
  CHECK(said == Contains("  host      : beta (node_rank: "));
  CHECK(said == Contains("(local_rank: 1)"));
  CHECK(said.substr(said.size() - 2, 1) != "\n");  // the last line ends, and no empty one follows
}

TEST_CASE("job reporter: whoever started the agent gets the first failure's error file") {
  Fixture fixture;
  fixture.Start(1);
  fixture.LeaveErrorFile(1, R"({"message": {"message": "boom"}})");
  fixture.reporter->Print(VerdictOn(fixture.FailSecond()));
  fixture.WriteReport();
  const Json own = fixture.JsonOf(fixture.own_error_file);
  CHECK(own.get<std::string>("message.message") == "boom");
  CHECK(own.get<int>("message.errorCode") == 3);
}

TEST_CASE("job reporter: the first failure's error file comes from another node as well") {
  Fixture fixture;
  fixture.Start(1);
  fixture.LeaveErrorFile(1, R"({"message": {"message": "a consequence"}})");
  fixture.FailSecond();
  rendezvous::FailureReport elsewhere;
  elsewhere.node.value = "n2";
  elsewhere.exit_code = 137;
  elsewhere.signal = 9;
  elsewhere.error = {.message = "the cause", .traceback = "there", .unix_time_s = 17};
  fixture.reporter->Print(VerdictOn(elsewhere));
  fixture.WriteReport();
  const Json own = fixture.JsonOf(fixture.own_error_file);
  CHECK(own.get<std::string>("message.message") == "the cause");
  CHECK(own.get<std::string>("message.extraInfo.py_callstack") == "there");
  CHECK(own.get<int>("message.errorCode") == -9);
}

TEST_CASE("job reporter: a worker that ended because a peer left stands back for one that failed") {
  constexpr char kLeft[] =
      R"({"message": {"message": "rank 5 left", "extraInfo": {"left_peer": 5}}})";
  for (const bool has_cause : {true, false}) {
    Fixture fixture;
    fixture.Start(1);
    fixture.LeaveErrorFile(0, kLeft);
    fixture.LeaveErrorFile(1, has_cause ? R"({"message": {"message": "the cause"}})" : kLeft);
    fixture.Hear(Exited(0, 1));
    const rendezvous::FailureReport first = fixture.Describe(Exited(0, 1));
    fixture.Hear(Exited(1, 3));
    fixture.CompleteRound();
    fixture.reporter->Print(VerdictOn(first));
    fixture.WriteReport();
    CHECK(fixture.JsonOf(fixture.own_error_file).get<std::string>("message.message") ==
          (has_cause ? "the cause" : "rank 5 left"));
  }
}

TEST_CASE("job reporter: an error file that is too large stays where the user named a folder") {
  for (const bool is_named : {false, true}) {
    Fixture fixture;
    fixture.reporter.reset();
    JobReporter::Options options{.part = {NodeId{"n1"}, "alpha"}};
    options.part.config.workers_per_node = 2;
    if (is_named) options.part.config.log_dir = fixture.dir.path().string();
    fixture.Make(std::move(options));
    fixture.Start(1);
    fixture.LeaveErrorFile(1, std::string(kMaxErrorFileBytes + 1, ' '));
    CHECK(fixture.FailSecond().error_file == (is_named ? fixture.ErrorFile(1) : ""));
    CHECK(std::ifstream(fixture.ErrorFile(1)).good() == is_named);
    const std::string said = fixture.Console();
    CHECK(said == Contains("is larger than 1048576 bytes"));
    CHECK((said == Contains("it is removed")) != is_named);
  }
}

TEST_CASE("job reporter: no error file, nothing for whoever started the agent") {
  Fixture fixture;
  fixture.Start(1);
  fixture.reporter->Print(VerdictOn(fixture.FailSecond()));
  fixture.WriteReport();
  CHECK_FALSE(std::ifstream(fixture.own_error_file).good());
  CHECK(fixture.Console() != Contains("TORCHELASTIC_ERROR_FILE"));
}

TEST_CASE("job reporter: files that cannot be written are one warning each") {
  Fixture fixture;
  fixture.reporter.reset();
  JobReporter::Options options{.part = {NodeId{"n1"}, "alpha"}};
  options.part.config.workers_per_node = 2;
  options.part.config.report_file = fixture.dir.File("no/report");
  options.own_error_file = fixture.dir.File("no/own\n");
  fixture.Make(std::move(options));
  fixture.Start(1);
  fixture.LeaveErrorFile(1, R"({"message": {"message": "boom"}})");
  fixture.reporter->Print(VerdictOn(fixture.FailSecond()));
  fixture.Do(EndOf(3));
  fixture.WriteReport();
  const std::string said = fixture.Console();
  CHECK(said ==
        Contains("\nddprun: warning: the error file for TORCHELASTIC_ERROR_FILE is not written: "));
  CHECK(said == Contains("no/own\\n"));
  CHECK(said == Contains("\nddprun: warning: the report file is not written: "));
}

TEST_CASE("job reporter: files that do not answer hold up neither a failure nor the end") {
  Fixture fixture("null", 1ms);  // lower bound: both threads hang
  fixture.Start(1);
  fixture.LeaveErrorFile(1, R"({"message": "boom"})");
  std::promise<void> release;
  const std::shared_future<void> is_released(release.get_future());
  for (FileThread* files : {&fixture.workers_files, &fixture.own_files}) {
    files->Ask<int>(
        "hung", "", std::chrono::hours(1),
        [is_released] {
          is_released.wait();
          return 0;
        },
        [](std::optional<int>) {});
  }
  // How it ended is known all the same.
  const rendezvous::FailureReport report = fixture.FailSecond();
  CHECK(report.exit_code == 3);
  CHECK_FALSE(report.error);
  fixture.reporter->Print(VerdictOn(report));
  fixture.Do(EndOf(3));
  fixture.WriteReport();
  release.set_value();
  while (!fixture.workers_files.is_idle() || !fixture.own_files.is_idle()) {
    std::this_thread::yield();
  }
  CHECK(fixture.Console() == Contains("warning: the report file is not written: write " +
                                      fixture.report_file + ": its file system does not answer"));
}

// "AGENT:RENDEZVOUS WORKER:START", of the lines that are JSON.
std::string EventsOf(const std::string& console, std::vector<Json>* events = nullptr) {
  std::string seen;
  for (const std::string& line : Lines(console)) {
    const auto json = testing::ParseJson(line);
    if (!json) continue;
    if (!seen.empty()) seen += " ";
    seen += json->get<std::string>("source") + ":" + json->get<std::string>("metadata.state");
    if (events != nullptr) events->push_back(*json);
  }
  return seen;
}

TEST_CASE("job reporter: events tell the rounds, the starts and the ends of the last round") {
  Fixture fixture("console");
  fixture.Start(1);
  fixture.FailSecond();
  fixture.Start(2);
  fixture.FailSecond();
  fixture.Do(EndOf(3));
  fixture.WriteReport();
  std::vector<Json> events;
  CHECK(EventsOf(fixture.Console(), &events) ==
        "AGENT:RENDEZVOUS AGENT:ASSIGN_WORKER_RANKS WORKER:START WORKER:START "
        "AGENT:RENDEZVOUS AGENT:ASSIGN_WORKER_RANKS WORKER:START WORKER:START "
        "WORKER:TERMINATED WORKER:FAILED AGENT:SUCCEEDED");
  REQUIRE(events.size() == 11);
  const Json& facts = events[9].get_child("metadata");
  CHECK(facts.get<std::string>("run_id") == "run7");
  CHECK(facts.get<std::string>("role") == "trainer");
  CHECK(facts.get<std::string>("hostname") == "alpha");
  CHECK(facts.get<std::string>("rdzv_backend") == "c10d");
  CHECK(facts.get<int>("global_rank") == 5);
  CHECK(facts.get<int>("agent_restarts") == 1);
  // Without its folder, as torchrun has it.
  CHECK(facts.get<std::string>("metadata") == Contains(R"("entry_point":"train.py")"));
  CHECK(events[0].get<double>("metadata.duration_ms") >= 0);
}

TEST_CASE("job reporter: a wait in vain is an event, a job that never asked has none of it") {
  for (const bool has_asked : {true, false}) {
    Fixture fixture("console");
    if (has_asked) fixture.Do(JoinRound{});
    fixture.Do(EndJob{121, ExitOwner::kDdprun, "nobody came"});
    fixture.WriteReport();
    CHECK(EventsOf(fixture.Console()) ==
          (has_asked ? "AGENT:RENDEZVOUS AGENT:FAILED" : "AGENT:FAILED"));
  }
}

TEST_CASE("job reporter: an expired timer and the kill that follows are events of their own") {
  Fixture fixture("console");
  fixture.Start(1);
  for (const bool is_kill : {false, true}) {
    fixture.reporter->TimerEvent({.pid = 71, .scope = "a.py#3", .expires = 1.5, .signal = 9},
                                 is_kill);
  }
  std::vector<Json> events;
  EventsOf(fixture.Console(), &events);
  REQUIRE(events.size() == 6);
  CHECK(events[4].get<std::string>("name") == "timer expired");
  CHECK(events[5].get<std::string>("name") == "kill worker process");
  CHECK(events[5].get<std::string>("metadata.metadata") == Contains(R"("scope_id":"a.py#3")"));
}

}  // namespace
}  // namespace ddprun::launcher
