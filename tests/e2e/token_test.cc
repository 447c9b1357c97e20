// Jobs whose nodes have a token: who gets in, what a stranger sees, and where the token is not.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;

constexpr char kToken[] = "6b1f0c8e5a7d4b2390e1f4a6c8d7b5e3";

// In bytes, as the soft limit of /proc/PID/limits.
std::string CoreLimit(int pid) {
  const std::string limits = ReadFile("/proc/" + std::to_string(pid) + "/limits");
  const size_t line = limits.find("Max core file size");
  REQUIRE_MESSAGE(line != std::string::npos, limits);
  const size_t begin = limits.find_first_not_of(' ', line + 18);
  return limits.substr(begin, limits.find(' ', begin) - begin);
}

// Two hosts, and the token in a file.
struct Nodes {
  static std::unique_ptr<Nodes> Make(std::string* why) {
    auto hosts = Hosts::Make(2, why);
    if (hosts == nullptr) return nullptr;
    auto nodes = std::make_unique<Nodes>();
    nodes->hosts = std::move(hosts);
    nodes->token_file = WriteFile(nodes->job.File("token"), std::string(kToken) + "\n", 0600);
    return nodes;
  }
  Node Run(int host, std::vector<std::string> steps, std::vector<std::string> more = {}) {
    std::vector<std::string> options = {"--nnodes=2", "--nproc-per-node=1", "--rdzv-id=" + job.id(),
                                        "--rdzv-endpoint=" + hosts->Address(1) + ":29400"};
    options.insert(options.end(), more.begin(), more.end());
    return job.Run(options, std::move(steps), {.netns = hosts->Name(host)});
  }
  Node WithToken(int host, std::vector<std::string> steps, std::vector<std::string> more = {}) {
    more.push_back("--token-file=" + token_file);
    return Run(host, std::move(steps), std::move(more));
  }
  std::string Output(int host, const std::string& script) const {
    Subprocess shell({"/bin/bash", "-c", script}, {.netns = hosts->Name(host)});
    shell.Wait();
    return shell.out();
  }
  // The ports of host `host` that another host can reach.
  std::vector<std::string> OpenPorts(int host) const {
    std::istringstream lines(Output(host, "ss -Hltn | awk '{print $4}'"));
    std::vector<std::string> ports;
    for (std::string line; std::getline(lines, line);) {
      const bool is_loopback = line.starts_with("127.") || line.starts_with("[::1]");
      if (!is_loopback) ports.push_back(line.substr(line.rfind(':') + 1));
    }
    return ports;
  }

  std::unique_ptr<Hosts> hosts;
  Job job;
  std::string token_file;
};

void CheckEndsWell(const Node& a, const Node& b) {
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe(), b->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, a->Describe(), b->Describe());
}

TEST_CASE("token: workers find their store on loopback, and the nodes know each other") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const std::vector<std::string> steps = {"env:MASTER_ADDR", "connect", "env:DDPRUN_NODE_ADDR"};
  const Node a = nodes->WithToken(1, steps), b = nodes->WithToken(2, steps);
  CheckEndsWell(a, b);
  for (const int host : {1, 2}) {
    const Node& node = host == 1 ? a : b;
    CHECK_MESSAGE(node->out() == "MASTER_ADDR=127.0.0.1\nconnected\nDDPRUN_NODE_ADDR=" +
                                     nodes->hosts->Address(host) + "\n",
                  node->Describe());
  }
  CHECK(a->err() ==
        Contains("agents, the workers' store and ddp's tcp backend are encrypted. So is what "
                 "ddp's nccl backend sends over TCP if NCCL is built with TLS, but not over "
                 "InfiniBand or RoCE. What workers open themselves"));
}

TEST_CASE("token: static jobs, whose store shares the coordinator's port, are as safe") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  std::vector<Node> both;
  for (const int rank : {0, 1}) {
    both.push_back(
        nodes->job.Run({"--nnodes=2", "--nproc-per-node=1", "--node-rank=" + std::to_string(rank),
                        "--master-addr=" + nodes->hosts->Address(1), "--master-port=29500",
                        "--token-file=" + nodes->token_file},
                       {"env:MASTER_ADDR", "connect"}, {.netns = nodes->hosts->Name(rank + 1)}));
  }
  CheckEndsWell(both[0], both[1]);
  for (const Node& node : both) {
    CHECK_MESSAGE(node->out() == "MASTER_ADDR=127.0.0.1\nconnected\n", node->Describe());
  }
}

TEST_CASE("token: each round has its own way to the store") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const std::vector<std::string> steps = {"connect", "print:up {restart}", "exit:3@1#0",
                                          "until:" + nodes->job.File("go")};
  const Node a = nodes->WithToken(1, steps, {"--max-restarts=1"});
  const Node b = nodes->WithToken(2, steps, {"--max-restarts=1"});
  REQUIRE_MESSAGE(a->WaitForOut("up 1"), a->Describe());
  REQUIRE_MESSAGE(b->WaitForOut("up 1"), b->Describe());
  nodes->job.Touch("go");
  CheckEndsWell(a, b);
}

TEST_CASE("token: whoever lacks it is told so with 122, and the job does not notice") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const std::vector<std::string> steps = {"connect", "until:" + nodes->job.File("go")};
  const Node a = nodes->WithToken(1, steps);
  AwaitMissingNodes(*a);
  const Node without = nodes->Run(2, steps);
  CHECK_MESSAGE(without->Wait() == 122, without->Describe());
  CHECK(without->err() == Contains("it asks for TLS, and this node was given no token"));
  const std::string other =
      WriteFile(nodes->job.File("other"), "another-token-of-thirty-two-characters", 0600);
  const Node wrong = nodes->Run(2, steps, {"--token-file=" + other});
  CHECK_MESSAGE(wrong->Wait() == 122, wrong->Describe());
  CHECK(wrong->err() == Contains("its token is another one"));
  const Node b = nodes->WithToken(2, steps);
  REQUIRE_MESSAGE(b->WaitForOut("connected"), b->Describe());
  nodes->job.Touch("go");
  CheckEndsWell(a, b);
  // Who watches the job reads of both, once each.
  for (const char* reason : {"it does not speak TLS, as a node that was given no token\n",
                             "it did not prove that it has the job's token\n"}) {
    const std::string line =
        "warning: a connection from " + nodes->hosts->Address(2) + " was refused: " + reason;
    CHECK_MESSAGE(CountOf(a->err(), line) == 1, a->Describe());
  }
}

TEST_CASE("token: a node with a token does not join a job that has none") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const Node a = nodes->Run(1, {"connect"});
  REQUIRE(a->WaitForErr("the network is trusted"));
  const Node b = nodes->WithToken(2, {"connect"});
  CHECK_MESSAGE(b->Wait() == 122, b->Describe());
  CHECK(b->err() == Contains("it runs without a token, which this node was given"));
  CHECK(a->err() == Contains("a connection from " + nodes->hosts->Address(2) +
                             " was refused: it asks for TLS, and this job has no token"));
  a->Signal(SIGTERM);
  CHECK(a->Wait() == 143);
}

TEST_CASE("token: to other hosts every port of a running job speaks TLS alone") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const std::vector<std::string> steps = {"connect", "until:" + nodes->job.File("go")};
  const Node a = nodes->WithToken(1, steps), b = nodes->WithToken(2, steps);
  REQUIRE_MESSAGE(a->WaitForOut("connected"), a->Describe());
  REQUIRE_MESSAGE(b->WaitForOut("connected"), b->Describe());
  const std::vector<std::string> ports = nodes->OpenPorts(1);
  CHECK(ports.size() == 2);  // the coordinator's, and the store's door
  for (const std::string& port : ports) {
    // A store's greeting, a hello, HTTP/2: an alert of TLS is all that comes back.
    for (const std::string bytes :
         {"\\x00", "\\x01 ddprun/1 hello\\r\\n\\r\\n", "PRI * HTTP/2.0"}) {
      CHECK(nodes->Output(2, "exec 3<>/dev/tcp/" + nodes->hosts->Address(1) + "/" + port +
                                 "; printf '" + bytes +
                                 "' >&3; timeout 20 cat <&3 | od -An -tx1") ==
            " 15 03 03 00 02 02 46\n");
    }
  }
  nodes->job.Touch("go");
  CheckEndsWell(a, b);
}

TEST_CASE("token: it is in no worker's environment, no process list, no log and no core dump") {
  Job job;
  // A soft limit on core dumps that is neither ours nor the usual one.
  const Node agent = job.RunProgram(
      {"/bin/sh", "-c", "ulimit -Sc 8; exec \"$@\"", "sh", Runfile("ddprun"), "--nnodes=1:2",
       "--nproc-per-node=1", "--rdzv-id=secret", "--rdzv-conf=last_call_timeout=0",
       "--rdzv-endpoint=" + job.endpoint(), Runfile("tests/e2e/toy_worker"),
       "touch:" + job.File("runs"), "until:" + job.File("go")},
      {.env = {{"DDPRUN_TOKEN", kToken}, {"DDPRUN_LOG_LEVEL", "trace"}}});
  REQUIRE_MESSAGE(job.WaitForFile("runs"), agent->Describe());
  const std::vector<int> processes = job.Processes();
  REQUIRE(std::ranges::count(processes, agent->pid()) == 1);
  REQUIRE(std::ranges::count(processes, job.PidOfRank(0)) == 1);
  for (const int pid : processes) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/";
    CHECK(ReadFile(folder + "environ") != Contains(kToken));
    CHECK(ReadFile(folder + "cmdline") != Contains(kToken));
  }
  CHECK(CoreLimit(agent->pid()) == "1");
  CHECK(CoreLimit(job.PidOfRank(0)) == "4096");
  job.Touch("go");
  CHECK_MESSAGE(agent->Wait() == 0, agent->Describe());
  CHECK(agent->err() + agent->out() != Contains(kToken));
}

TEST_CASE("token: what is wrong with it is said with 122, without quoting it") {
  Job job;
  struct Row {
    std::string text;
    mode_t mode;
    const char* why;
  };
  for (const Row& row : {Row{kToken, 0640, "its mode is 640, so others may read it"},
                         {kToken, 0620, "its mode is 620, so others may write it"},
                         {kToken, 0606, "its mode is 606, so others may read and write it"},
                         {std::string(100000, 'a'), 0600, "it has more than 1024 characters"},
                         {"short", 0600, "it has 5 characters"},
                         {"", 0600, "it is empty"},
                         {std::string(kToken) + " and more", 0600, "or several words"}}) {
    const std::string file = WriteFile(job.File("token"), row.text, row.mode);
    const Node agent = job.Run({"--nproc-per-node=1", "--token-file=" + file}, {});
    CHECK_MESSAGE(agent->Wait() == 122, agent->Describe());
    CHECK(agent->err() == Contains(row.why));
    CHECK(agent->err() != Contains(kToken));
  }
  const Node quoted = job.Run({"--nproc-per-node=1", std::string("--token-file=") + kToken}, {});
  CHECK_MESSAGE(quoted->Wait() == 122, quoted->Describe());
  CHECK(quoted->err() != Contains(kToken));
  CHECK(quoted->err() ==
        Contains("it names a file, as a token on the command line could be read by everybody"));
  const Node empty = job.Run({"--nproc-per-node=1"}, {}, {.env = {{"DDPRUN_TOKEN", " "}}});
  CHECK_MESSAGE(empty->Wait() == 122, empty->Describe());
  CHECK(empty->err() == Contains("DDPRUN_TOKEN: it is empty"));
  // Nobody writes to it, ever.
  REQUIRE(mkfifo(job.File("fifo").c_str(), 0600) == 0);
  const Node fifo = job.Run({"--nproc-per-node=1", "--token-file=" + job.File("fifo")}, {});
  CHECK_MESSAGE(fifo->Wait() == 122, fifo->Describe());
  CHECK(fifo->err() == Contains("it is no regular file"));
  const Node shells = job.RunProgram(
      {"/bin/bash", "-c", "exec \"$0\" --nproc-per-node=1 --token-file=<(echo \"$1\") /bin/true",
       Runfile("ddprun"), kToken});
  CHECK_MESSAGE(shells->Wait() == 0, shells->Describe());
  const Node missing = job.Run({"--nproc-per-node=1", "--token-file=" + job.File("none")}, {});
  CHECK_MESSAGE(missing->Wait() == 122, missing->Describe());
  CHECK(missing->err() == Contains("No such file or directory"));
}

TEST_CASE("token: another user's file is refused with 122, though nobody else may read it") {
  if (geteuid() != 0) return SkipTest("only root can give a file away");
  Job job;
  const std::string file = WriteFile(job.File("token"), kToken, 0600);
  REQUIRE(chown(file.c_str(), 65534, 65534) == 0);
  const Node agent = job.Run({"--nproc-per-node=1", "--token-file=" + file}, {});
  CHECK_MESSAGE(agent->Wait() == 122, agent->Describe());
  CHECK(agent->err() == Contains(file + ": it belongs to user 65534, who knows what is in it"));
  CHECK(agent->err() != Contains(kToken));
}

// The files of one node, in the job's folder.
std::vector<std::string> OwnCertificate(const Job& job, const std::string& name,
                                        const Certificate& authority, long until_s = 3600) {
  const Certificate own = MakeServerCertificate(authority, "DNS:" + name, -7200, until_s);
  return {"--tls-cert=" + WriteFile(job.File(name + ".cert"), own.certificate),
          "--tls-key=" + WriteFile(job.File(name + ".key"), own.key, 0600),
          "--tls-ca=" + WriteFile(job.File(name + ".ca"), authority.certificate)};
}

TEST_CASE("token: own certificates stand in its place") {
  std::string why;
  const auto nodes = Nodes::Make(&why);
  if (nodes == nullptr) return SkipTest("no network namespaces here: " + why);
  const Certificate authority = MakeAuthority();
  const std::vector<std::string> steps = {"env:MASTER_ADDR", "connect"};
  const Node a = nodes->Run(1, steps, OwnCertificate(nodes->job, "a", authority));
  AwaitMissingNodes(*a);
  const Node stranger = nodes->Run(2, steps, OwnCertificate(nodes->job, "c", MakeAuthority()));
  CHECK_MESSAGE(stranger->Wait() == 122, stranger->Describe());
  CHECK(stranger->err() == Contains("its certificate is not believed"));
  const Node old = nodes->Run(2, steps, OwnCertificate(nodes->job, "d", authority, -3600));
  CHECK_MESSAGE(old->Wait() == 122, old->Describe());
  CHECK(old->err() == Contains("d.cert: the certificate was valid until 20"));
  CHECK(old->err() == Contains("; make a new one, or set this machine's clock right"));
  std::vector<std::string> mixed_files = OwnCertificate(nodes->job, "g", authority);
  mixed_files[1] = "--tls-key=" + nodes->job.File("d.key");
  const Node mixed = nodes->Run(2, steps, mixed_files);
  CHECK_MESSAGE(mixed->Wait() == 122, mixed->Describe());
  CHECK(mixed->err() ==
        Contains("d.key: it is not the key of the certificate in " + nodes->job.File("g.cert")));
  std::vector<std::string> apart_files = OwnCertificate(nodes->job, "e", authority);
  apart_files.back() =
      "--tls-ca=" + WriteFile(nodes->job.File("f.ca"), MakeAuthority().certificate);
  const Node apart = nodes->Run(2, steps, apart_files);
  CHECK_MESSAGE(apart->Wait() == 122, apart->Describe());
  CHECK(apart->err() == Contains("--tls-cert " + nodes->job.File("e.cert") + ": no authority in " +
                                 nodes->job.File("f.ca") + " has signed it"));
  const Node b = nodes->Run(2, steps, OwnCertificate(nodes->job, "b", authority));
  CheckEndsWell(a, b);
  for (const Node* node : {&a, &b}) {
    CHECK_MESSAGE((*node)->out() == "MASTER_ADDR=127.0.0.1\nconnected\n", (*node)->Describe());
  }
}

TEST_CASE("token: new ones are long, each another, and in files of their owner alone") {
  Job job;
  const std::string file = job.File("new.token");
  const std::string command = Runfile("ddprun") + " token new";
  Subprocess shell(
      {"/bin/sh", "-c", "umask 0; " + command + " > " + file + "; stat -c %a " + file});
  CHECK(shell.Wait() == 0);
  CHECK(shell.out() == "600\n");
  const std::string first = ReadFile(file);
  CHECK(first.size() == 65);
  Subprocess second({Runfile("ddprun"), "token", "new"});
  CHECK(second.Wait() == 0);
  CHECK(second.out().size() == 65);
  CHECK(second.out() != first);
}

// Of a step of Slurm, in a folder of its own that counts as the cluster's.
struct StepNode {
  static constexpr char kFile[] = "folder/.ddprun-7.0-0.token";
  StepNode() { std::filesystem::create_directory(job.File("folder")); }
  // The second of two, which waits: nobody listens at the head's address.
  Node Run(std::vector<std::string> options = {}) {
    options.insert(options.begin(), Runfile(kGatedDdprun));
    options.push_back("/bin/true");
    return job.RunProgram(options, {.env = {{"SLURM_JOB_ID", "7"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_JOB_NODELIST", "127.0.0.[2-3]"},
                                            {"SLURM_STEP_NODELIST", "127.0.0.[2-3]"},
                                            {"SLURM_NODEID", "1"},
                                            {"SLURM_PROCID", "1"},
                                            {"DDPRUN_CLUSTER", ""},
                                            {kSharedDisk, "1"}},
                                    .working_dir = job.File("folder")});
  }
  Job job;
};

TEST_CASE("token: the step's file goes with its maker, also where that is killed") {
  for (const int signal : {SIGTERM, SIGKILL}) {
    StepNode step;
    const Node node = step.Run();
    REQUIRE_MESSAGE(step.job.WaitForFile(StepNode::kFile), node->Describe());
    // By then its guardian knows of the file.
    REQUIRE_MESSAGE(node->WaitForErr("waiting for the coordinator"), node->Describe());
    node->Signal(signal);
    CHECK(node->Wait() == 128 + signal);
    CHECK(Eventually([&] { return !step.job.HasFile(StepNode::kFile); }));
    CHECK(step.job.IsGone());
  }
}

// The file of a node that ends so would be gone when the next one looks for it.
TEST_CASE("token: a node that cannot start makes none for its step") {
  StepNode step;
  std::filesystem::create_symlink("nothing", step.job.File(StepNode::kFile));
  const Node taken = step.Run();
  REQUIRE_MESSAGE(taken->Wait() == 122, taken->Describe());
  const Node lacking = step.Run({"--report-file=/no/such/folder/report"});
  CHECK_MESSAGE(lacking->Wait() == 120, lacking->Describe());
}

}  // namespace
}  // namespace ddprun::testing
