// The backend of torch.distributed, with PyTorch itself: programs in Python, under ddprun.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/version.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

constexpr std::chrono::minutes kPatience(5);

Subprocess::Options Environment() {
  const std::string package = Runfile("python/ddprun/__init__.py");
  return {.env = {{"PYTHONPATH", std::filesystem::path(package).parent_path().parent_path()},
                  {"PYTHONDONTWRITEBYTECODE", "1"},
                  {"DDPRUN_LIBDDP", Runfile("worker_runtime/libddp.so")}}};
}

// A program of this folder, with `ranks` ranks.
std::vector<std::string> Job(int ranks, const std::string& program,
                             const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> argv = {Runfile("ddprun"),
                                   "--nproc-per-node=" + std::to_string(ranks),
                                   "--no-python",
                                   FindTorchPython().python,
                                   "-W",
                                   "ignore",
                                   Runfile("tests/torch/" + program)};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

void CheckPasses(int ranks, const std::string& program,
                 const std::vector<std::string>& arguments = {}) {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  CAPTURE(program);
  Subprocess job(Job(ranks, program, arguments), Environment());
  CHECK_MESSAGE(job.Wait(kPatience) == 0, job.Describe());
  CHECK(CountOf(job.out(), "checks passed") == ranks);
}

TEST_CASE("torch: every collective gives what it gives over Gloo, with 1, 2 and 3 ranks") {
  for (int ranks : {1, 2, 3}) CheckPasses(ranks, "collectives.py");
}

TEST_CASE("torch: works are dropped, shared, timed out and refused as they should be") {
  CheckPasses(2, "works.py");
}

TEST_CASE("torch: a group, and the time that a rank waits in it, stand in the launcher's page") {
  CheckPasses(2, "pages.py");
}

TEST_CASE("torch: DDP, its hooks, fully_shard, DTensor and checkpoints train as over Gloo") {
  const TempDir folder;
  CheckPasses(2, "training.py", {folder.File("checkpoint")});
}

TEST_CASE("torch: compiled models and functional collectives give what uncompiled ones do") {
  // Its backends; inductor compiles C++, in a cache of the user's.
  for (const char* compiler : {"eager", "aot_eager", "inductor"}) {
    CheckPasses(2, "compiled.py", {compiler});
  }
}

// Shared memory within a host, TCP between the two.
TEST_CASE("torch: the same on two hosts, with one and two ranks each") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  std::string why;
  const auto hosts = Hosts::Make(2, &why);
  if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
  const TempDir folder;
  struct Row {
    int ranks;  // of each host
    std::string program;
    std::vector<std::string> arguments;
  };
  for (const Row& row : {Row{2, "collectives.py", {}}, Row{1, "works.py", {}},
                         Row{2, "training.py", {folder.File("checkpoint")}}}) {
    CAPTURE(row.program);
    std::vector<std::string> argv = Job(row.ranks, row.program, row.arguments);
    argv.insert(argv.begin() + 1, {"--nnodes=2", "--rdzv-id=" + row.program,
                                   "--rdzv-endpoint=" + hosts->Address(1) + ":29400"});
    std::vector<std::unique_ptr<Subprocess>> nodes;
    for (int host : {1, 2}) {
      Subprocess::Options options = Environment();
      options.netns = hosts->Name(host);
      options.env["GLOO_SOCKET_IFNAME"] = "eth0";
      nodes.push_back(std::make_unique<Subprocess>(argv, options));
    }
    for (const auto& node : nodes) {
      CHECK_MESSAGE(node->Wait(kPatience) == 0, node->Describe());
      CHECK(CountOf(node->out(), "checks passed") == row.ranks);
    }
  }
}

TEST_CASE("torch: tensors on GPUs go to PyTorch's own group") { CheckPasses(1, "on_gpus.py"); }

TEST_CASE("torch: no ending hangs or crashes") {
  for (const char* ending :
       {"no-destroy", "destroy-twice", "drop-after-destroy", "leave-messages", "abort",
        "exit-in-collective", "exit-in-thread", "interrupt", "fork", "mismatch"}) {
    CheckPasses(2, "endings.py", {ending});
  }
}

TEST_CASE("torch: a group forms without pauses, and Ctrl-C ends the wait for its ranks") {
  for (const char* scenario : {"no-pauses", "interrupt", "interrupt-and-end"})
    CheckPasses(2, "forming.py", {scenario});
}

TEST_CASE("torch: a group has few descriptors, and gives them back") {
  CheckPasses(2, "forming.py", {"descriptors"});
}

TEST_CASE("torch: a group for which there is nothing left is an exception that names the limit") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  for (const auto& [scenario, limit] : std::map<std::string, std::string>{
           {"out-of-descriptors", "(ulimit -n)"}, {"out-of-memory", "(ulimit -v)"}}) {
    Subprocess job(Job(2, "forming.py", {scenario}), Environment());
    CHECK_MESSAGE(job.Wait(kPatience) == 1, job.Describe());
    CHECK_MESSAGE(job.err() == Contains("DistBackendError: ddp: "), job.Describe());
    CHECK_MESSAGE(job.err() == Contains(limit), job.Describe());
  }
}

TEST_CASE("torch: a rank that dies is named to the other, in messages and collectives") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  Subprocess job(Job(2, "endings.py", {"die"}), Environment());
  CHECK(job.Wait(kPatience) == 128 + 9);
  CHECK_MESSAGE(CountOf(job.out(), "told: ddp: ") == 2, job.Describe());
}

// The interpreter of the rank that fails takes longer to end than the others need to fail of that.
TEST_CASE("torch: a rank that fails because another one left does not hide the cause") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  for (int i = 0; i < 3; ++i) {
    Subprocess job(Job(3, "endings.py", {"leave"}), Environment());
    CHECK_MESSAGE(job.Wait(kPatience) == 7, job.Describe());
    CHECK_MESSAGE(CountOf(job.err(), "exit code 7: that of rank 2") == 1, job.Describe());
  }
}

// Over another store than ddprun's.
TEST_CASE("torch: it runs under torchrun") {
  const TorchPython& torch = FindTorchPython();
  if (torch.torchrun.empty()) return SkipWithoutTorch();
  Subprocess job(
      {torch.torchrun, "--standalone", "--nproc-per-node=2", Runfile("tests/torch/works.py")},
      Environment());
  CHECK_MESSAGE(job.Wait(kPatience) == 0, job.Describe());
  CHECK(CountOf(job.out(), "checks passed") == 2);
}

std::vector<std::string> Bench(const std::vector<std::string>& options) {
  std::vector<std::string> argv = {FindTorchPython().python, "-W", "ignore", "-m", "ddprun.bench"};
  argv.insert(argv.end(), options.begin(), options.end());
  return argv;
}

TEST_CASE(
    "torch: the benchmark says how long it takes and what it measures, and keeps to its time") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  Subprocess whole(Bench({"--ranks=2", "--models=mlp", "--steps=5"}), Environment());
  CHECK_MESSAGE(whole.Wait(kPatience) == 0, whole.Describe());
  CHECK_MESSAGE(whole.err() == Contains("ddprun.bench: this takes about "), whole.Describe());
  CHECK_MESSAGE(whole.err() == Contains("2 ranks, mlp: turn 1 of 5"), whole.Describe());
  CHECK_MESSAGE(whole.out() == Contains("step, mlp, 0.67 M"), whole.Describe());
  // More steps than there are in this time.
  Subprocess cut(Bench({"--ranks=2", "--models=mlp", "--steps=10000", "--seconds=1"}),
                 Environment());
  CHECK_MESSAGE(cut.Wait(kPatience) == 0, cut.Describe());
  CHECK_MESSAGE(cut.out() == Contains(" of 5 turns"), cut.Describe());
  CHECK_MESSAGE(cut.out() == Contains("fewer steps"), cut.Describe());
}

TEST_CASE("torch: a signal that is ignored where a benchmark starts does not end it") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  std::vector<std::string> argv = {"/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh"};
  for (const std::string& each : Bench({"--ranks=2", "--models=mlp", "--steps=10000"})) {
    argv.push_back(each);
  }
  Subprocess bench(argv, Environment());
  CHECK_MESSAGE(bench.WaitForErr("turn 1 of 5", kPatience), bench.Describe());
  bench.Signal(SIGHUP);
  bench.Signal(SIGTERM);
  CHECK_MESSAGE(bench.Wait(kPatience) == 128 + SIGTERM, bench.Describe());
}

TEST_CASE("torch: a benchmark that is ended leaves no file and no process") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  for (int signal : {SIGTERM, SIGINT, SIGKILL}) {
    CAPTURE(signal);
    const TempDir folder;
    Subprocess::Options options = Environment();
    options.env["TMPDIR"] = folder.path();
    const TempDir cache;  // PyTorch's own
    options.env["TORCHINDUCTOR_CACHE_DIR"] = cache.path();
    Subprocess bench(Bench({"--ranks=2", "--models=mlp", "--steps=10000"}), options);
    CHECK_MESSAGE(bench.WaitForErr("turn 1 of 5", kPatience), bench.Describe());
    CHECK(std::filesystem::is_empty(folder.path()));
    bench.Signal(signal);
    CHECK_MESSAGE(bench.Wait(kPatience) == 128 + signal, bench.Describe());
    CHECK(Eventually([&] { return ProcessesWithEnv("TMPDIR", folder.path()).empty(); }));
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

std::string ImportIn(const std::string& python, const std::string& code,
                     const std::map<std::string, std::string>& more) {
  Subprocess::Options options = Environment();
  for (const auto& [name, value] : more) options.env[name] = value;
  Subprocess process({python, "-c", code}, options);
  CHECK(process.Wait(kPatience) == 1);
  const std::string err = process.err();
  const size_t last = err.rfind("ImportError: ");
  CHECK_MESSAGE(last != std::string::npos, err);
  return last == std::string::npos ? "" : err.substr(last);
}

TEST_CASE("torch: what is missing is one sentence") {
  const std::string python = FindTorchPython().python;
  if (python.empty()) return SkipWithoutTorch();
  CHECK(
      ImportIn(python, "import ddprun.torch", {{"DDPRUN_LIBDDP", "/nowhere/libddp.so"}})
          .find("ImportError: ddprun: cannot load libddp.so: /nowhere/libddp.so: there is no such "
                "file.") == 0);
  CHECK(ImportIn(python, "import sys; sys.modules['torch'] = None; import ddprun.torch", {})
            .find("ImportError: ddprun.torch needs PyTorch 2.4 or newer, and this Python cannot "
                  "import torch") == 0);
  CHECK(ImportIn(python, "import torch; torch.__version__ = '2.3.1'; import ddprun.torch", {})
            .find("ImportError: ddprun.torch needs PyTorch 2.4 or newer, and this is 2.3.1") == 0);
  CHECK(ImportIn(python, "import ddprun; ddprun.__version__ = '9.0.0'; import ddprun.torch", {}) ==
        Contains(" is of version " + std::string(kVersion) + ", and this package of 9.0.0."));
}

// What pip would write of the wheel.
std::string WriteEntryPoint(const TempDir& dir) {
  const std::string folder = dir.File("ddprun-0.dist-info");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/METADATA") << "Metadata-Version: 2.1\nName: ddprun\nVersion: 0\n";
  std::ofstream(folder + "/entry_points.txt")
      << "[torch.backends]\nddprun = ddprun.entry:register_by_torch\n";
  return dir.path().string();
}

TEST_CASE(
    "torch: where the wheel is installed the backend needs no import, and loads with the group") {
  const std::string python = FindTorchPython().python;
  if (python.empty()) return SkipWithoutTorch();
  const TempDir dir;
  Subprocess::Options options = Environment();
  options.env["PYTHONPATH"] += ":" + WriteEntryPoint(dir);
  const std::string code =
      "import sys, torch, torch.distributed as dist\n"
      "assert 'ddprun.library' not in sys.modules and 'ddprun.torch' not in sys.modules\n"
      "store = dist.HashStore()\n"
      "try: dist.init_process_group('ddp', store=store, rank=0, world_size=1)\n"
      "except ImportError as error: sys.exit(str(error))\n"
      "dist.all_reduce(torch.ones(3))\n"
      "import ddprun.torch\n"
      "print(dist.get_backend())\n"
      "dist.destroy_process_group()\n";
  Subprocess process({python, "-c", code}, options);
  CHECK_MESSAGE(process.Wait(kPatience) == 0, process.Describe());
  CHECK(process.out() == "ddp\n");
  options.env["DDPRUN_LIBDDP"] = "/nowhere/libddp.so";
  Subprocess broken({python, "-c", code}, options);
  CHECK(broken.Wait(kPatience) == 1);
  CHECK(broken.err() == Contains("ddprun: cannot load libddp.so: /nowhere/libddp.so: there is no"));
}

TEST_CASE("torch: the package has the version of the library") {
  const std::string text = ReadFile(Runfile("python/ddprun/__init__.py"));
  CHECK(text == Contains(std::string("__version__ = \"") + kVersion + "\""));
}

}  // namespace
}  // namespace ddprun::testing
