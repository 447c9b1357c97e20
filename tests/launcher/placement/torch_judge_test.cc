// --numa-binding beside PyTorch's own functions, on the same fake /sys.
#include <unistd.h>

#include <optional>

#include <doctest/doctest.h>

#include "absl/strings/str_join.h"
#include "launcher/cli/option_values.h"
#include "tests/launcher/placement/placed.h"
#include "tests/launcher/placement/synthetic.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

constexpr char kFindBinding[] =
    "import importlib.util as u, os; s = u.find_spec('torch');"
    "print(os.path.join(s.submodule_search_locations[0], 'numa', 'binding.py') if s else '', "
    "end='')";

// PyTorch's binding.py; empty: this version has none.
std::string BindingFile() {
  Subprocess python({FindTorchPython().python, "-c", kFindBinding});
  REQUIRE_MESSAGE(python.Wait() == 0, python.Describe());
  return access(python.out().c_str(), R_OK) == 0 ? python.out() : "";
}

struct Machine {
  TempDir sys;
  CpuSet allowed;
  std::vector<int> gpu_nodes;
};

// One list a line, as PyTorch and as ddprun would bind each GPU's worker.
std::string TorchBinds(const std::string& file, const Machine& on, NumaBinding binding) {
  std::vector<std::string> words = {FindTorchPython().python,
                                    Runfile("tests/launcher/placement/torch_binding.py"),
                                    file,
                                    on.sys.path().string(),
                                    NumaBindingName(binding),
                                    absl::StrJoin(on.allowed, ",")};
  for (size_t gpu = 0; gpu < on.gpu_nodes.size(); ++gpu) {
    words.push_back(BusIdOf(static_cast<int>(gpu)));
  }
  Subprocess python(std::move(words));
  REQUIRE_MESSAGE(python.Wait() == 0, python.Describe());
  return python.out();
}

std::string WeBind(const Machine& on, NumaBinding binding) {
  const int count = static_cast<int>(on.gpu_nodes.size());
  const absl::StatusOr<std::vector<CpuSet>> cpus = BindToCpus(
      Bound(binding, count), GpusOfDouble(count), {}, on.sys.path().string(), on.allowed);
  REQUIRE_MESSAGE(cpus.ok(), cpus.status().message());
  std::string lines;
  for (const CpuSet& worker : *cpus) lines += FormatCpuList(worker) + "\n";
  return lines;
}

void CompareOn(const std::string& file, const std::string& description) {
  const Synthetic synthetic(description);
  FakeMachine machine = synthetic.Machine();
  Machine on;
  on.gpu_nodes = GpuNodes(synthetic.NodeCount());
  for (size_t gpu = 0; gpu < on.gpu_nodes.size(); ++gpu) {
    // -1 stands for node 0.
    const int node = on.gpu_nodes[gpu];
    machine.devices[BusIdOf(static_cast<int>(gpu))] = node == 0 ? -1 : node;
  }
  WriteSys(machine, on.sys.path().string());
  for (const int every : {0, 5}) {
    on.allowed = CpusBut(machine, every);
    for (const NumaBinding binding : {NumaBinding::kNode, NumaBinding::kSocket,
                                      NumaBinding::kExclusive, NumaBinding::kCoreComplex}) {
      CAPTURE(description);
      CAPTURE(every);
      CAPTURE(NumaBindingName(binding));
      CHECK(WeBind(on, binding) == TorchBinds(file, on, binding));
    }
  }
}

TEST_CASE("binding judged by PyTorch: every mode binds the same CPUs") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  const std::string file = BindingFile();
  if (file.empty()) return SkipTest("this PyTorch has no torch/numa/binding.py");
  for (const std::string& description : SyntheticDescriptions()) CompareOn(file, description);
}

}  // namespace
}  // namespace ddprun::launcher
