// Hangs in a collective and steps that do not end: told once on stderr, and by `ddprun status`.
#include <doctest/doctest.h>

#include <csignal>

#include "tests/e2e/asking.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

// The number in front of " s" at the end of what the job waits for; -1: none.
int WaitingSeconds(const json& job) {
  const std::string line = job["waiting_line"].get<std::string>();
  if (!line.ends_with(" s")) return -1;
  return std::stoi("0" + line.substr(line.rfind(' ', line.size() - 3) + 1));
}

// Ranks that start one after the other, or stand still for a moment, do not hang yet.
constexpr char kHangTimeout[] = "--hang-timeout=10";

// Rank 1 comes to operation 2 of the group when it is let, and the others wait in it.
Strings LateRank(const Job& job, const Strings& late) {
  Strings steps = {"open:dp", "call:1", "done:1", "step:1"};
  for (const std::string& step : late) steps.push_back(step + "@1");
  const Strings rest = {"until:" + job.File("come") + "@1", "call:2", "until:" + job.File("come"),
                        "done:2", "steps:" + job.File("go")};
  steps.insert(steps.end(), rest.begin(), rest.end());
  return steps;
}

TEST_CASE("hang: the rank that does not come is named once, status says 1, and it heals") {
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=3", kHangTimeout}, LateRank(job, {}));
  const json seen =
      StatusUntil(job, folder, [](const json& now) { return ProblemsOf(now) == Strings{"hang"}; });
  CHECK(seen["is_healthy"] == false);
  const json hang = seen["problems"][0];
  CHECK(hang["ranks"] == json::array({1}));
  constexpr char kText[] = "rank 1 has not come to all-reduce #2 for ";
  CHECK(hang["text"].get<std::string>() == Contains(kText));
  CHECK(hang["text"].get<std::string>() == Contains("ranks 0, 2 wait for it"));
  const Told told = Ask(job, folder, {"status"});
  CHECK_MESSAGE(told.code == 1, told.Describe());
  CHECK(told.out == Contains(kText));
  CHECK(told.err.empty());
  REQUIRE_MESSAGE(ddprun->WaitForErr(kText), ddprun->Describe());

  job.Touch("come");
  REQUIRE_MESSAGE(ddprun->WaitForErr("the hang in all-reduce #2 is over after "),
                  ddprun->Describe());
  AskUntil(job, folder, {"status"}, [](const Told& again) { return again.code == 0; });
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), kText) == 1, ddprun->Describe());
}

TEST_CASE("hang: a rank that evaluates or writes a checkpoint is waited for, and named") {
  const std::pair<const char*, const char*> rows[] = {{"3", "evaluates"},
                                                      {"4", "writes a checkpoint"}};
  Job jobs[2];
  const ControlFolder folders[2];
  std::unique_ptr<Subprocess> ddpruns[2];
  // Side by side, as both only wait.
  for (size_t i = 0; i < 2; ++i) {
    ddpruns[i] = RunReporting(jobs[i], folders[i], {"--nproc-per-node=3", kHangTimeout},
                              LateRank(jobs[i], {std::string("phase:") + rows[i].first}));
  }
  for (size_t i = 0; i < 2; ++i) {
    Job& job = jobs[i];
    Subprocess& ddprun = *ddpruns[i];
    const json seen =
        StatusUntil(job, folders[i], [](const json& now) { return WaitingSeconds(now) >= 14; });
    CHECK(seen["is_healthy"] == true);
    CHECK(seen["waiting_line"].get<std::string>() ==
          Contains(std::string("waiting for rank 1, which ") + rows[i].second + ", for "));
    const Told told = Ask(job, folders[i], {"status"});
    CHECK_MESSAGE(told.code == 0, told.Describe());
    for (const char* name : {"come", "go"}) job.Touch(name);
    CHECK_MESSAGE(ddprun.Wait() == 0, ddprun.Describe());
    CHECK(ddprun.err() != Contains("not come"));
    CHECK(ddprun.err() != Contains("no step"));
  }
}

// All of three ranks come to operation 2 of the group, which does not end before `go`.
std::unique_ptr<Subprocess> RunRestarting(Job& job, const ControlFolder& folder) {
  return RunReporting(
      job, folder, {"--nproc-per-node=3", kHangTimeout, "--on-hang=restart", "--max-restarts=1"},
      {"open:dp", "call:1", "done:1", "step:1", "call:2", "until:" + job.File("go"), "done:2"});
}

TEST_CASE("hang: a rank that is stopped within a collective is named, and restarted on request") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunRestarting(job, folder);
  StatusUntil(job, folder, [](const json& now) {
    for (const json& rank : RanksOf(now)) {
      if (rank["groups"].empty() || rank["groups"][0]["called"] != 2) return false;
    }
    return RanksOf(now).size() == 3;
  });
  REQUIRE(kill(job.PidOfRank(1), SIGSTOP) == 0);
  REQUIRE_MESSAGE(ddprun->WaitForErr(" and it does not end; rank 1 is stopped"),
                  ddprun->Describe());
  StatusUntil(job, folder, [](const json& now) { return now["restart_count"] == 1; });
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("hang: a collective that ends for nobody is restarted on request") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunRestarting(job, folder);
  REQUIRE_MESSAGE(ddprun->WaitForErr("all ranks are in all-reduce #2 for "), ddprun->Describe());
  StatusUntil(job, folder, [](const json& now) { return now["restart_count"] == 1; });
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("hang: with --hang_timeout=0 nothing is said, and what is waited for is shown") {
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=3", "--hang-timeout=0"}, LateRank(job, {}));
  const json seen =
      StatusUntil(job, folder, [](const json& now) { return WaitingSeconds(now) >= 4; });
  CHECK(seen["is_healthy"] == true);
  CHECK(seen["waiting_line"].get<std::string>() ==
        Contains("waiting in all-reduce #2 for rank 1 for "));
  for (const char* name : {"come", "go"}) job.Touch(name);
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() != Contains("hang"));
  CHECK(ddprun->err() != Contains("no step"));
}

TEST_CASE("hang: steps that do not end are told of once, and that they go on") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(
      job, folder,
      {"--nproc-per-node=2", kHangTimeout, "--on-hang=dump", "--log-dir=" + job.File("logs")},
      {"step:41", "step:42", "until:" + job.File("come"), "steps:" + job.File("go")});
  const json seen = StatusUntil(
      job, folder, [](const json& now) { return ProblemsOf(now) == Strings{"no_progress"}; });
  constexpr char kText[] = "no step has ended for ";
  CHECK(seen["problems"][0]["text"].get<std::string>() == Contains(kText));
  CHECK(seen["problems"][0]["text"].get<std::string>() == Contains(", the last was 42"));
  const Told told = Ask(job, folder, {"status"});
  CHECK_MESSAGE(told.code == 1, told.Describe());
  REQUIRE_MESSAGE(ddprun->WaitForErr("stacks are in "), ddprun->Describe());
  job.Touch("come");
  REQUIRE_MESSAGE(ddprun->WaitForErr("the job goes on: no step had ended for "),
                  ddprun->Describe());
  AskUntil(job, folder, {"status"}, [](const Told& again) { return again.code == 0; });
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), kText) == 1, ddprun->Describe());
}

TEST_CASE("hang: one of two nodes is told of by both nodes' status, once each") {
  Job job;
  const ControlFolder folders[2];
  const Strings options = job.NodeOptions(2, "2", {kHangTimeout});
  const Strings steps = LateRank(job, {});
  const auto a = RunReporting(job, folders[0], options, steps);
  const auto b = RunReporting(job, folders[1], options, steps);
  for (const ControlFolder& folder : folders) {
    StatusUntil(job, folder, [](const json& now) { return !ProblemsOf(now).empty(); });
  }
  // A second look of each judges for itself.
  for (int look = 0; look < 2; ++look) {
    for (const ControlFolder& folder : folders) {
      const json seen = StatusUntil(job, folder, [&](const json& now) {
        return !now["problems"].empty() && now["problems"][0]["since_s"] > 12 + 2 * look;
      });
      REQUIRE_MESSAGE(ProblemsOf(seen) == Strings{"hang"}, seen["problems"].dump(2));
      CHECK(seen["problems"][0]["ranks"] == json::array({1}));
    }
  }
  const Told outside = Ask(job, folders[0], {"status", "--coordinator=" + job.endpoint()});
  CHECK_MESSAGE(outside.code == 1, outside.Describe());
  CHECK(outside.out == Contains("rank 1 "));
  CHECK(outside.out == Contains("has not come to all-reduce #2 for "));
  for (const char* name : {"come", "go"}) job.Touch(name);
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
  CHECK_MESSAGE(CountOf(a->err() + b->err(), "has not come to ") == 1, a->Describe(),
                b->Describe());
}

}  // namespace
}  // namespace ddprun::testing
