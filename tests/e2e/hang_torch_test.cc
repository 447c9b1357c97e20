// A PyTorch program of which nothing is known but its flight recorder hangs in Gloo: the rank that
// does not come is named all the same.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/e2e/asking.h"
#include "tests/support/contains.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;

// Importing PyTorch takes seconds, on a busy machine many. Below the limit of a file's time: a wait
// that fails here shows what the job has said.
constexpr std::chrono::seconds kTraining{120};

// Argument: the file that lets rank 1 come.
constexpr char kProgram[] = R"(import os, sys, time
import torch, torch.distributed as dist
from torch.distributed.elastic.control_plane import worker_main
with worker_main():
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    while dist.get_rank() == 1 and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
)";

TEST_CASE("hang: PyTorch's flight recorder names the rank that does not come") {
  const TorchPython& torch = FindTorchPython();
  if (torch.python.empty()) return SkipWithoutTorch();
  Job job;
  const ControlFolder folder;
  std::ofstream(job.File("program.py")) << kProgram;
  const auto ddprun = job.RunRaw(
      {"--nproc-per-node=3", "--hang-timeout=10", job.File("program.py"), job.File("come")},
      folder.Here({.env = {{"PYTHON_EXEC", torch.python},
                           {"PYTHONWARNINGS", "ignore"},
                           {"DDPRUN_WORKER_SERVER", "1"}}}));
  REQUIRE_MESSAGE(ddprun->WaitForErr("rank 1 has not come to all-reduce #4 for ", kTraining),
                  ddprun->Describe());
  const Told told = Ask(job, folder, {"status", "--json"});
  CHECK_MESSAGE(told.code == 1, told.Describe());
  REQUIRE_MESSAGE(ProblemsOf(told.json()) == std::vector<std::string>{"hang"}, told.Describe());
  const json hang = told.json()["problems"][0];
  CHECK(hang["ranks"] == json::array({1}));
  CHECK(hang["text"].get<std::string>() == Contains("ranks 0, 2 wait for it"));
  job.Touch("come");
  CHECK_MESSAGE(ddprun->Wait(kTraining) == 0, ddprun->Describe());
}

}  // namespace
}  // namespace ddprun::testing
