// PyTorch's own writers of error files and timers. Skipped where no Python with torch is.
#include <fstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

// Two workers of a Python program, which must fail with `code`; what ddprun wrote to stderr.
std::string FailWith(int code, Job& job, std::vector<std::string> program,
                     std::map<std::string, std::string> env) {
  env["PYTHON_EXEC"] = FindTorchPython().python;
  program.insert(program.begin(), "--nproc-per-node=2");
  auto ddprun = job.RunRaw(std::move(program), {.env = std::move(env)});
  REQUIRE_MESSAGE(ddprun->Wait() == code, ddprun->Describe());
  return ddprun->err();
}

TEST_CASE("torch files: what @record writes is in the report and in the agent's own error file") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  Job job;
  // Python reads the byte that is no UTF-8 as half a surrogate pair.
  const std::string err =
      FailWith(1, job,
               {"--redirects=2", "--log-dir=" + job.File("logs"),
                Runfile("tests/conformance/programs/recorded.py"), "no \x1b[31mdata \xff"},
               {{"TORCHELASTIC_ERROR_FILE", job.File("own.json")}});
  CHECK(err == Contains("  traceback : Traceback (most recent call last):\n    File "));
  CHECK(err == Contains("  RuntimeError: no data \xef\xbf\xbd\n===="));
  const auto own = ParseJson(ReadFile(job.File("own.json")));
  REQUIRE(own);
  CHECK(own->get<int>("message.errorCode") == 1);
}

TEST_CASE("torch files: a traceback that @record has written stands once on the screen") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  Job job;
  auto ddprun = job.RunRaw({"--nproc-per-node=2", "--report-file=" + job.File("report.json"),
                            Runfile("tests/conformance/programs/recorded.py"), "no data"},
                           {.env = {{"PYTHON_EXEC", FindTorchPython().python}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
  const std::string header = "Traceback (most recent call last):";
  const std::string err = ddprun->err();
  CHECK_MESSAGE(err.find(header) == err.rfind(header), err);
  CHECK(err == Contains("  traceback : it stands above, in the rank's stderr: "
                        "RuntimeError: no data\n"));
  CHECK(ReadFile(job.File("report.json")) == Contains(header));
}

TEST_CASE("torch files: PyTorch's timer client is heeded") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  Job job;
  std::ofstream(job.File("train.py")) << R"(
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
)";
  const std::string err =
      FailWith(137, job, {job.File("train.py")}, {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}});
  CHECK(err == Contains("rank      : 1 "));
  CHECK(err == Contains("its timer 'slow step' had expired"));
}

}  // namespace
}  // namespace ddprun::testing
