// `ddprun status` and `ddprun list` of jobs on one node.
#include <signal.h>
#include <unistd.h>

#include <set>

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/e2e/asking.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

constexpr char kPython[] = "/usr/bin/python3";

TEST_CASE("status: it shows the ranks of a job on one node, and how its steps go on") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(job, folder, {"--nproc-per-node=4", "--rdzv-id=digits"},
                                   {"err:hello of {rank}", "steps:" + job.File("go")});
  const json before =
      StatusUntil(job, folder, [](const json& seen) { return HaveStepped(seen, 4); });
  CHECK(before["version"] == 1);
  CHECK(before["run_id"] == "digits");
  CHECK(before["state"] == "running");
  CHECK(before["is_healthy"] == true);
  CHECK(before["problems"].empty());
  CHECK(before["world_size"] == 4);
  CHECK(before["round"] == 1);
  std::set<int> pids;
  for (int rank = 0; rank < 4; ++rank) {
    const json seen = RanksOf(before)[static_cast<size_t>(rank)];
    CHECK(seen["rank"] == rank);
    CHECK(seen["phase"] == "train");
    CHECK(seen["pid"] == job.PidOfRank(rank));
    CHECK(seen["last_line"] == "hello of " + std::to_string(rank));
    CHECK(seen["last_line_age_s"].is_number());
    pids.insert(seen["pid"].get<int>());
  }
  CHECK(pids.size() == 4);

  StatusUntil(job, folder, [&](const json& now) {
    bool are_ahead = HaveStepped(now, 4) && !now["samples_per_s"].is_null();
    for (size_t i = 0; i < 4 && are_ahead; ++i) {
      are_ahead = RanksOf(now)[i]["step"] > RanksOf(before)[i]["step"];
    }
    return are_ahead;
  });
  const Told text = Ask(job, folder, {"status", "digits"});
  CHECK_MESSAGE(text.code == 0, text.Describe());
  CHECK(text.err.empty());
  CHECK(text.out == Contains("running: round 1, 1 node, 4 ranks, step "));
  CHECK(text.out == Contains("samples/s"));
  for (const char* line : {"hello of 0", "hello of 3"}) CHECK(text.out == Contains(line));

  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() != Contains("warning"));
  CHECK(folder.Sockets().empty());
}

TEST_CASE("status: a rank's last line is the one that a progress bar has written last") {
  Job job;
  const ControlFolder folder;
  const std::string bars = WriteFile(job.File("bars"), "begin\n\r 10 %\r 20 %\x1b[K\r\n");
  const auto ddprun = RunReporting(job, folder, {"--nproc-per-node=1"},
                                   {"err-file:" + bars, "until:" + job.File("go")});
  StatusUntil(job, folder, [](const json& now) {
    const std::vector<json> ranks = RanksOf(now);
    return ranks.size() == 1 && ranks[0]["last_line"] == " 20 %\\x1b[K";
  });
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("status: --json shows what a group of ranks waits for") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(job, folder, {"--nproc-per-node=1"},
                                   {"open:dp", "step:1", "call:1", "until:" + job.File("go")});
  const json seen = StatusUntil(job, folder, [](const json& now) {
    return HaveStepped(now, 1) && !RanksOf(now)[0]["groups"].empty();
  });
  const json rank = RanksOf(seen)[0];
  const json group = rank["groups"][0];
  CHECK(group["name"] == "dp");
  CHECK(group["op"] == "all-reduce");
  CHECK(group["called"] == 1);
  CHECK(group["done"] == 0);
  CHECK(group["size"] == 1);
  CHECK(rank["memory"] > 0);
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("status: a program that reports nothing is well, and said to report nothing") {
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=2"}, {"until:" + job.File("go")});
  const Told told = AskUntil(job, folder, {"status"}, Shows("(the program reports no steps)"));
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK(told.out == Contains("running: round 1, 1 node, 2 ranks, up "));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("status: steps that a program in Python reports are shown") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  Job job;
  const ControlFolder folder;
  const std::string script = WriteFile(job.File("train.py"),
                                       "import os, sys, time\n"
                                       "import ddprun\n"
                                       "step = 0\n"
                                       "while not os.path.exists(sys.argv[1]):\n"
                                       "    step += 1\n"
                                       "    ddprun.report_step(step, samples=4)\n"
                                       "    time.sleep(0.003)\n");
  const std::string package = Runfile("python/ddprun/__init__.py");
  const std::string path = package.substr(0, package.size() - 18);
  const auto ddprun =
      job.RunRaw({"--nproc-per-node=2", script, job.File("go")},
                 folder.Here({.env = {{"PYTHON_EXEC", kPython}, {"PYTHONPATH", path}}}));
  const json seen = StatusUntil(job, folder, [](const json& now) {
    return HaveStepped(now, 2) && !now["samples_per_s"].is_null();
  });
  CHECK(RanksOf(seen)[1]["phase"] == "train");
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

// `list --json` of two jobs that run.
Told ListWhenBothRun(Job& job, const ControlFolder& folder) {
  return AskUntil(job, folder, {"list", "--json"}, [](const Told& told) {
    const json all = told.json();
    return all.is_array() && all.size() == 2 && all[0]["state"] == "running" &&
           all[1]["state"] == "running";
  });
}

TEST_CASE("status: of several jobs the one that is named is shown, and without a name all are") {
  Job job;
  const ControlFolder folder;
  const Strings steps = {"step:{rank}7", "until:" + job.File("go")};
  const auto a = RunReporting(job, folder, {"--rdzv-id=llama-7b", "--nproc-per-node=1"}, steps);
  const auto b = RunReporting(job, folder, {"--rdzv-id=llama-70b", "--nproc-per-node=2"}, steps);
  const Told list = ListWhenBothRun(job, folder);
  CHECK(list.code == 0);
  for (const json& each : list.json()) {
    CHECK(each["program"].get<std::string>() == Contains("reporting_worker"));
  }
  const Told lines = Ask(job, folder, {"list"});
  CHECK(lines.code == 0);
  CHECK(lines.out == Contains("llama-7b: running: "));
  CHECK(lines.out == Contains("llama-70b: running: "));

  for (const Strings& command : {Strings{"status"}, Strings{"stop"}, Strings{"logs", "--rank=0"}}) {
    const Told which = Ask(job, folder, command);
    CHECK_MESSAGE(which.code == 2, which.Describe());
    CHECK(which.out.empty());
    for (const char* part : {"2 jobs run here; which one?", "llama-7b: ", "llama-70b: "}) {
      CHECK(which.err == Contains(part));
    }
  }
  const Told one = Ask(job, folder, {"status", "llama-70b", "--json"});
  CHECK(one.code == 0);
  CHECK(one.json()["world_size"] == 2);
  const Told other = Ask(job, folder, {"status", "llama-7b"});
  CHECK(other.code == 0);
  CHECK(other.out == Contains("1 rank, step 7"));

  const Told unknown = Ask(job, folder, {"status", "lama-7b"});
  CHECK_MESSAGE(unknown.code == 2, unknown.Describe());
  const std::string where = " on this machine (DDPRUN_CONTROL_DIR is " + folder.path() + ")";
  CHECK(unknown.err == Contains("no job 'lama-7b' runs" + where + "; did you mean llama-7b?"));
  const Told stop = Ask(job, folder, {"stop", "lama-7b"});
  CHECK_MESSAGE(stop.code == 2, stop.Describe());

  // The one that is meant may be the one that does not answer.
  a->Signal(SIGSTOP);
  for (const Strings& command : {Strings{"stop"}, Strings{"list"}}) {
    const Told told = Ask(job, folder, command);
    CHECK_MESSAGE(told.code == 2, told.Describe());
    CHECK(told.err == Contains("no answer from the ddprun behind "));
  }
  const Told silent = Ask(job, folder, {"status", "llama-7b"});
  CHECK(silent.err == Contains("no job 'llama-7b' answers" + where + "; no answer from "));
  // That it stands for so long is no problem of this test's.
  CHECK(Ask(job, folder, {"status", "llama-70b", "--json"}).json()["world_size"] == 2);
  a->Signal(SIGCONT);
  job.Touch("go");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
}

TEST_CASE("status: jobs with one id are told apart by their sockets, which name them") {
  Job job;
  const ControlFolder folder;
  const Strings steps = {"step:{rank}7", "until:" + job.File("go")};
  const auto a = RunReporting(job, folder, {"--rdzv-id=twin", "--nproc-per-node=1"}, steps);
  const auto b = RunReporting(job, folder, {"--rdzv-id=twin", "--nproc-per-node=2"}, steps);
  ListWhenBothRun(job, folder);
  const Strings sockets = folder.Sockets();
  REQUIRE(sockets.size() == 2);
  const Told list = Ask(job, folder, {"list"});
  const Told which = Ask(job, folder, {"status"});
  const Told which_twin = Ask(job, folder, {"status", "twin"});
  for (const std::string& socket : sockets) {
    for (const std::string& text : {list.out, which.err, which_twin.err}) {
      CHECK(text == Contains("twin (" + socket + "): running: "));
    }
  }
  CHECK(which_twin.err ==
        Contains("2 jobs have this id; which one? Give its path instead of the id, such as "));
  CHECK(Ask(job, folder, {"status", sockets[0], "--json"}).code == 0);
  job.Touch("go");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
}

TEST_CASE("status: where no job runs that is said, with 2; a list of none is a list") {
  Job job;
  const ControlFolder folder;
  for (const Strings& command :
       {Strings{"status"}, Strings{"status", "digits"}, Strings{"status", "--json"},
        Strings{"stop"}, Strings{"logs", "--rank=0"}}) {
    const Told told = Ask(job, folder, command);
    CHECK_MESSAGE(told.code == 2, told.Describe());
    CHECK(told.out.empty());
    const bool is_named = command.size() == 2 && command[1] == "digits";
    CHECK(told.err == Contains(std::string("ddprun: error: ") + (is_named ? "job 'digits': " : "") +
                               "no job of yours runs on this machine (DDPRUN_CONTROL_DIR is " +
                               folder.path() + "); "));
  }
  const Told list = Ask(job, folder, {"list"});
  CHECK(list.code == 0);
  CHECK(list.out ==
        "no job of yours runs on this machine (DDPRUN_CONTROL_DIR is " + folder.path() + ")\n");
  const Told none = Ask(job, folder, {"list", "--json"});
  CHECK(none.code == 0);
  CHECK(none.out == "[]\n");
}

TEST_CASE("status: the socket of a killed agent is no job, and goes") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(job, folder, {}, {"touch:" + job.File("up"), "wait"});
  REQUIRE(job.WaitForFile("up"));
  const std::string socket = folder.Socket();
  ddprun->Signal(SIGKILL);
  CHECK(ddprun->Wait() == 128 + SIGKILL);
  CHECK(folder.Sockets() == Strings{socket});
  // The kernel may close what a killed process had a moment after it is gone.
  CHECK(Eventually([&] {
    const Told told = Ask(job, folder, {"status"});
    CHECK_MESSAGE(told.code == 2, told.Describe());
    CHECK(told.err == Contains("no job of yours runs on this machine"));
    return folder.Sockets().empty();
  }));
}

TEST_CASE("status: an agent that does not answer is told of, with 2, in a few seconds") {
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(job, folder, {}, {"until:" + job.File("go")});
  folder.Socket();
  ddprun->Signal(SIGSTOP);
  const Told told = Ask(job, folder, {"status"});
  CHECK_MESSAGE(told.code == 2, told.Describe());
  CHECK(told.err == Contains("no answer from the ddprun behind "));
  const std::string pid = std::to_string(ddprun->pid());
  CHECK(told.err ==
        Contains(" in time; it is process " + pid + ", which is stopped (kill -CONT " + pid + " "));
  ddprun->Signal(SIGCONT);
  AskUntil(job, folder, {"status"}, [](const Told& again) { return again.code == 0; });
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("status: a list beside several stopped agents shows what runs, and names each of them") {
  Job job;
  const ControlFolder folder;
  std::vector<std::unique_ptr<Subprocess>> agents;
  for (int i = 0; i < 4; ++i) {
    agents.push_back(RunReporting(job, folder, {"--rdzv-id=run-" + std::to_string(i)},
                                  {"until:" + job.File("go")}));
  }
  AskUntil(job, folder, {"list"}, [](const Told& told) {
    return told.code == 0 && std::count(told.out.begin(), told.out.end(), '\n') == 4;
  });
  for (int i = 1; i < 4; ++i) agents[static_cast<size_t>(i)]->Signal(SIGSTOP);
  const Told told = Ask(job, folder, {"list"});
  CHECK_MESSAGE(told.code == 2, told.Describe());
  CHECK_MESSAGE(told.out.find("run-0: ") == 0, told.Describe());
  CHECK(std::count(told.out.begin(), told.out.end(), '\n') == 1);
  CHECK(std::count(told.err.begin(), told.err.end(), '\n') == 3);
  const std::string runs = Ask(job, folder, {"list", "--json"}).json()[0]["socket"];
  for (const std::string& socket : folder.Sockets()) {
    const bool is_stopped = socket != runs;
    const bool is_named =
        told.err.find("no answer from the ddprun behind " + socket) != std::string::npos;
    CHECK_MESSAGE(is_named == is_stopped, told.Describe());
  }
  for (const auto& agent : agents) agent->Signal(SIGCONT);
  job.Touch("go");
  for (const auto& agent : agents) CHECK_MESSAGE(agent->Wait() == 0, agent->Describe());
}

TEST_CASE("status: after a failure the ranks of the new round are shown, and what has failed") {
  Job job;
  const ControlFolder folder;
  const auto ddprun =
      RunReporting(job, folder, {"--nproc-per-node=2", "--max-restarts=2"},
                   {"step:5#0", "err:out of luck@1#0", "exit:3@1#0",
                    "until:" + job.File("never") + "#0", "step:6", "until:" + job.File("go")});
  const json seen = StatusUntil(job, folder, [](const json& now) {
    return now["restart_count"] == 1 && HaveStepped(now, 2);
  });
  CHECK(seen["round"] == 2);
  CHECK(seen["step"] == 6);
  CHECK(seen["is_healthy"] == true);
  REQUIRE(seen["first_fault"].is_object());
  CHECK(seen["first_fault"]["rank"] == 1);
  CHECK(seen["first_fault"]["last_lines"].get<std::string>() == Contains("out of luck"));
  CHECK(seen["sentence"].get<std::string>() == Contains("1 restart (rank 1: "));
  CHECK(seen["rounds"].size() == 2);
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

}  // namespace
}  // namespace ddprun::testing
