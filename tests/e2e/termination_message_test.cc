// The termination message: what Kubernetes shows of a container's end.
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

TEST_CASE("termination message: every node's names the first failure of the job") {
  Job job;
  const std::vector<std::string> steps = {
      R"(error-file:{"message": "RuntimeError: no data left", "timestamp": 1738324800}@3)",
      "err:last words@3", "die:9@3", "wait"};
  auto a = job.Run(job.NodeOptions(2, "2", {"--termination-message-file=" + job.File("a")}), steps);
  auto b = job.Run(job.NodeOptions(2, "2", {"--termination-message-file=" + job.File("b")}), steps);
  REQUIRE_MESSAGE(a->Wait() == 137, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 137, b->Describe());
  const std::string text = ReadFile(job.File("a"));
  CHECK(text == ReadFile(job.File("b")));
  CHECK(text.find("rank 3 on ") == 0);
  CHECK(text == Contains(" (node_rank: 1): killed by signal 9 (SIGKILL), exit code 137\n"
                         "RuntimeError: no data left\nits last lines:\nlast words\n"));
}

TEST_CASE("termination message: a success leaves the file as it is") {
  Job job;
  std::ofstream(job.File("message")) << "as it was";
  auto ddprun = job.Run({"--termination-message-file=" + job.File("message")}, {"exit:0"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ReadFile(job.File("message")) == "as it was");
}

TEST_CASE("termination message: an end without a worker's failure has its reason") {
  Job job;
  auto ddprun =
      job.RunRaw({"--nnodes=2", "--rdzv-endpoint=" + job.endpoint(), "--rdzv-conf=join_timeout=10",
                  "--termination-message-file=" + job.File("message"), "true"});
  REQUIRE_MESSAGE(ddprun->Wait() == 121, ddprun->Describe());
  const std::string text = ReadFile(job.File("message"));
  CHECK(text.find("exit code 121: ") == 0);
  CHECK(text == Contains("1 of 2 nodes"));
}

TEST_CASE("termination message: a path that cannot be written is refused at the start") {
  Job job;
  auto ddprun = job.Run({"--termination-message-file=" + job.File("no/such")},
                        {"touch:" + job.File("started")});
  REQUIRE_MESSAGE(ddprun->Wait() == 120, ddprun->Describe());
  CHECK(ddprun->err().find("ddprun: error: --termination-message-file: ") == 0);
  CHECK_FALSE(job.HasFile("started"));
}

// Runs `command` where /dev is a container's: as the kubelet does, $FILE is mounted at
// /dev/termination-log.
constexpr char kContainer[] =
    "set -e; d=$(mktemp -d); mount -t tmpfs dev $d\n"
    "for name in null zero full random urandom tty; do\n"
    "  touch $d/$name; mount --bind /dev/$name $d/$name; done\n"
    "mkdir $d/shm; mount -t tmpfs shm $d/shm; touch $d/termination-log\n"
    "mount --bind \"$FILE\" $d/termination-log; mount --move $d /dev; rmdir $d\n"
    "exec \"$@\"";

TEST_CASE("termination message: in a container of Kubernetes it needs no option") {
  const std::vector<std::string> inside = {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                                           kContainer,         "sh"};
  Job job;
  const std::string file = job.File("message");
  std::ofstream(file).close();
  const auto in_container = [&](std::vector<std::string> command, bool is_kubernetes) {
    std::vector<std::string> argv = inside;
    argv.insert(argv.end(), command.begin(), command.end());
    Subprocess::Options how{.env = {{"FILE", file}}};
    if (is_kubernetes) how.env["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
    auto process = job.RunProgram(argv, how);
    process->Wait();
    return process;
  };
  auto there = in_container({"/bin/true"}, true);
  if (there->Wait() != 0) return SkipTest("no mount namespace here: " + there->err());
  const std::vector<std::string> command = {Runfile("ddprun"), "--standalone",
                                            Runfile("tests/e2e/toy_worker"), "exit:3"};
  auto elsewhere = in_container(command, false);
  REQUIRE_MESSAGE(elsewhere->Wait() == 3, elsewhere->Describe());
  CHECK(ReadFile(file).empty());
  auto ddprun = in_container(command, true);
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ReadFile(file) == Contains(" (node_rank: 0): exit code 3\n"));
  CHECK(ddprun->err() != Contains("warning"));
}

TEST_CASE("termination message: a machine of Kubernetes without the file is left alone") {
  Job job;
  if (ReadFile("/proc/self/mounts").find(" /dev/termination-log ") != std::string::npos) {
    return SkipTest("this is a container of Kubernetes");
  }
  auto ddprun =
      job.Run({"--standalone"}, {"exit:3"}, {.env = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ddprun->err() != Contains("warning"));
}

}  // namespace
}  // namespace ddprun::testing
