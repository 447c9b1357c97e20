// The other way round: the C++ trainer as a worker of the real torchrun, with each backend and
// through a restart, ends with the bits that it has under ddprun. No recording can tell.
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

// The images, drawn once.
const std::string& Digits() {
  static const TempDir dir;
  static const std::string path = dir.File("digits");
  if (!std::filesystem::exists(path)) {
    Subprocess draw(
        {Runfile("tools/make_digits/make_digits"), path, "--train", "2000", "--test", "200"});
    CHECK_MESSAGE(draw.Wait() == 0, draw.Describe());
  }
  return path;
}

void ObserveSummary(Run& run) {
  const auto summary = ParseJson(ReadFile(run.job().File("tmp/summary.json")));
  CHECK_MESSAGE(summary.has_value(), run.Describe());
  for (const char* field : {"backend", "world_size", "restart_count", "parameters_checksum"}) {
    run.Observe(std::string("summary.") + field,
                summary ? summary->get<std::string>(field, "none") : "none");
  }
}

// Its files are in the folder for temporary ones, which are not compared.
Scenario Training(const std::string& backend, std::vector<std::string> options) {
  options.push_back("--no_python");
  return {.name = "train",
          .options = std::move(options),
          .command = {Runfile("examples/train/train"), "--data", Digits(), "--epochs", "20",
                      "--batch_size", "10", "--checkpoint_dir", "tmp/checkpoints",
                      "--checkpoint_every", "10", "--resume", "--device", "cpu", "--backend",
                      backend, "--summary_file", "tmp/summary.json"},
          .after = ObserveSummary,
          .is_quiet = true};
}

// A whole checkpoint: its name ends in .ckpt, a half-written one's does not.
bool HasCheckpoint(const Run& run) {
  std::error_code none;
  const std::filesystem::directory_iterator files(run.File("tmp/checkpoints"), none);
  return std::any_of(begin(files), end(files),
                     [](const auto& file) { return file.path().extension() == ".ckpt"; });
}

void KillRank1(Run& run) {
  CHECK_MESSAGE(Eventually([&] { return HasCheckpoint(run); }), run.Describe());
  const int pid = run.job().PidOfRank(1);
  CHECK_MESSAGE(pid != 0, run.Describe());
  if (pid != 0) kill(pid, SIGKILL);
}

TEST_CASE("conformance: the C++ trainer over shm") {
  Scenario scenario = Training("shm", {"--standalone", "--nproc_per_node=2"});
  CompareLive(scenario);
}

TEST_CASE("conformance: the C++ trainer over tcp, on two nodes") {
  Scenario scenario = Training("tcp", {"--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d",
                                       "--rdzv_endpoint=localhost:{port}", "--rdzv_id=job1"});
  scenario.nodes = {{}, {}};
  CompareLive(scenario);
}

// torchrun's store keeps the keys of the first attempt: the runtime agrees on a session by echo.
TEST_CASE("conformance: the C++ trainer through a restart") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  for (const char* backend : {"auto", "shm", "tcp"}) {
    Scenario scenario =
        Training(backend, {"--standalone", "--nproc_per_node=2", "--max_restarts=1"});
    scenario.during = KillRank1;
    CompareLive(scenario);
  }
}

TEST_CASE("conformance: the C++ trainer through a restart at a fixed address") {
  Scenario scenario = Training("auto", {"--nproc_per_node=2", "--max_restarts=1",
                                        "--master_addr=localhost", "--master_port={port}"});
  scenario.during = KillRank1;
  CompareLive(scenario);
}

}  // namespace
}  // namespace ddprun::testing
