// Who looks at a real job: a browser at its page, Prometheus at its metrics, whoever reads its
// events.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/asking.h"
#include "tests/launcher/metrics/prometheus.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

// The address behind `what` on stderr: "dashboard: http://...".
std::string AddressOf(const Subprocess& ddprun, const std::string& what) {
  const std::string err = ddprun.err(), begin = what + ": ";
  const size_t at = err.find(begin);
  REQUIRE_MESSAGE(at != std::string::npos, ddprun.Describe());
  const size_t from = at + begin.size();
  return err.substr(from, err.find_first_of(" \n", from) - from);
}

// The body that curl gets, with the status behind it.
std::string Get(const std::string& url, const Strings& more = {}) {
  Strings words = {"/usr/bin/env", "curl", "-s", "-m", "10", "-w", "\n%{http_code}", url};
  words.insert(words.end(), more.begin(), more.end());
  Subprocess curl(words);
  CHECK_MESSAGE(curl.Wait() == 0, curl.Describe());
  return curl.out();
}

bool HasCurl() {
  Subprocess curl({"/usr/bin/env", "curl", "--version"});
  return curl.Wait() == 0;
}

TEST_CASE("watchers: a browser shows the page of a real job") {
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=3", "--dashboard"}, {"steps:" + job.File("go")});
  REQUIRE_MESSAGE(ddprun->WaitForErr("dashboard: http://127.0.0.1:"), ddprun->Describe());
  StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 3); });
  const std::string url = AddressOf(*ddprun, "dashboard");
  Subprocess page(
      {"/usr/bin/env", "python3", Runfile("tests/dashboard/page_test.py"), "--url", url});
  CHECK_MESSAGE(page.Wait(std::chrono::minutes(2)) == 0, page.Describe());
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  if (page.out().starts_with("SKIPPED: ")) SkipTest(page.out().substr(9));
}

TEST_CASE("watchers: the page's address without its key shows no log lines, and no other host's") {
  if (!HasCurl()) return SkipTest("there is no curl");
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(job, folder, {"--nproc-per-node=1", "--dashboard"},
                                   {"err:a secret line", "steps:" + job.File("go")});
  REQUIRE_MESSAGE(ddprun->WaitForErr("a secret line"), ddprun->Describe());
  const std::string url = AddressOf(*ddprun, "dashboard");
  const std::string open = url.substr(0, url.find('/', 7) + 1);
  CHECK(Get(url + "logs?rank=0") == Contains("a secret line"));
  CHECK(Get(url + "status.json") == Contains("a secret line"));
  CHECK(Get(open + "logs?rank=0") == Contains("\n403"));
  const std::string shown = Get(open + "status.json");
  CHECK(shown == Contains("\"run_id\""));
  CHECK(shown != Contains("a secret line"));
  CHECK(shown != Contains("reporting_worker"));
  CHECK(Get(open, {"-H", "Host: evil.example"}) == Contains("\n421"));
  CHECK(Get(open + "status.json", {"-H", "Origin: http://evil.example"}) == Contains("\n403"));
  CHECK(Get(open + "stop", {"-X", "POST"}) == Contains("\n405"));
  CHECK(Get(url + "stop", {"-X", "POST"}) == Contains("\n405"));
  CHECK(Get(open + "..%2f..%2fetc%2fpasswd") == Contains("\n404"));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

// What curl is answered, of one door: ends with the code.
std::string CodeOf(const Strings& door, const std::string& path, const std::string& method) {
  Strings more = {"-o", "/dev/null"};
  more.insert(more.end(), door.begin() + 1, door.end());
  const Strings how = method == "HEAD"  ? Strings{"-I"}
                      : method == "GET" ? Strings{}
                                        : Strings{"-X", method};
  more.insert(more.end(), how.begin(), how.end());
  const std::string said = Get(door[0] + path, more);
  return said.substr(said.rfind('\n') + 1);
}

TEST_CASE(
    "watchers: each door gives each path to each method as docs/internals/security-model.md says") {
  if (!HasCurl()) return SkipTest("there is no curl");
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(job, folder, {"--nproc-per-node=1", "--dashboard", "--metrics"},
                                   {"steps:" + job.File("go")});
  StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 1); });
  const std::string page = AddressOf(*ddprun, "dashboard");
  const std::string metrics = AddressOf(*ddprun, "metrics");
  const std::string dump = "dump?dir=" + job.File("");
  // The control socket, the page with its key and without, and the metrics.
  const Strings doors[] = {{"http://ddprun/", "--unix-socket", folder.Socket()},
                           {page},
                           {page.substr(0, page.find('/', 7) + 1)},
                           {metrics.substr(0, metrics.find('/', 7) + 1)}};
  struct Row {
    std::string path;
    const char* get[4];  // and HEAD
    const char* post;    // at the socket; at a port only reading is served
  };
  const Row rows[] = {{"", {"404", "200", "200", "404"}, "404"},
                      {"status.json", {"200", "200", "200", "404"}, "404"},
                      {"events", {"404", "200", "200", "404"}, "404"},
                      {"logs?rank=0", {"200", "200", "403", "404"}, "404"},
                      {"metrics", {"200", "404", "200", "200"}, "404"},
                      {"nothing", {"404", "404", "404", "404"}, "404"},
                      {dump, {"404", "404", "404", "404"}, "200"},
                      {"stop", {"404", "404", "404", "404"}, "200"}};
  for (const Row& row : rows) {
    for (size_t door = 0; door < 4; ++door) {
      CAPTURE(row.path);
      CAPTURE(doors[door][0]);
      CHECK(CodeOf(doors[door], row.path, "HEAD") == row.get[door]);
      // One who follows events is answered without end.
      if (row.path != "events") CHECK(CodeOf(doors[door], row.path, "GET") == row.get[door]);
      for (const char* method : {"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"}) {
        CHECK(CodeOf(doors[door], row.path, method) == (door == 0 ? "404" : "405"));
      }
      if (door > 0) CHECK(CodeOf(doors[door], row.path, "POST") == "405");
    }
    CHECK(CodeOf(doors[0], row.path, "POST") == row.post);
  }
  CHECK_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
}

TEST_CASE("watchers: a real Prometheus scrapes a real job") {
  if (const std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=2", "--metrics"}, {"steps:" + job.File("go")});
  REQUIRE_MESSAGE(ddprun->WaitForErr("metrics: http://127.0.0.1:"), ddprun->Describe());
  const Prometheus server(AddressOf(*ddprun, "metrics"));
  CHECK_MESSAGE(server.WaitFor("ddprun_job_step > 0"), server.Describe());
  CHECK_MESSAGE(server.WaitFor("ddprun_job_healthy == 1"), server.Describe());
  CHECK_MESSAGE(server.WaitFor("count(ddprun_rank_step) == 2"), server.Describe());
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("watchers: a port that is taken is a warning, and the job runs") {
  Job job;
  const ControlFolder first_folder, folder;
  const auto first = RunReporting(job, first_folder, {"--nproc-per-node=1", "--metrics"},
                                  {"steps:" + job.File("go")});
  REQUIRE_MESSAGE(first->WaitForErr("metrics: http://127.0.0.1:"), first->Describe());
  const std::string url = AddressOf(*first, "metrics");
  const std::string port = url.substr(url.rfind(':') + 1, url.find('/', 7) - url.rfind(':') - 1);
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=1", "--metrics=" + port}, {"step:1"});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("warning: --metrics: nobody is served: "));
  job.Touch("go");
  CHECK_MESSAGE(first->Wait() == 0, first->Describe());
}

// The events of the file, a document each.
std::vector<json> EventsOf(const std::string& path) {
  std::vector<json> events;
  const std::string text = ReadFile(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    events.push_back(json::parse(text.substr(at, end - at), nullptr, false));
    REQUIRE(events.back().is_object());
    at = end + 1;
  }
  return events;
}

TEST_CASE("watchers: the event file tells a failure, a restart and the end") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(
      job, folder, {"--nproc-per-node=2", "--max-restarts=1", "--event-file=" + job.File("events")},
      {"step:1", "exit:3@1"});
  CHECK_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  Strings names;
  for (const json& event : EventsOf(job.File("events"))) names.push_back(event["event"]);
  const std::vector<json> events = EventsOf(job.File("events"));
  CHECK(names.front() == "job_start");
  CHECK(names.back() == "job_end");
  CHECK(std::count(names.begin(), names.end(), "round_start") == 2);
  CHECK(std::count(names.begin(), names.end(), "failure") == 2);
  CHECK(std::count(names.begin(), names.end(), "restart") == 1);
  CHECK(events.back()["exit_code"] == 3);
}

// A rank that starts later than the other one, or stands still for a moment, does not hang yet.
constexpr char kHangTimeout[] = "--hang-timeout=10";

// Rank 1 stays away from operation 2 until `come`.
Strings LateRank(const Job& job) {
  return {"open:dp",
          "call:1",
          "done:1",
          "step:1",
          "until:" + job.File("come") + "@1",
          "call:2",
          "until:" + job.File("come"),
          "done:2"};
}

TEST_CASE("watchers: --on_hang=restart ends with 124 when no restart is left") {
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder,
                   {"--nproc-per-node=2", kHangTimeout, "--on-hang=restart", "--max-restarts=1",
                    "--event-file=" + job.File("events"), "--report-file=" + job.File("report")},
                   LateRank(job));
  CHECK_MESSAGE(ddprun->Wait() == 124, ddprun->Describe());
  CHECK(ddprun->err() ==
        Contains("exit code 124: ddprun's own, hang: rank 1 has not come to all-reduce #2 "));
  CHECK(ddprun->err() == Contains("restart 1 of 1"));
  const std::vector<json> events = EventsOf(job.File("events"));
  CHECK(events.back()["exit_code_of"] == "ddprun");
  const auto failure = std::find_if(events.begin(), events.end(),
                                    [](const json& event) { return event["event"] == "failure"; });
  REQUIRE(failure != events.end());
  CHECK((*failure)["rank"] == 1);
  CHECK((*failure)["exit_code"].is_null());
  const json report = json::parse(ReadFile(job.File("report")));
  CHECK(report["exit_code_of"] == "ddprun");
  CHECK(report["first_failure"]["exit_code"].is_null());
  CHECK(ddprun->err() == Contains("(local_rank: 1)"));
  CHECK(ddprun->err() != Contains("(pid: not started)"));
}

TEST_CASE("watchers: a dump has the stacks of all ranks, by hand and by --on_hang=dump") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(
      job, folder,
      {"--nproc-per-node=2", kHangTimeout, "--on-hang=dump", "--log-dir=" + job.File("logs")},
      LateRank(job));
  REQUIRE_MESSAGE(ddprun->WaitForErr("stacks are in "), ddprun->Describe());
  const Told told = Ask(job, folder, {"dump", "--dir", job.File("")});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  const size_t at = told.out.find("stacks are in ");
  REQUIRE_MESSAGE(at != std::string::npos, told.Describe());
  const std::string path = told.out.substr(at + 14, told.out.find('\n', at) - at - 14);
  CHECK(!ReadFile(path + "/roll_call.txt").empty());
  for (const char* rank : {"/rank-0", "/rank-1"}) {
    CHECK(!ReadFile(path + rank + "/stack.txt").empty());
    CHECK(ReadFile(path + rank + "/environment.txt") == Contains("WORLD_SIZE"));
  }
  const Told one = Ask(job, folder, {"dump", "--ranks", "1-1", "--dir", job.File("a/b")});
  CHECK_MESSAGE(one.code == 0, one.Describe());
  CHECK(one.out == Contains("stacks are in " + job.File("a/b/")));
  // A folder that is there, and takes none: another is named, and why.
  const Told elsewhere = Ask(job, folder, {"dump", "--dir", "/proc"});
  CHECK_MESSAGE(elsewhere.code == 0, elsewhere.Describe());
  CHECK(elsewhere.out != Contains("stacks are in /proc/"));
  CHECK(elsewhere.out == Contains(" (mkdir \"/proc/ddprun-dump-"));
  const Told none = Ask(job, folder, {"dump", "--dir", "/proc/no/such"});
  CHECK_MESSAGE(none.code == 2, none.Describe());
  job.Touch("come");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("watchers: a dump counts the ranks that have ended") {
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=3"}, {"exit:0@1", "until:" + job.File("go")});
  StatusUntil(job, folder, [](const json& now) {
    const std::vector<json> ranks = RanksOf(now);
    return ranks.size() == 3 && ranks[1]["state"] == "ended";
  });
  const Told told = Ask(job, folder, {"dump", "--dir", job.File("")});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK(told.out == Contains("rank 1 has ended"));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

}  // namespace
}  // namespace ddprun::testing
