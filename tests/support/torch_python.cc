#include "tests/support/torch_python.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/support/skip.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

// Versions are read from lists of files: to import torch takes seconds.
constexpr char kProbe[] =
    "import importlib.metadata, sys, sysconfig\n"
    "print(sys.executable)\n"
    "print(sysconfig.get_path('scripts'))\n"
    "print(importlib.metadata.version('torch'), importlib.metadata.version('numpy'))\n";

TorchPython Find() {
  TorchPython found;
  const char* given = std::getenv("DDPRUN_TEST_PYTHON");
  const bool is_given = given != nullptr && *given != '\0';
  const std::string name = is_given ? given : "python3";
  const std::string remedy = "; tools/setup --with-torch installs it";
  if (is_given && access(given, X_OK) != 0) {
    found.problem = "DDPRUN_TEST_PYTHON '" + name + "' cannot be executed" + remedy;
    return found;
  }
  Subprocess probe({"/usr/bin/env", name, "-c", kProbe});
  if (probe.Wait() != 0) {
    found.problem = name + " has no PyTorch with NumPy" + remedy;
    return found;
  }
  std::stringstream answer(probe.out());
  std::string python;
  std::getline(answer, python);
  std::getline(answer, found.folder);
  std::getline(answer, found.version, ' ');
  found.version = found.version.substr(0, found.version.find('+'));
  found.torchrun = found.folder + "/torchrun";
  if (access(found.torchrun.c_str(), X_OK) != 0) {
    found.problem = "PyTorch of " + name + " has no program " + found.torchrun + remedy;
    return found;
  }
  found.python = python;
  return found;
}

}  // namespace

const TorchPython& FindTorchPython() {
  static const TorchPython found = Find();
  return found;
}

void SkipWithoutTorch() {
  const char* must = std::getenv("DDPRUN_TEST_MUST_HAVE_TORCH");
  if (must == nullptr || *must == '\0') return SkipTest(FindTorchPython().problem);
  FAIL(FindTorchPython().problem);
}

}  // namespace ddprun::testing
