// Signals that stop, in every state: the job ends with 128 + n. A second one shortens nothing; QUIT
// after another one, or a third one, kills at once.
#include <signal.h>
#include <string.h>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

// Kills what `signal` has begun to stop. QUIT after QUIT is the same order once more: there it
// takes a third one, which counts once it comes later than any front end passes the first one on.
void Hurry(const Node& node, int signal) {
  if (signal != SIGQUIT) return node->Signal(SIGQUIT);
  REQUIRE_MESSAGE(Eventually([&] {
                    node->Signal(SIGTERM);
                    return node->err() == Contains(": killing ");
                  }),
                  node->Describe());
}

constexpr int kAll[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Long enough that only a signal can end a worker that is deaf to the first.
constexpr char kNoGrace[] = "--shutdown-timeout=6000";
const Strings kDeaf = {"ignore:2", "ignore:3", "ignore:15"};

Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void SendAndAwaitWord(const Node& node, int signal) {
  node->Signal(signal);
  REQUIRE_MESSAGE(node->WaitForErr(std::string("SIG") + sigabbrev_np(signal) + ": stopping"),
                  node->Describe());
}

void CheckEndsWith(const Node& node, int exit_code) {
  REQUIRE_MESSAGE(node->Wait() == exit_code, node->Describe());
}

TEST_CASE("signals: before the endpoint is there they end the wait for it") {
  for (const int signal : kAll) {
    Job job;
    const Node client = job.Run(job.NodeOptions(1, "2", {"--rdzv-conf=is_host=0"}), {"wait"});
    REQUIRE_MESSAGE(client->WaitForErr("waiting for the coordinator"), client->Describe());
    client->Signal(signal);
    CheckEndsWith(client, 128 + signal);
  }
}

TEST_CASE("signals: during the first rendezvous they end the wait of a host and of a client") {
  for (const int signal : kAll) {
    Job job;
    const Node host = job.Run(job.NodeOptions(1, "3"), {"wait"});
    const Node client = job.Run(job.NodeOptions(1, "3", {"--rdzv-conf=is_host=0"}), {"wait"});
    REQUIRE_MESSAGE(client->WaitForErr("2 of 3 nodes"), client->Describe());
    client->Signal(signal);
    CheckEndsWith(client, 128 + signal);
    host->Signal(signal);
    CheckEndsWith(host, 128 + signal);
  }
}

TEST_CASE("signals: between the first spawn and the last, a second one kills what was started") {
  for (const int signal : {SIGINT, SIGTERM}) {
    Job job(kGatedDdprun);
    const Node ddprun = job.Run({"--nproc-per-node=4", kNoGrace},
                                kDeaf + Strings{"touch:" + job.File("up{rank}"), "wait"},
                                {.env = {{kSpawnGate, job.File("never")}}});
    REQUIRE(job.WaitForFile("up0"));
    SendAndAwaitWord(ddprun, signal);
    CHECK(job.HasWorker(0));
    Hurry(ddprun, signal);
    CheckEndsWith(ddprun, 128 + signal);
    CHECK_FALSE(job.HasFile("up1"));
    CHECK(job.IsGone());
  }
}

TEST_CASE("signals: while running they reach the workers as they are, a second one kills") {
  for (const int signal : kAll) {
    Job job;
    // Rank 0 is deaf to the others only: its end by the first shows that this one was passed on.
    Strings steps = {"touch:" + job.File("up{rank}"), "wait"};
    for (const int other : kAll) {
      const std::string ignore = "ignore:" + std::to_string(other);
      steps.insert(steps.begin(), ignore + "@1");
      if (other != signal) steps.insert(steps.begin(), ignore + "@0");
    }
    const Node ddprun = job.Run({"--nproc-per-node=2", kNoGrace}, steps);
    REQUIRE(job.WaitForFile("up0"));
    REQUIRE(job.WaitForFile("up1"));
    SendAndAwaitWord(ddprun, signal);
    REQUIRE_MESSAGE(Eventually([&] { return !job.HasWorker(0); }), ddprun->Describe());
    CHECK(job.HasWorker(1));
    Hurry(ddprun, signal);
    CheckEndsWith(ddprun, 128 + signal);
    CHECK(job.IsGone());
  }
}

// Workers that save for as long as `saves` is there, and say that they have saved.
Strings SavingOn(const Job& job, int signal) {
  const std::string number = std::to_string(signal);
  return {"block:" + number, "touch:" + job.File("up{rank}"), "await:" + number,
          "print:saving",    "until:" + job.File("saved"),    "print:saved",
          "exit:0"};
}

const Subprocess::Options kTalkative = {.env = {{"DDPRUN_LOG_LEVEL", "debug"}}};

TEST_CASE("signals: an order that comes twice leaves the workers their grace, a third ends it") {
  for (const int second : {SIGTERM, SIGINT}) {
    for (const bool is_hurried : {false, true}) {
      Job job;
      const Node ddprun =
          job.Run({"--nproc-per-node=2", kNoGrace}, SavingOn(job, SIGTERM), kTalkative);
      for (const char* up : {"up0", "up1"}) REQUIRE(job.WaitForFile(up));
      ddprun->Signal(SIGTERM);
      REQUIRE_MESSAGE(ddprun->WaitForOut("saving\nsaving\n"), ddprun->Describe());
      // Of another sender.
      const std::string pid = std::to_string(ddprun->pid());
      Subprocess passed_on({"/bin/kill", "-" + std::to_string(second), pid});
      REQUIRE(passed_on.Wait() == 0);
      REQUIRE_MESSAGE(ddprun->WaitForErr(" again=yes"), ddprun->Describe());
      if (is_hurried) {
        CHECK(Eventually([&] {
          ddprun->Signal(SIGTERM);
          return ddprun->err() == Contains(": killing ranks 0-1 now");
        }));
      } else {
        job.Touch("saved");
      }
      CheckEndsWith(ddprun, 143);
      CHECK(ddprun->out() == (is_hurried ? "saving\nsaving\n" : "saving\nsaving\nsaved\nsaved\n"));
      CHECK((ddprun->err() == Contains(": killing ")) == is_hurried);
    }
  }
}

// What passes an order on to the ddprun that it runs, in a group of its own.
Strings FrontEnd(const std::string& name) {
  if (name == "timeout") return {"/usr/bin/timeout", "1000"};
  // As `uv run` does. A wait that a trap ends is waited for anew.
  return {
      "/bin/bash", "-c",
      "trap 'kill -TERM $!; echo passed on >&2' TERM; \"$@\" & for i in 1 2 3 4; do wait $!; done",
      "front"};
}

TEST_CASE("signals: an order that a front end passes on leaves the workers their grace") {
  for (const std::string name : {"timeout", "shell"}) {
    Job job;
    Strings argv = Strings{"/usr/bin/setsid"} + FrontEnd(name) +
                   Strings{Runfile("ddprun"), "--nproc-per-node=2", kNoGrace,
                           Runfile("tests/e2e/toy_worker")} +
                   SavingOn(job, SIGTERM);
    const Node front = job.RunProgram(argv, kTalkative);
    for (const char* up : {"up0", "up1"}) REQUIRE_MESSAGE(job.WaitForFile(up), front->Describe());
    // timeout(1) itself signals its group besides its child.
    kill(name == "timeout" ? front->pid() : -front->pid(), SIGTERM);
    REQUIRE_MESSAGE(front->WaitForOut("saving\nsaving\n"), front->Describe());
    if (name == "shell") REQUIRE_MESSAGE(front->WaitForErr("passed on"), front->Describe());
    job.Touch("saved");
    CHECK_MESSAGE(front->Wait() == 143, front->Describe());
    CHECK_MESSAGE(front->out() == "saving\nsaving\nsaved\nsaved\n", front->Describe());
    CHECK(front->err() != Contains(": killing "));
  }
}

TEST_CASE("signals: the program of a wrapper with a trap hears of a stop at once") {
  Job job;
  // Half of the grace, after which the whole group is told, is longer than the test waits.
  auto ddprun = job.RunRaw({"--standalone", "--nproc-per-node=2", "--shutdown-timeout=600",
                            "/bin/sh", "-c", "trap 'echo cleanup' TERM; \"$@\"; echo ended", "sh",
                            Runfile("tests/e2e/toy_worker"), "block:15", "print:ready {rank}",
                            "await:15", "print:saved {rank}"});
  REQUIRE(ddprun->WaitForOut("ready 0"));
  REQUIRE(ddprun->WaitForOut("ready 1"));
  ddprun->Signal(SIGTERM);
  CHECK_MESSAGE(ddprun->Wait() == 128 + SIGTERM, ddprun->Describe());
  for (const char* rank : {"0", "1"}) {
    CHECK_MESSAGE(ddprun->out() == Contains(std::string("saved ") + rank), ddprun->Describe());
  }
  CHECK_MESSAGE(ddprun->out() == Contains("cleanup\nended\n"), ddprun->Describe());
}

TEST_CASE("signals: a wrapper's program that is stopped is continued, and ends by the signal") {
  Job job;
  // Says so once it stands still. ddprun makes one dollar of two.
  const std::string program =
      "(while [ \"$$(cut -d ' ' -f 3 /proc/$$$$/stat)\" != T ]; do :; done; echo still) & "
      "kill -STOP $$$$; exec sleep 600";
  auto ddprun =
      job.RunRaw({"--standalone", "--nproc-per-node=1", "--shutdown-timeout=600", "/bin/sh", "-c",
                  "trap 'echo cleanup' TERM; \"$@\"; echo ended", "sh", "/bin/sh", "-c", program});
  REQUIRE_MESSAGE(ddprun->WaitForOut("still\n"), ddprun->Describe());
  ddprun->Signal(SIGTERM);
  CHECK_MESSAGE(ddprun->Wait() == 128 + SIGTERM, ddprun->Describe());
  CHECK_MESSAGE(ddprun->out() == Contains("cleanup\nended\n"), ddprun->Describe());
}

TEST_CASE("signals: while a failed job is being stopped they end with 128 + n") {
  for (const int signal : {SIGINT, SIGTERM}) {
    Job job;
    const Node ddprun = job.Run({"--nproc-per-node=2", kNoGrace},
                                kDeaf + Strings{"touch:" + job.File("up{rank}"),
                                                "until:" + job.File("up1"), "exit:3@0", "wait"},
                                {.env = {{"DDPRUN_LOG_LEVEL", "info"}}});
    REQUIRE_MESSAGE(ddprun->WaitForErr(" verdict run="), ddprun->Describe());
    SendAndAwaitWord(ddprun, signal);
    CHECK(job.HasWorker(1));
    Hurry(ddprun, signal);
    CheckEndsWith(ddprun, 128 + signal);
    // What failed before is reported, and the code is not its own.
    for (const std::string& text :
         {std::string("  rank      : 0 (local_rank: 0)\n"), std::string("  exitcode  : 3 (pid: "),
          "\nddprun: exit code " + std::to_string(128 + signal) + ": ddprun's own, "}) {
      CHECK(ddprun->err() == Contains(text));
    }
    CHECK(job.IsGone());
  }
}

// The agent is held while the second and the third arrive, so that it reads them in one go: the
// workers that the second kills have not been seen to die when the third ends the wait for them.
TEST_CASE("signals: any number of them ends with the code of the first, never with an abort") {
  Job job;
  const Strings steps = kDeaf + Strings{"touch:" + job.File("up{rank}"), "wait"};
  const Node ddprun = job.Run({"--nproc-per-node=3", kNoGrace}, steps);
  for (const char* up : {"up0", "up1", "up2"}) REQUIRE(job.WaitForFile(up));
  ddprun->Signal(SIGINT);
  REQUIRE_MESSAGE(ddprun->WaitForErr("SIGINT: stopping ranks 0-2; SIGKILL comes in 6000 s; SIGQUIT "
                                     "or `ddprun stop --now` kills them now\n"),
                  ddprun->Describe());
  ddprun->Signal(SIGSTOP);
  ddprun->Signal(SIGQUIT);
  ddprun->Signal(SIGINT);
  ddprun->Signal(SIGCONT);
  for (int i = 0; i < 5; ++i) ddprun->Signal(SIGINT);
  CheckEndsWith(ddprun, 130);
  CHECK(job.IsGone());
}

// Rank 0 fails; rank 1 is deaf, and so its group is in the middle of being stopped for a restart.
TEST_CASE("signals: while the old group is stopped for a restart they end the job, not the stop") {
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const bool is_killed : {false, true}) {
      Job job;
      const Strings steps =
          kDeaf + Strings{"touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("up1.0"),
                          "die:9@0#0", "until:" + job.File("go")};
      const Node ddprun = job.Run({"--nproc-per-node=2", "--max-restarts=1", kNoGrace}, steps);
      REQUIRE(job.WaitForFile("up1.0"));
      REQUIRE_MESSAGE(ddprun->WaitForErr("stopping this node's workers"), ddprun->Describe());
      SendAndAwaitWord(ddprun, signal);
      CHECK_MESSAGE(job.HasWorker(1), "the grace is not over");
      if (is_killed) {
        Hurry(ddprun, signal);
      } else {
        job.Touch("go");  // the old group ends, and no new one begins
      }
      CheckEndsWith(ddprun, 128 + signal);
      CHECK_FALSE(job.HasFile("up0.1"));
      CHECK_FALSE(job.HasFile("up1.1"));
      CHECK(job.IsGone());
    }
  }
}

// One that would be relayed, and one that is nobody's otherwise.
TEST_CASE("signals: those named by --signals_to_handle stop the job and reach the workers") {
  for (const int signal : {SIGUSR1, SIGALRM}) {
    Job job;
    const Strings steps = {"env:TORCHELASTIC_SIGNALS_TO_HANDLE", "touch:" + job.File("up{rank}"),
                           "wait"};
    const Node ddprun =
        job.Run({"--nproc-per-node=2", "--signals-to-handle=SIGALRM,SIGUSR1", kNoGrace}, steps);
    REQUIRE(job.WaitForFile("up0"));
    REQUIRE(job.WaitForFile("up1"));
    SendAndAwaitWord(ddprun, signal);
    CheckEndsWith(ddprun, 128 + signal);
    CHECK(ddprun->out().find("TORCHELASTIC_SIGNALS_TO_HANDLE=SIGALRM,SIGUSR1\n") == 0);
    CHECK(job.IsGone());
  }
}

// One of two nodes waits for the new round, the other one still stops its deaf worker of the old.
// `rank` 0 is the host's, and the worker of the waiting node has died.
void SignalWhileARoundForms(int waiting_rank, int signal) {
  CAPTURE(waiting_rank);
  CAPTURE(signal);
  Job job;
  const std::string waiting = std::to_string(waiting_rank);
  const Strings steps =
      kDeaf + Strings{"touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("up0.0"),
                      "until:" + job.File("up1.0"), "die:9@" + waiting + "#0", "wait"};
  const Strings options = {"--max-restarts=1", kNoGrace};
  const Node host = job.Run(job.NodeOptions(1, "2", options), steps);
  const Node client =
      job.Run(job.NodeOptions(1, "2", options + Strings{"--rdzv-conf=is_host=0"}), steps);
  const Node& joined = waiting_rank == 0 ? host : client;
  const Node& stopping = waiting_rank == 0 ? client : host;
  REQUIRE_MESSAGE(joined->WaitForErr("to join again"), joined->Describe(), stopping->Describe());
  REQUIRE_MESSAGE(stopping->WaitForErr("stopping this node's workers"), stopping->Describe());
  joined->Signal(signal);
  CheckEndsWith(joined, 128 + signal);
  CHECK_MESSAGE(job.HasWorker(1 - waiting_rank), stopping->Describe());
  SendAndAwaitWord(stopping, signal);
  Hurry(stopping, signal);
  CheckEndsWith(stopping, 128 + signal);
  CHECK_FALSE(job.HasFile("up0.1"));
  CHECK_FALSE(job.HasFile("up1.1"));
  CHECK(job.IsGone());
}

TEST_CASE("signals: while the new round forms they end a client that waits for the other node") {
  for (const int signal : {SIGINT, SIGTERM}) SignalWhileARoundForms(1, signal);
}

TEST_CASE("signals: while the new round forms they end a host that waits for the other node") {
  for (const int signal : {SIGINT, SIGTERM}) SignalWhileARoundForms(0, signal);
}

TEST_CASE("signals: a node that has succeeded and waits for the verdict ends with 128 + n") {
  for (const int signal : {SIGINT, SIGTERM}) {
    Job job;
    const Strings steps = {"touch:" + job.File("up{rank}"), "exit:0@1", "wait"};
    const Node host = job.Run(job.NodeOptions(1), steps);
    const Node client = job.Run(job.NodeOptions(1, "2", {"--rdzv-conf=is_host=0"}), steps,
                                {.env = {{"DDPRUN_LOG_LEVEL", "debug"}}});
    REQUIRE_MESSAGE(job.WaitForFile("up0"), host->Describe());
    REQUIRE_MESSAGE(client->WaitForErr("reporting success"), client->Describe());
    client->Signal(signal);
    CheckEndsWith(client, 128 + signal);
    host->Signal(signal);
    CheckEndsWith(host, 128 + signal);
  }
}

TEST_CASE(
    "signals: SIGINT stops a background job of a shell, which starts it with SIGINT ignored") {
  for (const int signal : {SIGINT, SIGQUIT}) {
    Job job;
    const auto ddprun =
        job.RunProgram({"/bin/sh", "-c", "trap '' INT QUIT; exec \"$@\"", "sh", Runfile("ddprun"),
                        "--standalone", "--shutdown-timeout=6000", Runfile("tests/e2e/toy_worker"),
                        "touch:" + job.File("up"), "wait"});
    REQUIRE_MESSAGE(job.WaitForFile("up"), ddprun->Describe());
    ddprun->Signal(signal);
    CHECK_MESSAGE(ddprun->Wait() == 128 + signal, ddprun->Describe());
  }
}

}  // namespace
}  // namespace ddprun::testing
