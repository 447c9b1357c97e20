// ddprun.should_stop() and ddprun.report_progress(), in the machine's own Python, under ddprun.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

constexpr char kPython[] = "/usr/bin/python3";

// Asks after each step. Of no number of bits that C has not, and of no number at all, nothing is
// said.
constexpr char kProgram[] = R"(import os, sys
import ddprun
loaded = [name for name in ("ctypes", "ddprun.library") if name in sys.modules]
for wrong, error in ((2**63, OverflowError), (0.5, TypeError), ("1", TypeError)):
    try:
        ddprun.report_progress(wrong, 10)
    except error:
        pass
for step in range(10**9):
    ddprun.report_progress(step + 1, 10**9)
    if ddprun.should_stop():
        break
    if step == 0:
        sys.stdout.write("up\n")  # print() makes two writes of it, between which others write
sys.stdout.write(f"stops after {step}, loaded {loaded}\n")
sys.exit(0 if ddprun.should_stop() is True else 3)
)";

// A short path: a socket's has at most 107 bytes.
struct ControlFolder {
  ControlFolder() {
    const char* const base = std::getenv("TMPDIR");
    path = std::string(base != nullptr ? base : "/tmp") + "/c-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
  }
  ~ControlFolder() { std::filesystem::remove_all(path); }
  ControlFolder(const ControlFolder&) = delete;
  ControlFolder& operator=(const ControlFolder&) = delete;
  std::string path;
};

Subprocess::Options Environment(const ControlFolder& control) {
  const std::filesystem::path package(Runfile("python/ddprun/__init__.py"));
  return {.env = {{"PYTHONPATH", package.parent_path().parent_path().string()},
                  {"PYTHONDONTWRITEBYTECODE", "1"},
                  {"PYTHON_EXEC", kPython},
                  {"DDPRUN_CONTROL_DIR", control.path},
                  {"DDPRUN_LIBDDP", Runfile("worker_runtime/libddp.so")}}};
}

TEST_CASE("python stop: all ranks hear of ddprun stop --graceful at the same step") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  const TempDir dir;
  const ControlFolder control;
  std::ofstream(dir.File("train.py")) << kProgram;
  Subprocess job({Runfile("ddprun"), "--standalone", "--nproc-per-node=2", dir.File("train.py")},
                 Environment(control));
  REQUIRE_MESSAGE(job.WaitForOut("up\nup\n"), job.Describe());
  // The agent listens a moment after its workers have started.
  REQUIRE(Eventually([&] { return !std::filesystem::is_empty(control.path); }));
  Subprocess stop({Runfile("ddprun"), "stop", "--graceful"}, Environment(control));
  CHECK_MESSAGE(stop.Wait() == 0, stop.Describe());
  REQUIRE_MESSAGE(job.Wait() == 0, job.Describe());
  const std::string out = job.out().substr(std::string("up\nup\n").size());
  const std::string line = out.substr(0, out.find('\n') + 1);
  CHECK(line == Contains(", loaded []"));
  CHECK(out == line + line);
}

TEST_CASE("python stop: a library that is not there is one sentence, when it is asked") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  const ControlFolder control;
  Subprocess::Options options = Environment(control);
  options.env["DDPRUN_LIBDDP"] = "/nowhere/libddp.so";
  Subprocess process({kPython, "-c", "import ddprun; print('imported'); ddprun.should_stop()"},
                     options);
  CHECK(process.Wait() == 1);
  CHECK(process.out() == "imported\n");
  CHECK(process.err() ==
        Contains("ImportError: ddprun: cannot load libddp.so: /nowhere/libddp.so"));
}

}  // namespace
}  // namespace ddprun::testing
