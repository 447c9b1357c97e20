// Files on a file system that does not answer hold up what needs them, and nothing else.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>

#include "rendezvous/base/unique_fd.h"
#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

using Strings = std::vector<std::string>;

// Work of one name opens a FIFO and hangs in that call, until Release().
class Gate {
 public:
  Gate(const Job& job, const std::string& name)
      : path_(job.File("gate")), variable_(name + ":" + path_) {
    REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
  }
  std::map<std::string, std::string> env() const { return {{kFileGate, variable_}}; }
  // Whether somebody hangs in it: then a writer can open it without waiting. Lets it through.
  bool Release() {
    return Eventually([this] {
      if (!writer_.is_open()) {
        writer_ = UniqueFd(open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
      }
      return writer_.is_open();
    });
  }

 private:
  const std::string path_;
  const std::string variable_;
  UniqueFd writer_;
};

TEST_CASE("hung files: a start waits for the logs' folder, says for which, and goes on with it") {
  Job job(kGatedDdprun);
  Gate gate(job, "logs");
  const auto ddprun = job.Run({"--log-dir=" + job.File("logs"), "-r3"},
                              {"touch:" + job.File("up"), "exit:0"}, {.env = gate.env()});
  REQUIRE_MESSAGE(ddprun->WaitForErr(": the file system does not answer"), ddprun->Describe());
  CHECK(ddprun->err() == Contains("ddprun: waiting for "));
  CHECK_FALSE(job.HasFile("up"));
  REQUIRE(gate.Release());
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(job.HasFile("up"));
}

// The first round of the node is over before its files are made: the second one has the same flag.
TEST_CASE("hung files: workers are asked to stop also where a node joined while files were made") {
  Job job(kGatedDdprun);
  Gate gate(job, "logs");
  const Strings options =
      job.NodeOptions(1, "1:2",
                      {"--rdzv-conf=last_call_timeout=0", "--preempt-signal=USR1",
                       "--requeue-code=99", "--log-dir=" + job.File("logs")});
  const Strings steps = {"touch:" + job.File("up{rank}"), "asked"};
  auto env = gate.env();
  env["DDPRUN_LOG_LEVEL"] = "debug";
  const auto a = job.Run(options, steps, {.env = env});
  REQUIRE_MESSAGE(a->WaitForErr("preparing workers"), a->Describe());
  const auto b = job.Run(options, steps);
  REQUIRE_MESSAGE(a->WaitForErr("preparing workers run=" + job.id() + " round=2"), a->Describe());
  REQUIRE(gate.Release());
  for (const char* up : {"up0", "up1"}) {
    REQUIRE_MESSAGE(job.WaitForFile(up), a->Describe(), b->Describe());
  }
  a->Signal(SIGUSR1);
  b->Signal(SIGUSR1);
  CHECK_MESSAGE(a->Wait() == 99, a->Describe());
  CHECK_MESSAGE(b->Wait() == 99, b->Describe());
}

TEST_CASE("hung files: a signal ends the wait for the logs' folder, any number of them") {
  for (const int count : {1, 3}) {
    Job job(kGatedDdprun);
    Gate gate(job, "logs");
    const auto ddprun =
        job.Run({"--log-dir=" + job.File("logs"), "-r3"}, {"touch:" + job.File("up"), "wait"},
                {.env = {{"DDPRUN_LOG_LEVEL", "debug"}, *gate.env().begin()}});
    REQUIRE_MESSAGE(ddprun->WaitForErr("preparing workers"), ddprun->Describe());
    for (int i = 0; i < count; ++i) ddprun->Signal(i % 2 == 0 ? SIGINT : SIGTERM);
    REQUIRE_MESSAGE(ddprun->Wait() == 130, ddprun->Describe());
    CHECK_FALSE(job.HasFile("up"));
    CHECK(job.IsGone());
  }
}

TEST_CASE("hung files: a log file is named while workers run, and when it is given up") {
  Job job(kGatedDdprun);
  Gate gate(job, "log lines");
  const auto ddprun =
      job.Run({"--log-dir=" + job.File("logs"), "-r3"},
              {"print:much", "touch:" + job.File("up"), "wait"}, {.env = gate.env()});
  REQUIRE_MESSAGE(ddprun->WaitForErr("/attempt_0/0/stdout.log: the file system does not answer"),
                  ddprun->Describe());
  CHECK(ddprun->err() == Contains("ddprun: waiting for " + job.File("logs/")));
  CHECK(job.HasFile("up"));
  ddprun->Signal(SIGINT);
  // The first signal ends the workers, further ones what is waited for after them.
  const bool has_ended = Eventually([&] {
    ddprun->Signal(SIGTERM);
    return ddprun->Wait(std::chrono::milliseconds(200)).has_value();  // no limit: until the next
  });
  REQUIRE_MESSAGE(has_ended, ddprun->Describe());
  CHECK(ddprun->Wait() == 130);
  CHECK(ddprun->err() == Contains("ddprun: ending before all was written to " + job.File("logs/")));
  CHECK(ddprun->err() == Contains("/attempt_0/0/stdout.log: its file system does not answer\n"));
  CHECK_MESSAGE(CountOf(ddprun->err(), "ddprun: waiting for") == 1, ddprun->Describe());
}

TEST_CASE("hung files: a worker that writes much goes on, and what did not fit is told of") {
  Job job(kGatedDdprun);
  Gate gate(job, "log lines");
  const auto ddprun =
      job.RunRaw({"--log-dir=" + job.File("logs"), "--redirects=1", "--tee=2", "/bin/sh", "-c",
                  "yes $(printf %099999d 0) | head -n 80 && exec \"$@\"", "sh",
                  Runfile("tests/e2e/toy_worker"), "err:alive", "touch:" + job.File("written"),
                  "until:" + job.File("go"), "print:last"},
                 {.env = gate.env()});
  REQUIRE_MESSAGE(ddprun->WaitForErr(": the file system does not answer"), ddprun->Describe());
  REQUIRE_MESSAGE(job.WaitForFile("written"), ddprun->Describe());
  REQUIRE_MESSAGE(ddprun->WaitForErr("alive"), ddprun->Describe());
  REQUIRE(gate.Release());
  job.Touch("go");
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());

  const std::string told = "the workers go on, and lines are missing there";
  CHECK_MESSAGE(CountOf(ddprun->err(), told) == 1, ddprun->Describe());
  // Whole lines are there or missing.
  size_t lines = 0;
  std::string line;
  const std::filesystem::directory_iterator run(job.File("logs"));
  REQUIRE(run != std::filesystem::directory_iterator());
  std::istringstream file(ReadFile(run->path() / "attempt_0/0/stdout.log"));
  for (; std::getline(file, line) && line != "last"; ++lines) CHECK(line.size() == 99'999);
  CHECK(line == "last");
  // How many were known to be when the workers had ended: a line that was cut off is counted when
  // what is in front of it has been written, which may be later.
  const std::string err = ddprun->err();
  const std::string before = "ddprun: warning: ";
  const size_t end = err.find(" lines are missing from log files in " + job.File("logs/"));
  REQUIRE_MESSAGE(end != std::string::npos, ddprun->Describe());
  const size_t begin = err.rfind(before, end) + before.size();
  const size_t missing = std::stoul(err.substr(begin, end - begin));
  CHECK_MESSAGE(missing > 0, ddprun->Describe());
  CHECK_MESSAGE(missing <= 80 - lines, lines, " lines are there", ddprun->Describe());
}

// The signal ends the job before anybody knows that the FIFO has been made.
TEST_CASE("hung files: the timers' FIFO goes with a job that ends while it is being made") {
  Job job(kGatedDdprun);
  Gate gate(job, "beginning");
  const auto ddprun = job.Run({}, {"wait"},
                              {.env = {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"},
                                       {"TORCHELASTIC_TIMER_FILE", job.File("fifo")},
                                       {"DDPRUN_LOG_LEVEL", "info"},
                                       *gate.env().begin()}});
  REQUIRE_MESSAGE(ddprun->WaitForErr("waiting for " + job.File("fifo")), ddprun->Describe());
  ddprun->Signal(SIGINT);
  REQUIRE_MESSAGE(ddprun->WaitForErr(" ending run="), ddprun->Describe());
  REQUIRE(gate.Release());
  REQUIRE_MESSAGE(ddprun->Wait() == 130, ddprun->Describe());
  CHECK_FALSE(job.HasFile("fifo"));
}

TEST_CASE("hung files: another node's start, failure and end do not wait for this one's logs") {
  Job job(kGatedDdprun);
  Gate gate(job, "logs");
  const Strings steps = {"touch:" + job.File("up{rank}"), "exit:3@0", "wait"};
  const auto host = job.Run(job.NodeOptions(1), steps);
  const auto client =
      job.Run(job.NodeOptions(1, "2", {"--rdzv-conf=is_host=0", "--log-dir=" + job.File("logs")}),
              steps, {.env = gate.env()});
  // Rank 0's failure is the verdict, and the node that hangs hears and acknowledges it.
  REQUIRE_MESSAGE(host->Wait() == 3, host->Describe(), client->Describe());
  REQUIRE_MESSAGE(client->Wait() == 3, host->Describe(), client->Describe());
  CHECK_FALSE(job.HasFile("up1"));
}

TEST_CASE("hung files: a failure is told without its error file") {
  Job job(kGatedDdprun);
  Gate gate(job, "last words");
  const auto ddprun = job.Run({"--nproc-per-node=2"}, {"exit:3@0", "wait"}, {.env = gate.env()});
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ddprun->err() == Contains("  exitcode  : 3 (pid: "));
  CHECK(job.IsGone());
}

TEST_CASE("hung files: the report is given up, and the exit code is the job's") {
  Job job(kGatedDdprun);
  Gate gate(job, "report");
  const auto ddprun =
      job.Run({"--report-file=" + job.File("report.json")}, {"exit:3"}, {.env = gate.env()});
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ddprun->err() == Contains("ddprun: waiting for " + job.File("report.json")));
  CHECK(ddprun->err() == Contains("the report file is not written: write " +
                                  job.File("report.json") + ": its file system does not answer"));
  CHECK(job.IsGone());
}

TEST_CASE("hung files: a termination message that cannot be written holds up no exit") {
  Job job(kGatedDdprun);
  Gate gate(job, "report");
  const auto ddprun = job.Run({"--termination-message-file=" + job.File("message")}, {"exit:3"},
                              {.env = gate.env()});
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ddprun->err() == Contains("the termination message is not written: write " +
                                  job.File("message") + ": its file system does not answer"));
  CHECK(job.IsGone());
}

}  // namespace
}  // namespace ddprun::testing
