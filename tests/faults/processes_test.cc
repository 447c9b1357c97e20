// Faults of processes on one node, each over ddprun and over one without the defence.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/faults/bench.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Strings = std::vector<std::string>;

std::string DidNotFire(const Subprocess& process) {
  return "the fault did not fire:" + process.Describe();
}

bool HasProcessOf(const Job& job, const std::string& name, const std::string& value) {
  const std::vector<int> all = ProcessesWithEnv(name, value);
  for (const int pid : job.Processes()) {
    if (std::find(all.begin(), all.end(), pid) != all.end()) return true;
  }
  return false;
}

std::string IgnoreTerm(Bench& bench) {
  Job& job = bench.job();
  const Bench::Node node =
      bench.Run({"--shutdown-timeout=1"}, {"ignore:15", "touch:" + job.File("up"), "wait"});
  if (!job.WaitForFile("up")) return DidNotFire(*node);
  node->Signal(SIGTERM);
  if (!bench.Says(*node, "SIGKILL comes in 1 s")) return DidNotFire(*node);
  if (!bench.DefenceBrings([&] { return HasEnded(*node); })) {
    return "the worker lives on after its grace";
  }
  if (!bench.Ends(*node, 128 + SIGTERM)) return "it ends with another code:" + node->Describe();
  const std::string told = "did not end within 1 s of SIGTERM: killed";
  return CountOf(node->err(), told) == 1 ? "" : "nobody is told:" + node->Describe();
}

TEST_CASE("F03: a worker that ignores SIGTERM is killed after the grace, and named") {
  CheckHoldsBy("kill after the grace", IgnoreTerm, "the worker lives on after its grace");
}

std::string LeaveDaemon(Bench& bench) {
  Job& job = bench.job();
  const Bench::Node node =
      bench.Run({"--max-restarts=1"},
                {"grandchild", "touch:" + job.File("up.{restart}"),
                 "until:" + job.File("die") + "#0", "exit:3#0", "until:" + job.File("go") + "#1"});
  if (!job.WaitForFile("up.0") || job.PidsOfRank(0).size() != 2) return DidNotFire(*node);
  bench.NoteDescriptors(*node);
  job.Touch("die");
  if (!job.WaitForFile("up.1")) return "no second round:" + node->Describe();
  if (HasProcessOf(job, "TORCHELASTIC_RESTART_COUNT", "0")) {
    return "a daemon of the first round lives beside the workers of the second";
  }
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  return bench.Ends(*node, 0) ? "" : "it does not end with 0:" + node->Describe();
}

TEST_CASE("F05: what a worker has daemonised is dead before the next round") {
  CheckHoldsBy("leftovers end before the next round", LeaveDaemon,
               "a daemon of the first round lives beside the workers of the second");
}

std::string KillAgent(Bench& bench) {
  Job& job = bench.job();
  const Bench::Node node = bench.Run(
      {"--nproc-per-node=2"}, {"grandchild", "touch:" + job.File("up{rank}"), "ignore:15", "wait"});
  if (!job.WaitForFile("up0") || !job.WaitForFile("up1")) return DidNotFire(*node);
  node->Signal(SIGKILL);
  if (node->Wait() != 128 + SIGKILL) return DidNotFire(*node);
  const auto has_workers = [&] { return job.HasWorker(0) || job.HasWorker(1); };
  return bench.DefenceBrings([&] { return !has_workers(); }) ? "" : "workers outlive their agent";
}

TEST_CASE("F09: workers and their daemons die with an agent that is killed") {
  CheckHoldsBy("workers die with their agent", KillAgent, "workers outlive their agent");
}

// The worker of rank 0 has ended and its pid comes again, as that of a process that leads a session
// and a group; then the agent gets the signal.
std::string ReusePid(Bench& bench, int signal) {
  Job& job = bench.job();
  const std::string up = "up{rank}.{pid}.";
  const Bench::Node node =
      bench.RunUnder({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                      Runfile("tests/faults/pid_taker"), job.File("pid"), std::to_string(signal)},
                     {"--nproc-per-node=2", "--shutdown-timeout=1", Runfile("tests/e2e/toy_worker"),
                      "touch:" + job.File(up), "until:" + job.File("end") + "@0", "wait@1"});
  int pid = 0;
  const auto have_come = [&] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(job.File("."))) {
      const std::string name = entry.path().filename();
      if (name.starts_with("up")) ++count;
      if (name.starts_with("up0.")) pid = std::stoi(name.substr(4));
    }
    return count == 2;
  };
  if (!bench.Eventually(have_come)) return DidNotFire(*node);
  job.Touch("end");
  if (!bench.Eventually([&] { return !job.HasWorker(0); })) return DidNotFire(*node);
  WriteFile(job.File("pid.new"), std::to_string(pid) + "\n");
  std::filesystem::rename(job.File("pid.new"), job.File("pid"));
  if (!node->WaitForOut("taken\n")) return DidNotFire(*node);
  if (!node->Wait().has_value()) return "it does not end:" + node->Describe();
  if (CountOf(node->out(), "killed by 9") > 0) return "a foreign process is killed";
  return node->out() == "taken\nuntouched\n" ? "" : "a foreign process is told:" + node->Describe();
}

TEST_CASE("F12: whoever has the pid of a worker that has ended gets no signal of ours") {
  Job probe;
  const auto inside =
      probe.RunProgram({"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c",
                        "cat /proc/sys/kernel/ns_last_pid >/proc/sys/kernel/ns_last_pid"});
  if (inside->Wait() != 0) return SkipTest("no pid namespaces here: " + inside->err());
  for (const int signal : {SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    CheckHoldsBy(
        "who has been reaped is forgotten",
        [signal](Bench& bench) { return ReusePid(bench, signal); }, "a foreign process is killed");
  }
}

std::string FillDisk(Bench& bench) {
  Job& job = bench.job();
  const std::string disk = job.File("disk");
  std::filesystem::create_directory(disk);
  const std::string fill = "mount -t tmpfs -o size=16k logs " + disk + " && { cat /dev/zero >" +
                           disk + "/fill 2>/dev/null; exec \"$@\"; }";
  // More than lies between a worker and its file.
  const std::string much =
      "for i in $(seq 80); do head -c 100000 /dev/zero | tr '\\0' x; echo; done";
  const std::string script = "touch " + job.File("up") + "; until test -e " + job.File("write") +
                             "; do sleep 0.01; done; " + much + "; touch " + job.File("written") +
                             "; until test -e " + job.File("go") + "; do sleep 0.01; done";
  const Bench::Node node =
      bench.RunUnder({"/usr/bin/unshare", "--mount", "/bin/sh", "-c", fill, "sh"},
                     {"--log-dir=" + disk, "-r3", "/bin/sh", "-c", script});
  if (!job.WaitForFile("up")) return DidNotFire(*node);
  bench.NoteDescriptors(*node);
  job.Touch("write");
  if (!bench.DefenceBrings([&] { return job.HasFile("written"); }))
    return "a full disk holds up the worker";
  if (!bench.Says(*node, "No space left on device; the workers go on")) return DidNotFire(*node);
  const std::string grown = bench.CheckDescriptors();
  if (!grown.empty()) return grown;
  job.Touch("go");
  if (!bench.Ends(*node, 0)) return "it does not end with 0:" + node->Describe();
  const std::string told = "warning: 80 lines are missing from log files in " + disk;
  return CountOf(node->err(), told) == 1 ? "" : "nobody is told:" + node->Describe();
}

TEST_CASE("F32: a full disk of the logs holds up no worker, and is told") {
  Job probe;
  const auto inside =
      probe.RunProgram({"/usr/bin/unshare", "--mount", "/bin/sh", "-c", "mount -t tmpfs x /mnt"});
  if (inside->Wait() != 0) return SkipTest("no mount namespaces here: " + inside->err());
  CheckHoldsBy("a file that takes no more stops nobody", FillDisk,
               "a full disk holds up the worker");
}

}  // namespace
}  // namespace ddprun::testing
