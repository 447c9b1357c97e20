// Countdown timers in a FIFO, as torch.distributed.elastic.timer writes them.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

std::string Timer(const std::string& pid, const std::string& scope, const std::string& expires,
                  int signal) {
  return R"(timer:{"version": 1, "pid": )" + pid + R"(, "scope_id": ")" + scope +
         R"(", "expiration_time": )" + expires + R"(, "signal": )" + std::to_string(signal) + "}";
}

std::map<std::string, std::string> TimersAt(const std::string& path) {
  return {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}, {"TORCHELASTIC_TIMER_FILE", path}};
}

TEST_CASE("timers: a worker whose timer expires is killed, and the report names the timer") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--event-log-handler=console"},
                        {Timer("{pid}", "load data", "1", 9) + "@1", "wait"},
                        {.env = TimersAt(job.File("fifo"))});
  REQUIRE_MESSAGE(ddprun->Wait() == 137, ddprun->Describe());
  CHECK(ddprun->err() == Contains("ddprun: the timer 'load data' of pid "));
  CHECK(ddprun->err() ==
        Contains("traceback : killed by signal 9 (SIGKILL); its timer 'load data' had expired\n"));
  CHECK(ddprun->err() == Contains(R"("name":"timer expired")"));
  CHECK(ddprun->err() == Contains(R"("name":"kill worker process")"));
  CHECK_FALSE(job.HasFile("fifo"));
}

TEST_CASE("timers: the job restarts after one as after any failure") {
  Job job;
  auto ddprun =
      job.Run({"--nproc-per-node=2", "--max-restarts=1"},
              {"env:TORCHELASTIC_TIMER_FILE@0#1", Timer("{pid}", "s", "1", 15) + "@1#0", "wait#0"},
              {.env = {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}, {"TMPDIR", job.File("")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out().find("TORCHELASTIC_TIMER_FILE=" + job.File("") + "/watchdog_timer_") == 0);
}

TEST_CASE("timers: one that was released, or asks for no signal, kills nobody") {
  Job job;
  auto ddprun = job.Run({},
                        {Timer("{pid}", "a", "32503680000", 9), Timer("{pid}", "a", "-1", 0),
                         Timer("{pid}", "b", "1", 0), Timer("{pid}", "c", "1e300", 9),
                         Timer("{pid}", "end", "2", 15), "wait"},
                        {.env = TimersAt(job.File("fifo"))});
  REQUIRE_MESSAGE(ddprun->Wait() == 143, ddprun->Describe());
  CHECK(ddprun->err() == Contains("its timer 'end' had expired"));
}

TEST_CASE("timers: hostile lines do no harm, and only the job's own processes are signalled") {
  Job job;
  auto stranger = job.RunRaw({"sleep", "1000"});  // of another agent
  auto ddprun = job.Run({},
                        {"timer:no json \xff\x1b[2J", "timer:" + std::string(100000, 'x'),
                         "timer:" + std::string(3000, '['), Timer("{agent}", "a", "0", 9),
                         Timer(std::to_string(stranger->pid()), "b", "0", 9),
                         Timer("999999999", "c", "0", 9), Timer("{pid}", "last", "1", 9), "wait"},
                        {.env = TimersAt(job.File("fifo"))});
  REQUIRE_MESSAGE(ddprun->Wait() == 137, ddprun->Describe());
  CHECK(ddprun->err() == Contains("its timer 'last' had expired"));
  CHECK(ddprun->err() == Contains("no timer request, ignored: 'no json \\xff\\x1b[2J'"));
  CHECK(ddprun->err() == Contains("a line in the timers' file is too long"));
  CHECK(ddprun->err() == Contains("is no process of this node's workers: ignored"));
  stranger->Signal(15);
  CHECK_MESSAGE(stranger->Wait() == 143, stranger->Describe());  // not 137
}

TEST_CASE("timers: what is no FIFO is not replaced, and another agent's FIFO is left to it") {
  Job job;
  std::ofstream(job.File("data")) << "precious";
  auto refused = job.Run({"--report-file=" + job.File("report")}, {"touch:" + job.File("started")},
                         {.env = TimersAt(job.File("data"))});
  REQUIRE_MESSAGE(refused->Wait() == 120, refused->Describe());
  CHECK(refused->err() == Contains("ddprun: error: make a FIFO at " + job.File("data")));
  CHECK(ReadFile(job.File("data")) == "precious");
  CHECK_FALSE(job.HasFile("started"));
  CHECK(ReadFile(job.File("report")) == Contains("\"reason\": \"make a FIFO at "));

  REQUIRE(mkfifo(job.File("outer").c_str(), 0600) == 0);
  auto inner = job.Run({}, {"env:TORCHELASTIC_TIMER_FILE"},
                       {.env = {{"TORCHELASTIC_TIMER_FILE", job.File("outer")}}});
  REQUIRE_MESSAGE(inner->Wait() == 0, inner->Describe());
  CHECK(inner->out() == "TORCHELASTIC_TIMER_FILE=" + job.File("outer") + "\n");
  CHECK(job.HasFile("outer"));
}

TEST_CASE("timers: a path alone asks for none and is passed on") {
  Job job;
  auto ddprun = job.Run({}, {"env:TORCHELASTIC_TIMER_FILE"},
                        {.env = {{"TORCHELASTIC_TIMER_FILE", "/no/such/fifo"}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == "TORCHELASTIC_TIMER_FILE=/no/such/fifo\n");
}

TEST_CASE("timers: a ddprun that a worker starts has a FIFO of its own") {
  Job job;
  REQUIRE(mkfifo(job.File("outer").c_str(), 0600) == 0);
  auto env = TimersAt(job.File("outer"));
  env["DDPRUN_JOB_MARK"] = "the-outer-job";
  env["TMPDIR"] = job.File("");
  auto inner = job.Run({}, {"env:TORCHELASTIC_TIMER_FILE"}, {.env = env});
  REQUIRE_MESSAGE(inner->Wait() == 0, inner->Describe());
  CHECK(inner->out().find("TORCHELASTIC_TIMER_FILE=" + job.File("") + "/watchdog_timer_") == 0);
  CHECK(job.HasFile("outer"));
}

}  // namespace
}  // namespace ddprun::testing
