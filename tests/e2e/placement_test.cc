// --numa-binding and --virtual-local-rank: what real workers find, on a /sys of the test's own and
// with GPUs that the double plays.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include <doctest/doctest.h>

#include "rendezvous/base/allowed_cpus.h"
#include "tests/e2e/job.h"
#include "tests/gates/gates.h"
#include "tests/launcher/placement/fake_sys.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

using launcher::CpuSet;
using launcher::FormatCpuList;
using Env = std::map<std::string, std::string>;

constexpr char kSayCpus[] =
    "echo $RANK.$TORCHELASTIC_RESTART_COUNT: "
    "$(grep Cpus_allowed_list /proc/self/status | cut -f2)";

// Two NUMA nodes that share this machine's CPUs; GPU 0 is at node 1, GPU 1 at node 0.
class TwoNodes {
 public:
  TwoNodes() {
    const CpuSet all = AllowedCpus();
    FakeMachine machine;
    for (const int cpu : all) {
      const int node = machine.cpus.size() < (all.size() + 1) / 2 ? 0 : 1;
      machine.nodes[node].insert(cpu);
      machine.cpus[cpu] = {
          .package = node, .core = {cpu}, .caches = {{.level = 3, .shared = {cpu}}}};
    }
    machine.devices = {{BusIdOf(0), 1}, {BusIdOf(1), 0}};
    WriteSys(machine, sys_.path().string());
    nodes_ = machine.nodes;
  }
  static bool IsPossible() { return AllowedCpus().size() >= 2; }

  std::string Node(int node) const { return FormatCpuList(nodes_.at(node)); }
  std::string First(int node) const { return std::to_string(*nodes_.at(node).begin()); }
  size_t CoresOf(int node) const { return nodes_.at(node).size(); }
  // With two GPUs; `more` wins.
  Env With(Env more = {}) const {
    const std::string path =
        std::filesystem::absolute(Runfile("tests/gpu_double/libgpu_double.so")).string();
    more.insert({{kSysRoot, sys_.path().string()},
                 {"DDPRUN_CUDA_LIB", path},
                 {"DDPRUN_DOUBLE_GPUS", "2"},
                 {"CUDA_VISIBLE_DEVICES", ""},  // unset
                 {"OMP_NUM_THREADS", "1"}});
    return more;
  }

 private:
  TempDir sys_;
  std::map<int, CpuSet> nodes_;
};

std::vector<std::string> Shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"/bin/sh", "-c", script});
  return options;
}

const char* DdprunFor(const Env& env) { return env.contains(kSysRoot) ? kGatedDdprun : "ddprun"; }

// The lines that a job that succeeds writes, sorted.
std::string LinesOf(std::vector<std::string> options, const std::string& script, const Env& env) {
  Job job(DdprunFor(env));
  auto ddprun = job.RunRaw(Shell(std::move(options), script), {.env = env});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  std::vector<std::string> lines;
  std::istringstream text(ddprun->out());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  std::string sorted;
  for (const std::string& line : lines) sorted += line + "\n";
  return sorted;
}

// The one line of a job that does not start: none of its workers runs.
std::string ErrorOf(std::vector<std::string> options, int code, const Env& env) {
  Job job(DdprunFor(env));
  auto ddprun = job.RunRaw(Shell(std::move(options), "echo ran"), {.env = env});
  CHECK_MESSAGE(ddprun->Wait() == code, ddprun->Describe());
  CHECK(ddprun->out() == "");
  const std::string err = ddprun->err();
  CHECK_MESSAGE(std::count(err.begin(), err.end(), '\n') == 1, err);
  return err;
}

TEST_CASE("placement: each worker finds itself on the CPUs near its GPU") {
  if (!TwoNodes::IsPossible()) return SkipTest("one CPU cannot be two NUMA nodes");
  const TwoNodes machine;
  const std::string expected = "0.0: " + machine.Node(1) + "\n1.0: " + machine.Node(0) + "\n";
  for (const char* mode : {"node", "socket", "exclusive"}) {
    CHECK(LinesOf({"--nproc-per-node=2", std::string("--numa-binding=") + mode}, kSayCpus,
                  machine.With()) == expected);
  }
  CHECK(LinesOf({"--nproc-per-node=gpu", "--numa-binding", "core-complex"}, kSayCpus,
                machine.With()) ==
        "0.0: " + machine.First(1) + "\n1.0: " + machine.First(0) + "\n");
  CHECK(LinesOf({"--nproc-per-node=gpu:1,0", "--numa-binding=node"}, kSayCpus, machine.With()) ==
        "0.0: " + machine.Node(0) + "\n1.0: " + machine.Node(1) + "\n");
}

TEST_CASE("placement: restarted workers are bound again, and the GPUs are those left visible") {
  if (!TwoNodes::IsPossible()) return SkipTest("one CPU cannot be two NUMA nodes");
  const TwoNodes machine;
  const std::string script =
      std::string(kSayCpus) + "; test $TORCHELASTIC_RESTART_COUNT = 1 || exit 3";
  CHECK(LinesOf({"--max-restarts=1", "--numa-binding=node"}, script,
                machine.With({{"CUDA_VISIBLE_DEVICES", "1"}})) ==
        "0.0: " + machine.Node(0) + "\n0.1: " + machine.Node(0) + "\n");
}

TEST_CASE("placement: without a GPU the workers are spread over the nodes") {
  if (!TwoNodes::IsPossible()) return SkipTest("one CPU cannot be two NUMA nodes");
  const TwoNodes machine;
  const std::string expected = "0.0: " + machine.Node(0) + "\n1.0: " + machine.Node(1) + "\n";
  for (const Env& more :
       {Env{{"DDPRUN_CUDA_LIB", "/no/such/libcuda.so.1"}}, Env{{"CUDA_VISIBLE_DEVICES", "-1"}}}) {
    CHECK(LinesOf({"--nproc-per-node=2", "--numa-binding=node"}, kSayCpus, machine.With(more)) ==
          expected);
  }
}

TEST_CASE("placement: a binding that cannot be is one line and 120, before any worker") {
  if (!TwoNodes::IsPossible()) return SkipTest("one CPU cannot be two NUMA nodes");
  const TwoNodes machine;
  CHECK(ErrorOf({"--nproc-per-node=3", "--numa-binding=node"}, 120, machine.With()) ==
        Contains("ddprun: error: --numa-binding 'node': local rank 2 has no GPU: 2 visible"));
  CHECK(ErrorOf({"--numa-binding=socket"}, 120,
                machine.With({{"CUDA_VISIBLE_DEVICES", "GPU-ffffffff"}})) ==
        Contains(
            "--numa-binding 'socket': no GPU is visible: CUDA_VISIBLE_DEVICES is 'GPU-ffffffff'"));
  CHECK(ErrorOf({"--numa-binding=node"}, 120,
                machine.With({{"DDPRUN_DOUBLE_FAULT", "cuinit=999"}})) ==
        Contains("--numa-binding 'node': "));
  CHECK(ErrorOf({"--numa-binding=node"}, 120, machine.With({{kSysRoot, "/no/such/sys"}})) ==
        Contains("local rank 0's GPU: read /no/such/sys/bus/pci/devices/0000:10:00.0/numa_node: No "
                 "such file"));
  const size_t workers = 2 * machine.CoresOf(0) + 1;
  CHECK(ErrorOf({"--nproc-per-node=" + std::to_string(workers), "--numa-binding=exclusive"}, 120,
                machine.With({{"CUDA_VISIBLE_DEVICES", "-1"}})) ==
        Contains(" physical cores for "));
}

TEST_CASE("placement: this machine's own /sys will do") {
  if (!std::filesystem::exists("/sys/devices/system/node/node0")) {
    return SkipTest("the kernel tells nothing about NUMA nodes");
  }
  const TwoNodes machine;
  Env env = machine.With({{"CUDA_VISIBLE_DEVICES", "-1"}});
  env.erase(kSysRoot);
  const std::string line = LinesOf({"--numa-binding=node"}, kSayCpus, env);
  CHECK(line == Contains("0.0: "));
  CHECK(line.size() > std::string("0.0: \n").size());
}

constexpr char kSayDevice[] = "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES $0";

TEST_CASE("virtual local rank: every worker is local rank 0 and sees its own GPU alone") {
  const std::vector<std::string> options = {"--nproc-per-node=2", "--virtual-local-rank"};
  const Env plain = {{"CUDA_VISIBLE_DEVICES", ""}, {"OMP_NUM_THREADS", "1"}};
  const auto lines = [&](const Env& env, std::vector<std::string> how) {
    how.insert(how.end(), {"/bin/sh", "-c", kSayDevice, "arg${local_rank}"});
    Job job;
    auto ddprun = job.RunRaw(how, {.env = env});
    CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
    std::string out = ddprun->out();
    return out[0] == '1' ? out.substr(out.find('\n') + 1) + out.substr(0, out.find('\n') + 1) : out;
  };
  CHECK(lines(plain, options) == "0 0 2 0 arg0\n1 0 2 1 arg1\n");
  Env chosen = plain;
  chosen["CUDA_VISIBLE_DEVICES"] = "7, GPU-a1 ,5";
  CHECK(lines(chosen, options) == "0 0 2 7 arg0\n1 0 2 GPU-a1 arg1\n");
  chosen["PET_VIRTUAL_LOCAL_RANK"] = "1";
  CHECK(lines(chosen, {"--nproc-per-node=2"}) == "0 0 2 7 arg0\n1 0 2 GPU-a1 arg1\n");
}

TEST_CASE("virtual local rank: the agent's own count of local ranks stays the real one") {
  Job job;
  auto ddprun = job.RunRaw(
      Shell(
          {"--nproc-per-node=2", "--virtual-local-rank", "--log-dir=" + job.File("logs"), "-t1:1"},
          "echo said; case $TORCHELASTIC_ERROR_FILE in */$RANK/error.json) ;; *) exit 9;; esac; "
          "exit $((RANK * 5))"),
      {.env = {{"CUDA_VISIBLE_DEVICES", ""}}});
  CHECK_MESSAGE(ddprun->Wait() == 5, ddprun->Describe());
  CHECK(ddprun->out() == Contains("[default1]:said\n"));
  CHECK(ddprun->err() == Contains("(local_rank: 1)"));
}

TEST_CASE("virtual local rank: a local rank beyond CUDA_VISIBLE_DEVICES ends with 2") {
  CHECK(ErrorOf({"--nproc-per-node=3", "--virtual-local-rank"}, 2,
                {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"OMP_NUM_THREADS", "1"}}) ==
        "ddprun: error: --virtual-local-rank: local rank 2 exceeds the GPUs in "
        "CUDA_VISIBLE_DEVICES '0,1': expected one for each of 3 workers\n");
}

}  // namespace
}  // namespace ddprun::testing
