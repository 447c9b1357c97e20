// A PyTorch program that polls libddp_stop.so: one rank's flag ends all of them after the same
// step.
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/stop_file.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

// Importing PyTorch takes seconds, on a busy machine many.
constexpr std::chrono::seconds kTraining{300};

// Arguments: the library, the folder of the ranks' stop files. Rank 1's agent asks during step 5.
constexpr char kProgram[] = R"(import ctypes, os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank = os.environ["RANK"]
os.environ["DDPRUN_PROGRESS_FILE"] = os.environ["DDPRUN_STOP_FILE"] = path = os.path.join(sys.argv[2], "stop" + rank)
stop = ctypes.CDLL(sys.argv[1])
stop.ddp_last_error.restype = ctypes.c_char_p
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(100):
    model(torch.ones(4, 8)).sum().backward()
    if rank == "1" and step == 5:
        with open(path, "r+b") as page:
            page.write((1).to_bytes(4, sys.byteorder))
    stop.ddp_report_progress(ctypes.c_longlong(step + 1), ctypes.c_longlong(100))
    answer = stop.ddp_should_stop()
    if answer != 0:
        print(f"rank {rank}: step {step}: {answer} {stop.ddp_last_error().decode()}.", flush=True)
        break
# Gloo's threads may outlive the interpreter, and abort then (pytorch/pytorch issue 190489). The model
# holds the group, and on a busy machine an end in order is not enough.
del model
dist.destroy_process_group()
os._exit(0)
)";

TEST_CASE("libddp_stop.so: PyTorch ranks stop after the same step, under ddprun and torchrun") {
  const TorchPython& torch = FindTorchPython();
  if (torch.python.empty()) return SkipWithoutTorch();
  const std::string library = Runfile("worker_runtime/libddp_stop.so");
  for (const bool is_torchrun : {false, true}) {
    CAPTURE(is_torchrun);
    Job job;
    std::ofstream(job.File("program.py")) << kProgram;
    const std::string folder = job.File("stop");
    REQUIRE(std::filesystem::create_directory(folder));
    for (const char* rank : {"0", "1"}) MakeStopFile(folder + "/stop" + rank);
    const std::vector<std::string> arguments = {"--standalone", "--nproc-per-node=2",
                                                job.File("program.py"), library, folder};
    std::vector<std::string> torchrun = {torch.torchrun};
    torchrun.insert(torchrun.end(), arguments.begin(), arguments.end());
    const Subprocess::Options how{
        .env = {{"PYTHON_EXEC", torch.python}, {"PYTHONWARNINGS", "ignore"}}};
    auto run = is_torchrun ? job.RunProgram(torchrun, how) : job.RunRaw(arguments, how);
    REQUIRE_MESSAGE(run->Wait(kTraining) == 0, run->Describe());
    for (const char* rank : {"0", "1"}) {
      const std::string line = std::string("rank ") + rank + ": step 5: 1 .";
      CHECK(run->out() == Contains(line));
      CHECK(HasHeardStop(folder + "/stop" + rank));
      CHECK(ProgressIn(folder + "/stop" + rank) == ddp::internal::ProgressShare{6, 100});
    }
  }
}

}  // namespace
}  // namespace ddprun::testing
