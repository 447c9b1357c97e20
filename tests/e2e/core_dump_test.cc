// Processes that hold a token or a key leave no core dump, from before they have it.
#include <doctest/doctest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;
using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr char kToken[] = "6b1f0c8e5a7d4b2390e1f4a6c8d7b5e3";
constexpr uid_t kNobody = 65534;

std::string Folder(int pid) { return "/proc/" + std::to_string(pid) + "/"; }

// In bytes, as the soft limit of /proc/PID/limits. Empty: the process has ended.
std::string CoreLimit(int pid) {
  const std::string limits = ReadFile(Folder(pid) + "limits");
  const size_t line = limits.find("Max core file size");
  if (line == std::string::npos) return "";
  const size_t begin = limits.find_first_not_of(' ', line + 18);
  return limits.substr(begin, limits.find(' ', begin) - begin);
}

// Of one that dumps no core at all they are root's (proc(5)).
uid_t OwnerOfFiles(int pid) {
  struct stat found {};
  return stat((Folder(pid) + "environ").c_str(), &found) == 0 ? found.st_uid : ~0U;
}

// Whether this process may raise a hard limit, as root in a container mostly may not.
bool MayRaise() {
  const std::string status = ReadFile("/proc/self/status");
  const uint64_t rights = std::stoull(status.substr(status.find("CapEff:") + 7), nullptr, 16);
  return (rights >> CAP_SYS_RESOURCE & 1) != 0;
}

// What runs ddprun under limits on core dumps that are neither ours nor the usual ones.
Strings Limited(Strings command, const std::string& limits = "ulimit -Sc 8") {
  command.insert(command.begin(), {"/bin/bash", "-c", limits + "; exec \"$@\"", "bash"});
  return command;
}

// Where another user may go and write: the test's own folders are below root's.
class OpenFolder {
 public:
  OpenFolder() {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
    REQUIRE(chmod(path_.c_str(), 01777) == 0);
  }
  ~OpenFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/ddprun-core-test.XXXXXX";
};

// The words that give a secret, each in its own way.
std::vector<Strings> Secrets(const Job& job) {
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  return {{"--token-file=" + WriteFile(job.File("token"), kToken, 0600)},
          {"--tls-cert=" + WriteFile(job.File("cert"), own.certificate),
           "--tls-key=" + WriteFile(job.File("key"), own.key, 0600),
           "--tls-ca=" + WriteFile(job.File("ca"), authority.certificate)}};
}

TEST_CASE("core dumps: agent and guardian leave none, workers as many as their user wants") {
  Job job;
  for (const Strings& secret : Secrets(job)) {
    Strings command = {Runfile("ddprun"), "--nnodes=1:2", "--rdzv-id=core",
                       "--rdzv-conf=last_call_timeout=0", "--rdzv-endpoint=" + job.endpoint()};
    command.insert(command.end(), secret.begin(), secret.end());
    const Strings worker = {Runfile("tests/e2e/toy_worker"), "touch:" + job.File("runs"),
                            "until:" + job.File("go")};
    command.insert(command.end(), worker.begin(), worker.end());
    const Node agent = job.RunProgram(Limited(command));
    REQUIRE_MESSAGE(job.WaitForFile("runs"), agent->Describe());
    int ours = 0;
    for (const int pid : job.Processes()) {
      const bool is_worker = pid == job.PidOfRank(0);
      if (!is_worker) ++ours;
      CAPTURE(ReadFile(Folder(pid) + "cmdline"));
      CHECK(CoreLimit(pid) == (is_worker ? "8192" : "1"));
    }
    CHECK(ours == 2);
    job.Touch("go");
    CHECK_MESSAGE(agent->Wait() == 0, agent->Describe());
    fs::remove(job.File("go"));
    fs::remove(job.File("runs"));
  }
}

TEST_CASE("core dumps: an agent that has etcd's password leaves none") {
  Job job;
  const Node agent = job.RunProgram(
      Limited({Runfile("ddprun"), "--nnodes=2", "--rdzv-id=core", "--rdzv-backend=etcd",
               "--rdzv-endpoint=127.0.0.1:1", "--rdzv-conf=user=me", "/bin/true"}),
      {.env = {{"DDPRUN_ETCD_PASSWORD", "secret"}}});
  REQUIRE_MESSAGE(agent->WaitForErr("127.0.0.1:1"), agent->Describe());
  CHECK(CoreLimit(agent->pid()) == "1");
  agent->Signal(SIGTERM);
  CHECK_MESSAGE(agent->Wait() == 143, agent->Describe());
}

TEST_CASE("core dumps: a coordinator and who asks it leave none") {
  Job job;
  for (const Strings& secret : Secrets(job)) {
    Strings command = {Runfile("ddprun"), "coordinator",
                       "--bind=127.0.0.1:" + std::to_string(job.port())};
    command.insert(command.end(), secret.begin(), secret.end());
    const Node coordinator = job.RunProgram(Limited(command));
    REQUIRE_MESSAGE(coordinator->WaitForErr("listening on"), coordinator->Describe());
    CHECK(CoreLimit(coordinator->pid()) == "1");
    coordinator->Signal(SIGTERM);
    CHECK_MESSAGE(coordinator->Wait() == 143, coordinator->Describe());
  }
}

// A command that has no use for it has it all the same.
TEST_CASE("core dumps: whatever is asked for, a token in the environment is in none") {
  Job job;
  const Node bench = job.RunProgram(
      Limited({Runfile("ddprun"), "bench", "dp-ddp", "--output=" + job.File("bench")}),
      {.env = {{"DDPRUN_TOKEN", kToken}}});
  CHECK_MESSAGE(Eventually([&] { return CoreLimit(bench->pid()) == "1"; }), bench->Describe());
  bench->Signal(SIGTERM);
  bench->Wait();
}

// The shell's <(command), which gives the token when the file is there.
TEST_CASE("core dumps: there are none from before the token is read") {
  Job job;
  for (const std::string words : {"--nproc-per-node=1", "coordinator --bind=127.0.0.1:0",
                                  "status --coordinator=127.0.0.1:1"}) {
    const std::string late = "<(until [ -e " + job.File("go") + " ]; do :; done; echo $TOKEN)";
    const Node early =
        job.RunProgram({"/bin/bash", "-c",
                        "ulimit -Sc 8; exec " + Runfile("ddprun") + " " + words +
                            " --token-file=" + late + (words[0] == '-' ? " /bin/true" : "")},
                       {.env = {{"TOKEN", kToken}}});
    CAPTURE(words);
    CHECK_MESSAGE(Eventually([&] { return CoreLimit(early->pid()) == "1"; }), early->Describe());
    early->Signal(SIGKILL);
    early->Wait();
    job.Touch("go");  // for the shell's child
    REQUIRE(job.IsGone());
    fs::remove(job.File("go"));
  }
}

TEST_CASE("core dumps: with a hard limit of 0 none is passed to a program either") {
  if (geteuid() != 0) return SkipTest("only root can run ddprun as another user");
  const OpenFolder open_folder;
  const std::string& folder = open_folder.path();
  const std::string ddprun = folder + "/ddprun", go = folder + "/go";
  fs::copy_file(Runfile("ddprun"), ddprun);
  Job job;
  const Strings user = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  for (const bool is_root : {true, false}) {
    for (const bool has_token : {true, false}) {
      CAPTURE(is_root);
      CAPTURE(has_token);
      Strings command = {
          ddprun,
          "--nproc-per-node=1",
          "--log-dir=" + folder + "/logs",
          "--tee=3",
          "--report-file=" + folder + "/report",
          "--hang-timeout=600",
          "/bin/bash",
          "-c",
          "ulimit -c; until [ -e " + go + " ]; do read -t 0.01; done <> <(:); exit 0"};
      if (!is_root) command.insert(command.begin(), user.begin(), user.end());
      const Node agent = job.RunProgram(Limited(command, "cd " + folder + "; ulimit -Hc 0"),
                                        {.env = {{"DDPRUN_TOKEN", has_token ? kToken : ""},
                                                 {"TMPDIR", folder},
                                                 {"DDPRUN_CONTROL_DIR", ""},
                                                 {"XDG_RUNTIME_DIR", folder}}});
      REQUIRE_MESSAGE(agent->WaitForOut("\n"), agent->Describe());
      CHECK_MESSAGE(agent->out() == "[default0]:0\n", agent->Describe());
      for (const int pid : job.Processes()) {
        const std::string limit = CoreLimit(pid);
        const uid_t owner = OwnerOfFiles(pid);
        std::error_code has_gone;  // the last thing asked: what was told before is of a live one
        const std::string program = fs::read_symlink(Folder(pid) + "exe", has_gone).string();
        if (has_gone) continue;
        CAPTURE(program);
        const bool holds = program == ddprun && has_token;
        CHECK(limit == (holds && is_root && MayRaise() ? "1" : "0"));
        CHECK(owner == (holds || is_root ? 0 : kNobody));
      }
      WriteFile(go, "");
      CHECK_MESSAGE(agent->Wait() == 0, agent->Describe());
      CHECK(agent->err() != Contains("warning"));
      fs::remove(go);
      fs::remove(folder + "/report");
    }
    fs::remove_all(folder + "/logs");
  }
}

}  // namespace
}  // namespace ddprun::testing
