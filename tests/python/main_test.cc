// `python -m ddprun` is ddprun: the usual remedy where several environments have one.
#include <unistd.h>

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

// As where the package is installed and ddprun is in `path`.
Subprocess::Options With(const std::string& path) {
  const std::filesystem::path package(Runfile("python/ddprun/__init__.py"));
  return {.env = {{"PYTHONPATH", package.parent_path().parent_path().string()},
                  {"PYTHONDONTWRITEBYTECODE", "1"},
                  {"PYTHON_EXEC", ""},
                  {"PATH", path}}};
}

TEST_CASE("python -m ddprun: starts a script's ranks, under the Python that was asked for") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  const TempDir dir;
  const std::string script = dir.File("train.py");
  std::ofstream(script) << "import os, sys\n"
                           "words = [os.environ['WORLD_SIZE'], sys.executable, *sys.argv[1:]]\n"
                           "sys.stdout.write(' '.join(words) + '\\n')\n";
  const std::string folder = std::filesystem::path(Runfile("ddprun")).parent_path().string();
  Subprocess process({kPython, "-m", "ddprun", "--standalone", "--nproc-per-node=2", script, "--x"},
                     With(folder));
  CHECK_MESSAGE(process.Wait() == 0, process.Describe());
  const std::string line = std::string("2 ") + kPython + " --x\n";
  CHECK(process.out() == line + line);
}

TEST_CASE("python -m ddprun: where there is none it says so") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  Subprocess process({kPython, "-m", "ddprun", "--version"}, With("/nonexistent"));
  CHECK_MESSAGE(process.Wait() == 127, process.Describe());
  CHECK(process.err() == Contains("no ddprun beside /usr/bin/python3 and none in PATH"));
}

}  // namespace
}  // namespace ddprun::testing
