// Wrong input: the promised exit code, one line that quotes the value, and no process left.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

struct Row {
  std::vector<std::string> arguments;
  int exit_code;
  // Both must stand in the one line: the value as it was given, and what would be right.
  std::string quoted;
  std::string advice;
};

// All that an agent that has ended wrote.
void CheckLine(const Subprocess& ddprun, const std::string& quoted, const std::string& advice) {
  CAPTURE(ddprun.Describe());
  std::string err = ddprun.err();
  // That somebody has the port and does not answer takes seconds, which is told before.
  if (err.rfind("ddprun: waiting for the coordinator at ", 0) == 0)
    err.erase(0, err.find('\n') + 1);
  CHECK(std::count(err.begin(), err.end(), '\n') == 1);
  CHECK(err.rfind("ddprun: error: ", 0) == 0);
  CHECK(err == Contains(quoted));
  CHECK(err == Contains(advice));
  CHECK(ddprun.out().empty());
}

void Expect(const Row& row, Subprocess::Options how = {}) {
  Job job;
  auto ddprun = job.RunRaw(row.arguments, std::move(how));
  REQUIRE_MESSAGE(ddprun->Wait() == row.exit_code, ddprun->Describe());
  CheckLine(*ddprun, row.quoted, row.advice);
  CHECK(job.IsGone());
}

// One of each kind; tests/launcher/cli has the options and their values.
TEST_CASE("bad input: usage errors end with 2 before anything starts") {
  const std::string toy = Runfile("tests/e2e/toy_worker");
  Expect({{"--bogus", toy}, 2, "'--bogus'", "ddprun --help"});
  Expect({{"--nnodes=3:2", toy}, 2, "'3:2'", "1 <= MIN <= MAX"});
  Expect({{}, 2, "no program given", "PROGRAM"});
  Expect({{"-m", "./train.py"}, 2, "'./train.py'", "expected a name such as package.train"});
  Expect({{"doctor", "--require", "foo"}, 2, "doctor: --require 'foo'", "expected cuda"});
  Expect({{"token", "old"}, 2, "'old'", "expected new, --help"});
  Expect({{"bench", "dp-ddp", "--world-sizes=x"}, 2, "'x'", "1,2,4"});
  Expect({{"coordinator", "--bind=:x"}, 2, "':x'", "or :PORT (on all interfaces)"});
}

// Each would fail in every worker: it is named before the rendezvous, which would wait here.
TEST_CASE("bad input: a program that cannot run is named before any rendezvous") {
  const TempDir dir;
  const std::string odd = WriteFile(dir.File("odd"), "#!/no/such/interpreter\n", 0755);
  const std::string script = WriteFile(dir.File("train.py"), "", 0644);
  const auto expect = [](const std::string& program, int code, const std::string& quoted,
                         const std::string& advice, Subprocess::Options how = {}) {
    Expect({{"--nnodes=2", "--rdzv-endpoint=127.0.0.1:1", program}, code, quoted, advice},
           std::move(how));
  };
  expect("./no-such-program", 127, "'./no-such-program'", "expected an executable file");
  expect(odd, 126, "'/no/such/interpreter'", "does not exist");
  expect(script, 127, "PYTHON_EXEC '/no/such/python'", "it is needed to run '" + script + "'",
         {.env = {{"PYTHON_EXEC", "/no/such/python"}}});
}

TEST_CASE("bad input: what came from a variable is called by the variable") {
  const std::string toy = Runfile("tests/e2e/toy_worker");
  Expect({{toy}, 120, "PET_REPORT_FILE: ", "/no/such/folder/report"},
         {.env = {{"PET_REPORT_FILE", "/no/such/folder/report"}}});
  Expect({{toy}, 120, "PET_LOG_DIR '/dev/null/logs': ", "directory"},
         {.env = {{"PET_LOG_DIR", "/dev/null/logs"}}});
}

TEST_CASE("bad input: a log directory that cannot be made ends with 120") {
  const TempDir dir;
  const std::string log_dir = WriteFile(dir.File("file"), "in the way\n") + "/logs";
  const std::string toy = Runfile("tests/e2e/toy_worker");
  // Before the rendezvous, which would wait here.
  Expect({{"--nnodes=2", "--rdzv-endpoint=127.0.0.1:1", "--log-dir=" + log_dir, toy},
          120,
          log_dir,
          "directory"});
}

// The step's other tasks find the same: what each of them wrote would hide what the first one says.
TEST_CASE("bad input: a node list of Slurm's that is none ends with 2, and is told once a step") {
  std::map<std::string, std::string> step = {{"SLURM_JOB_ID", "12"},
                                             {"SLURM_STEP_ID", "0"},
                                             {"SLURM_NODEID", "0"},
                                             {"SLURM_PROCID", "0"},
                                             {"SLURM_JOB_NODELIST", ""},
                                             {"DDPRUN_CLUSTER", ""},
                                             {"SLURM_STEP_NODELIST", "n[3-1]"}};
  const std::string toy = Runfile("tests/e2e/toy_worker");
  Expect({{toy}, 2, "SLURM_STEP_NODELIST 'n[3-1]': '3-1' is no range", "numbers as in [1-3,07]"},
         {.env = step});
  step["SLURM_NODEID"] = step["SLURM_PROCID"] = "1";
  Job job;
  auto second = job.RunRaw({toy}, {.env = step});
  REQUIRE_MESSAGE(second->Wait() == 2, second->Describe());
  CHECK_MESSAGE(second->err().empty(), second->Describe());
}

TEST_CASE("bad input: an endpoint that does not resolve ends with 121") {
  Expect({{"--nnodes=2", "--rdzv-endpoint=no-such-host.invalid:29400",
           Runfile("tests/e2e/toy_worker")},
          121,
          "no-such-host.invalid",
          "expected a host name"});
  // The same from an agent that does not ask whether it is the host.
  Expect({{"--nnodes=2", "--rdzv-conf=is_host=0", "--rdzv-endpoint=no-such-host.invalid:29400",
           Runfile("tests/e2e/toy_worker")},
          121,
          "no-such-host.invalid",
          "expected a host name"});
}

TEST_CASE("bad input: an address of this node that does not resolve ends with 121") {
  Job job;
  const std::string toy = Runfile("tests/e2e/toy_worker");
  const std::string name = "no-such-host.invalid";
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--standalone"}, job.NodeOptions(1)}) {
    Row row = {options, 121, "--local-addr: cannot resolve \"" + name + "\": ",
               "; expected a host name that resolves here, or an IP address"};
    row.arguments.push_back(toy);
    row.arguments.insert(row.arguments.begin(), "--local-addr=" + name);
    Expect(row);
    row.arguments.erase(row.arguments.begin());
    row.quoted = "PET_LOCAL_ADDR: cannot resolve";
    Expect(row, {.env = {{"PET_LOCAL_ADDR", name}}});
  }
}

TEST_CASE("bad input: an address of another machine, or one that nobody reads, is no error") {
  // A relay's, say, that leads to this node.
  for (const char* address : {"192.0.2.7", "2001:db8::7", "localhost"}) {
    Job job;
    auto ddprun = job.Run({std::string("--local-addr=") + address}, {"env:MASTER_ADDR"});
    REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
    CHECK(ddprun->out() == std::string("MASTER_ADDR=") + address + "\n");
    const bool is_literal = std::string(address) != "localhost";
    CHECK((ddprun->err() == Contains(": no interface of this machine has this address")) ==
          is_literal);
  }
  Job job;
  auto ddprun = job.RunRaw({"--local-addr=no-such-host.invalid", "--master-addr=127.0.0.1",
                            "--master-port=" + std::to_string(job.port()), "true"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("bad input: a port that another program holds ends with 121 and is named") {
  UniqueFd listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof address;
  DDP_CHECK(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  // It does not listen: one that does, and is silent, is given 15 s (connect_test).
  DDP_CHECK(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const std::string port = std::to_string(ntohs(address.sin6_port));
  const std::string toy = Runfile("tests/e2e/toy_worker");
  const auto which = [&](const std::string& option) {
    return "port " + port + " of this machine, which " + option + " names, is in use by another";
  };
  const std::string advice = "use another port";
  Expect({{"--nnodes=2", "--rdzv-endpoint=127.0.0.1:" + port, toy},
          121,
          which("--rdzv-endpoint"),
          advice});
  Expect({{"--nnodes=2", toy}, 121, which("PET_RDZV_ENDPOINT"), advice},
         {.env = {{"PET_RDZV_ENDPOINT", "127.0.0.1:" + port}}});
  Expect({{"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=" + port, toy},
          121,
          which("--master-port"),
          advice});
}

TEST_CASE("bad input: a second job on a port is told which run is there") {
  Job job;
  auto first = job.Run(job.NodeOptions(1), {"wait"});
  AwaitMissingNodes(*first);
  Expect({{"--nnodes=2", "--rdzv-id=another-run", "--rdzv-endpoint=" + job.endpoint(),
           Runfile("tests/e2e/toy_worker")},
          121,
          "another-run",
          "use another port"});
  first->Signal(15);
  CHECK(first->Wait() == 143);
}

TEST_CASE("bad input: nodes that disagree on --nnodes are told both") {
  Job job;
  auto first = job.Run(job.NodeOptions(1, "2"), {"wait"});
  AwaitMissingNodes(*first);
  auto other = job.Run(job.NodeOptions(1, "3"), {"wait"});
  REQUIRE_MESSAGE(other->Wait() == 121, other->Describe());
  CheckLine(*other, "--nnodes=3, the job with --nnodes=2", "the same --nnodes");
  first->Signal(15);
  CHECK(first->Wait() == 143);
  CHECK(job.IsGone());
}

TEST_CASE("bad input: two nodes with one rank are refused the second time") {
  Job job;
  const std::vector<std::string> options = {"--nnodes=3", "--node-rank=1",
                                            "--master-addr=127.0.0.1",
                                            "--master-port=" + std::to_string(job.port())};
  auto zero = job.Run({"--nnodes=3", "--node-rank=0", "--master-addr=127.0.0.1",
                       "--master-port=" + std::to_string(job.port())},
                      {"wait"});
  REQUIRE_MESSAGE(zero->WaitForErr("1 of 3 nodes"), zero->Describe());
  auto one = job.Run(options, {"wait"});
  REQUIRE_MESSAGE(zero->WaitForErr("2 of 3 nodes"), zero->Describe());
  auto again = job.Run(options, {"wait"});
  REQUIRE_MESSAGE(again->Wait() == 121, again->Describe());
  CheckLine(*again, "--node-rank=1 of node ", "one of its own in 0..2 (--nnodes=3)");
  CheckLine(*again, " is held by node ", ": each needs");
  zero->Signal(15);
  one->Signal(15);
  CHECK(zero->Wait() == 143);
  CHECK(one->Wait() == 143);
  CHECK(job.IsGone());
}

TEST_CASE("bad input: a limit on open files that is too low ends with 120, wherever it bites") {
  for (const int limit : {20, 40, 63}) {
    CAPTURE(limit);
    Subprocess ddprun({"/bin/sh", "-c",
                       "ulimit -n " + std::to_string(limit) +
                           "; exec \"$0\" --standalone --nproc-per-node=2 true",
                       Runfile("ddprun")});
    REQUIRE_MESSAGE(ddprun.Wait() == 120, ddprun.Describe());
    CHECK(ddprun.err().find("ddprun: error: the limit on open files is " + std::to_string(limit) +
                            ", and ") == 0);
    CHECK(ddprun.err() ==
          Contains("ddprun needs 70 more, 64 for itself and 3 for each worker; raise the "
                   "limit (ulimit -n)\n"));
  }
}

}  // namespace
}  // namespace ddprun::testing
