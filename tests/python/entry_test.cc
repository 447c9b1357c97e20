// PyTorch's entry point, over a PyTorch that refuses the backend.
#include <unistd.h>

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/skip.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

constexpr char kPython[] = "/usr/bin/python3";

constexpr char kRefusing[] = R"(import sys, types
torch = types.ModuleType("torch")
torch.distributed = types.ModuleType("torch.distributed")
def is_available():
    raise TypeError("another signature")
torch.distributed.is_available = is_available
sys.modules.update({"torch": torch, "torch.distributed": torch.distributed})
import ddprun.entry
ddprun.entry.register_by_torch()
print("imported")
)";

TEST_CASE(
    "python entry: a PyTorch that refuses the backend is imported all the same, and one line says "
    "why") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  const std::filesystem::path package(Runfile("python/ddprun/__init__.py"));
  Subprocess process({kPython, "-W", "error", "-c", kRefusing},
                     {.env = {{"PYTHONPATH", package.parent_path().parent_path().string()},
                              {"PYTHONDONTWRITEBYTECODE", "1"}}});
  CHECK_MESSAGE(process.Wait() == 0, process.Describe());
  CHECK(process.out() == "imported\n");
  CHECK(process.err() ==
        "ddprun: this PyTorch does not take the backend \"ddp\": another signature\n");
}

}  // namespace
}  // namespace ddprun::testing
