// PyTorch's own writers of error files and timers. Skipped where no Python with torch is.
#include <fstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/json.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

std::unique_ptr<Subprocess> RunScript(Job& job, std::vector<std::string> options,
                                      const std::string& script, Subprocess::Options how = {}) {
  std::ofstream(job.File("train.py")) << script;
  how.env["PYTHON_EXEC"] = FindTorchPython().python;
  options.push_back(job.File("train.py"));
  return job.RunRaw(std::move(options), std::move(how));
}

TEST_CASE("torch files: what @record writes is in the report and in the agent's own error file") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  Job job;
  auto ddprun = RunScript(job, {"--nproc_per_node=2"}, R"(
import os, signal
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("no \x1b[31mdata \udcff")
    signal.pause()

main()
)",
                          {.env = {{"TORCHELASTIC_ERROR_FILE", job.File("own.json")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
  const std::string err = ddprun->err();
  CHECK_MESSAGE(
      err.find("  traceback : Traceback (most recent call last):\n    File ") != std::string::npos,
      err);
  CHECK(err.find("  ValueError: no \\x1b[31mdata \xef\xbf\xbd\n====") != std::string::npos);
  const auto own = ParseJson(ReadFile(job.File("own.json")));
  REQUIRE(own);
  CHECK(own->get<int>("message.errorCode") == 1);
}

TEST_CASE("torch files: PyTorch's timer client is heeded") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  Job job;
  auto ddprun = RunScript(job, {"--nproc_per_node=2"}, R"(
import os, signal
import torch.distributed.elastic.timer as timer
from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient

timer.configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=3000, scope="quick"):
    pass
if os.environ["RANK"] == "1":
    with timer.expires(after=0.1, scope="slow step"):
        signal.pause()
signal.pause()
)",
                          {.env = {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 137, ddprun->Describe());
  CHECK_MESSAGE(ddprun->err().find("rank      : 1 ") != std::string::npos, ddprun->Describe());
  CHECK(ddprun->err().find("its timer 'slow step' had expired") != std::string::npos);
}

}  // namespace
}  // namespace ddprun::testing
