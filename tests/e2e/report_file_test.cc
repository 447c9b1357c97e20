// --report-file and --event-log-handler: what programs read about a job.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

Json ReadReport(const Job& job, const std::string& name = "report.json") {
  const std::string text = ReadFile(job.File(name));
  const auto json = ParseJson(text);
  REQUIRE_MESSAGE(json, "not JSON: ", text);
  return *json;
}

TEST_CASE("report file: a success is told with its rounds and workers") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--rdzv-id=run7", "--max-restarts=3",
                         "--report-file=" + job.File("report.json")},
                        {"exit:7@1#0", "wait#0"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  const Json report = ReadReport(job);
  CHECK(report.get<int>("version") == 1);
  CHECK(report.get<std::string>("job_id") == "run7");
  CHECK(report.get<std::string>("outcome") == "succeeded");
  CHECK(report.get<int>("exit_code") == 0);
  CHECK(report.get<std::string>("exit_code_of") == "null");
  CHECK(report.get<int>("restarts") == 1);
  CHECK(report.get<int>("max_restarts") == 3);
  CHECK(report.get<std::string>("first_failure") == "null");
  REQUIRE(report.get_child("rounds").size() == 2);
  const Json& first = ElementOf(report, "rounds", 0);
  CHECK(first.get<int>("restart_count") == 0);
  CHECK(first.get<std::string>("end_reason").find("rank 1 on node") == 0);
  CHECK(ElementOf(first, "workers", 0).get<std::string>("was_stopped") == "true");
  CHECK(ElementOf(first, "workers", 1).get<int>("exit_code") == 7);
  CHECK(ElementOf(first, "workers", 1).get<int>("pid") > 0);
  const Json& second = ElementOf(report, "rounds", 1);
  CHECK(second.get<std::string>("ended").size() == 24);
  CHECK(ElementOf(second, "workers", 1).get<int>("exit_code") == 0);
  REQUIRE(report.get_child("failures").size() == 1);
  CHECK(ElementOf(report, "failures", 0).get<int>("exit_code") == 7);
  CHECK(ElementOf(report, "failures", 0).get<int>("restart_count") == 0);
}

// As `scancel` does it where Slurm signals every process of a step: the test is an ancestor.
TEST_CASE(
    "report file: workers that die of a signal to all processes were stopped, none has failed") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--report-file=" + job.File("report.json"),
                         "--event-file=" + job.File("events"), "--event-log-handler=console"},
                        {"touch:" + job.File("up{rank}"), "wait"});
  for (const char* up : {"up0", "up1"}) REQUIRE_MESSAGE(job.WaitForFile(up), ddprun->Describe());
  std::vector<int> others = job.Processes();
  std::erase(others, ddprun->pid());
  ddprun->Signal(SIGTERM);
  REQUIRE_MESSAGE(ddprun->WaitForErr("SIGTERM: stopping ranks 0-1"), ddprun->Describe());
  for (const int pid : others) kill(pid, SIGTERM);
  REQUIRE_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());

  const Json report = ReadReport(job);
  CHECK(report.get<std::string>("outcome") == "stopped");
  CHECK(report.get_child("failures").empty());
  for (const size_t rank : {0, 1}) {
    const Json& worker = ElementOf(ElementOf(report, "rounds", 0), "workers", rank);
    CHECK(worker.get<int>("signal") == SIGTERM);
    CHECK(worker.get<bool>("was_stopped"));
  }
  const std::string events = ReadFile(job.File("events"));
  CHECK_MESSAGE(events == Contains("\"failed\":0,\"stopped\":2"), events);
  // What torchrun's console handler says of each worker.
  CHECK(CountOf(ddprun->err(), "worker.status.TERMINATED") == 2);
}

TEST_CASE("report file: both nodes tell of the first failure with all that its worker said") {
  Job job;
  const std::vector<std::string> steps = {
      R"(error-file:{"message": "no data left", "timestamp": 1738324800}@3)",
      "err:last \xff words@3", "die:9@3", "wait"};
  auto a = job.Run(job.NodeOptions(2, "2", {"--report-file=" + job.File("a")}), steps);
  auto b = job.Run(job.NodeOptions(2, "2", {"--report-file=" + job.File("b")}), steps);
  REQUIRE_MESSAGE(a->Wait() == 137, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 137, b->Describe());
  for (const char* name : {"a", "b"}) {
    const Json report = ReadReport(job, name);
    CHECK(report.get<std::string>("outcome") == "failed");
    CHECK(report.get<std::string>("exit_code_of") == "worker");
    const Json& failure = report.get_child("first_failure");
    CHECK(failure.get<int>("rank") == 3);
    CHECK(failure.get<int>("local_rank") == 1);
    CHECK(failure.get<int>("signal") == 9);
    CHECK(failure.get<int>("exit_code") == 137);
    CHECK(failure.get<std::string>("error.message") == "no data left");
    CHECK(failure.get<std::string>("error.time") == "2025-01-31T12:00:00Z");
    CHECK(ElementOf(failure, "last_lines", 0).data() == "last \xef\xbf\xbd words");
    REQUIRE(report.get_child("failures").size() == 1);
    CHECK(ElementOf(report, "failures", 0).get<int>("rank") == 3);
  }
}

TEST_CASE("report file: a job stopped by a signal has one") {
  Job job;
  auto ddprun = job.Run({"--report-file=" + job.File("report.json")}, {"print:up", "wait"});
  REQUIRE_MESSAGE(ddprun->WaitForOut("up"), ddprun->Describe());
  ddprun->Signal(SIGTERM);
  REQUIRE_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
  const Json report = ReadReport(job);
  CHECK(report.get<std::string>("outcome") == "stopped");
  CHECK(report.get<std::string>("exit_code_of") == "ddprun");
  CHECK(report.get<int>("stopped_by_signal") == 15);
  CHECK(report.get<int>("exit_code") == 143);
}

TEST_CASE("report file: an end without a round has one") {
  Job job;
  auto ddprun =
      job.RunRaw({"--nnodes=2", "--rdzv-endpoint=" + job.endpoint(), "--rdzv-conf=join_timeout=10",
                  "--report-file=" + job.File("r"), "true"});
  REQUIRE_MESSAGE(ddprun->Wait() == 121, ddprun->Describe());
  const Json report = ReadReport(job, "r");
  CHECK(report.get<std::string>("outcome") == "error");
  CHECK(report.get<std::string>("reason") == Contains("1 of 2 nodes"));
  CHECK(report.get_child("rounds").empty());
}

TEST_CASE("report file: failures that nobody had room to describe are counted") {
  Job job;
  constexpr int kWorkers = 40;
  std::vector<std::string> steps = {R"(error-file:{"message": "boom"})",
                                    "touch:" + job.File("up{rank}")};
  for (int rank = 1; rank < kWorkers; ++rank) {
    steps.push_back("until:" + job.File("up" + std::to_string(rank)) + "@0");
  }
  steps.insert(steps.end(), {"exit:3@0", "wait"});
  auto ddprun = job.Run(
      {"--nproc-per-node=" + std::to_string(kWorkers), "--report-file=" + job.File("report.json")},
      steps);
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  const Json report = ReadReport(job);
  const size_t told = report.get_child("failures").size();
  CHECK(told + report.get<size_t>("failures_left_out") == kWorkers);
  CHECK(told < kWorkers);
  CHECK(ElementOf(report, "failures", 0).get<int>("rank") == 0);
}

TEST_CASE("report file: a path that cannot be written is refused before the job starts") {
  Job job;
  REQUIRE(mkfifo(job.File("fifo").c_str(), 0600) == 0);
  REQUIRE(symlink("no/such/file", job.File("dangling").c_str()) == 0);
  for (const std::string option : {"--report-file", "--event-file"}) {
    for (const std::string name : {"no/such", "", "fifo", "dangling"}) {
      const std::string path = job.File(name);
      auto ddprun = job.Run({option, path}, {"touch:" + job.File("started")});
      REQUIRE_MESSAGE(ddprun->Wait() == 120, ddprun->Describe());
      CHECK_MESSAGE(ddprun->err().find("ddprun: error: " + option + ": ") == 0, ddprun->Describe());
      CHECK(ddprun->err() == Contains(path));
      CHECK_FALSE(job.HasFile("started"));
    }
  }
}

TEST_CASE("report file: /dev/stderr does not empty the log behind it") {
  for (const std::string option : {"--report-file", "--event-file"}) {
    Job job;
    const std::string log = job.File("log");
    const std::string command = "echo before > '" + log + "'; exec '" + Runfile("ddprun") + "' " +
                                option + "=/dev/stderr '" + Runfile("tests/e2e/toy_worker") +
                                "' err:said exit:3 2>> '" + log + "'";
    auto ddprun = job.RunProgram({"/bin/sh", "-c", command});
    REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
    const std::string text = ReadFile(log);
    CHECK_MESSAGE(text.find("before\n") == 0, text);
    CHECK(text == Contains("said\n"));
    const char* part = option == "--report-file" ? "\"outcome\": \"failed\"" : "job_start";
    CHECK(text == Contains(part));
    CHECK(text == Contains("exit code 3: that of rank 0"));
  }
}

// The events on stderr, in their order.
std::vector<Json> Events(const Subprocess& process) {
  std::vector<Json> events;
  std::istringstream lines(process.err());
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("{\"name\"", 0) != 0) continue;
    const auto json = ParseJson(line);
    REQUIRE_MESSAGE(json, line);
    events.push_back(*json);
  }
  return events;
}

TEST_CASE("event log: console tells each worker's start and end in torchrun's format") {
  Job job;
  auto ddprun = job.Run(
      {"--nproc-per-node=3", "--event-log-handler=console", "--rdzv-id=run7", "--role=trainer"},
      {R"(error-file:{"message": "boom"}@1)", "touch:" + job.File("up{rank}"),
       "until:" + job.File("up0"), "until:" + job.File("up2"), "exit:3@1", "wait"});
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  std::string seen;
  for (const Json& event : Events(*ddprun)) {
    const Json& facts = event.get_child("metadata");
    const std::string told = event.get<std::string>("source") + " " +
                             facts.get<std::string>("state") + " " +
                             facts.get<std::string>("global_rank");
    seen += (seen.empty() ? "" : ", ") + told;
    CHECK(event.get<std::string>("name") ==
          "torchelastic.worker.status." + facts.get<std::string>("state"));
    CHECK(facts.get<std::string>("run_id") == "run7");
    CHECK(facts.get<std::string>("role") == "trainer");
    CHECK(facts.get<std::string>("rdzv_backend") == "c10d");
    const auto details = ParseJson(facts.get<std::string>("metadata"));
    REQUIRE(details);
    CHECK(details->get<int>("group_world_size") == 1);
    if (told == "WORKER FAILED 1") {
      CHECK(ElementOf(*details, "exit_code", 0).data() == "3");
      CHECK(facts.get<std::string>("raw_error") == Contains("\"boom\""));
    }
  }
  CHECK(seen ==
        "AGENT RENDEZVOUS null, AGENT ASSIGN_WORKER_RANKS null, "
        "WORKER START 0, WORKER START 1, WORKER START 2, "
        "WORKER TERMINATED 0, WORKER FAILED 1, WORKER TERMINATED 2, AGENT SUCCEEDED null");
}

TEST_CASE("event log: a success ends with SUCCEEDED of the worker and of the agent") {
  Job job;
  auto ddprun = job.Run({"--event-log-handler=console"}, {});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  const std::vector<Json> events = Events(*ddprun);
  REQUIRE(events.size() == 5);
  CHECK(events[3].get<std::string>("metadata.state") == "SUCCEEDED");
  CHECK(events[3].get<std::string>("source") == "WORKER");
  CHECK(events[4].get<std::string>("source") == "AGENT");
}

TEST_CASE("report file: a worker that could not become its program has its code and FAILED") {
  Job job;
  // Only the kernel looks at the interpreter's own interpreter.
  std::ofstream(job.File("inner")) << "#!/no/such/interpreter\n";
  std::ofstream(job.File("outer")) << "#!" << job.File("inner") << "\n";
  for (const char* name : {"inner", "outer"}) REQUIRE(chmod(job.File(name).c_str(), 0700) == 0);
  auto ddprun = job.RunRaw({"--no-python", "--event-log-handler=console",
                            "--report-file=" + job.File("report.json"), job.File("outer")});
  REQUIRE_MESSAGE(ddprun->Wait() == 126, ddprun->Describe());
  const Json report = ReadReport(job);
  const Json& round = ElementOf(report, "rounds", 0);
  CHECK(ElementOf(round, "workers", 0).get<int>("exit_code") == 126);
  REQUIRE(report.get_child("failures").size() == 1);
  CHECK(ElementOf(report, "failures", 0).get<std::string>("pid") == "null");
  std::string states;
  for (const Json& event : Events(*ddprun)) {
    states += event.get_child("metadata").get<std::string>("state") + " ";
  }
  CHECK(states == "RENDEZVOUS ASSIGN_WORKER_RANKS START FAILED SUCCEEDED ");
}

TEST_CASE("event log: by default there are no events") {
  Job job;
  auto quiet = job.Run({"--event-log-handler", "null"}, {});
  REQUIRE_MESSAGE(quiet->Wait() == 0, quiet->Describe());
  CHECK(quiet->err().empty());
}

}  // namespace
}  // namespace ddprun::testing
