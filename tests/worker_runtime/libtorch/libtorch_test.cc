// ddp/torch.h beside PyTorch's DistributedDataParallel for Python, over the same libtorch.
//
// Programs with the header are built here, by the compiler of a user, against the libtorch in
// PyTorch's package: nothing else of the build knows it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

const std::string kHere = "tests/worker_runtime/libtorch/";
// Three compilers at a time on a machine that does other things.
constexpr auto kBuildPatience = 400s;
const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};

// Where libtorch is, for a shell that has Python as $1. To import torch would take seconds.
constexpr char kFindTorch[] =
    R"(torch=$("$1" -c 'import importlib.util as i; print(*i.find_spec("torch").submodule_search_locations)')
)";

// The README's command, with all warnings about our headers. $2: dist, $3: source, $4: program.
constexpr char kCompile[] = R"(
exec g++ -std=c++20 -O1 -Wall -Wextra -Werror -Wno-missing-field-initializers "$3" -o "$4" \
  -I"$2/include" -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" \
  -L"$2/lib" -l:libddp.a -L"$torch/lib" -ltorch -ltorch_cpu -lc10 -Wl,-rpath,"$torch/lib" \
  $(pkg-config --libs absl_statusor absl_status absl_strings) -ldl -pthread)";

// docs/library/libtorch.md's. $3: the source's folder, $4: what is built, with a folder of its name
// beside.
constexpr char kCMake[] = R"(
cmake -B "$4.build" -DCMAKE_PREFIX_PATH="$torch/share/cmake" -DDDP_DIST="$2" "$3" &&
cmake --build "$4.build" && mv "$4.build/dist_mnist" "$4")";

// `training`, `failures` and the example, built when the first case asks.
class Programs {
 public:
  static const Programs& Get() {
    static const Programs programs;
    return programs;
  }
  std::string Path(const std::string& name) const { return folder_.File(name); }
  // Why there are none here; empty: there are, or `failure`.
  const std::string& problem() const { return problem_; }
  // What the compiler said of its error.
  const std::string& failure() const { return failure_; }

 private:
  Programs() {
    if (FindTorchPython().python.empty()) {
      problem_ = FindTorchPython().problem;
      return;
    }
    if (access("/usr/bin/g++", X_OK) != 0) {
      problem_ = "there is no /usr/bin/g++, which builds the programs under test";
      return;
    }
    // As tools/build leaves it.
    std::filesystem::create_directories(folder_.path() / "dist/lib");
    std::filesystem::create_symlink(Runfile("worker_runtime/include"), Path("dist/include"));
    std::filesystem::create_symlink(Runfile("worker_runtime/libddp.a"), Path("dist/lib/libddp.a"));
    const bool has_cmake = access("/usr/bin/cmake", X_OK) == 0;
    const std::string example = Runfile("examples/libtorch");
    std::vector<std::unique_ptr<Subprocess>> builds;
    builds.push_back(Build(kCompile, Runfile(kHere + "training.cc"), "training"));
    builds.push_back(Build(kCompile, Runfile(kHere + "failures.cc"), "failures"));
    builds.push_back(has_cmake ? Build(kCMake, example, "dist_mnist")
                               : Build(kCompile, example + "/dist_mnist.cc", "dist_mnist"));
    for (const auto& build : builds) {
      if (build->Wait(kBuildPatience) != 0) failure_ += build->Describe();
    }
  }

  std::unique_ptr<Subprocess> Build(const char* command, const std::string& source,
                                    const std::string& name) {
    return std::make_unique<Subprocess>(
        std::vector<std::string>{"/bin/sh", "-c", std::string(kFindTorch) + command, "sh",
                                 FindTorchPython().python, Path("dist"), source, Path(name)});
  }

  TempDir folder_;
  std::string problem_;
  std::string failure_;
};

// Whether a case cannot run here, and has said so.
bool IsSkipped() {
  const Programs& programs = Programs::Get();
  if (!programs.failure().empty()) FAIL(programs.failure());
  if (programs.problem().empty()) return false;
  FindTorchPython().python.empty() ? SkipWithoutTorch() : SkipTest(programs.problem());
  return true;
}

// What both ranks of a case were told.
std::string Told(const std::string& name) {
  Subprocess ranks({Programs::Get().Path("failures"), name}, {.env = kOneThread});
  REQUIRE_MESSAGE(ranks.Wait() == 0, ranks.Describe());
  return ranks.out();
}

void CheckTold(const std::string& name, const std::vector<std::string>& lines) {
  CAPTURE(name);
  const std::string out = Told(name);
  for (const std::string& line : lines) CHECK(out == Contains(line));
}

void CheckBothTold(const std::string& name, const std::string& words) {
  CheckTold(name, {"rank 0: c10::Error: " + words, "rank 1: c10::Error: " + words});
}

std::vector<double> ReadNumbers(const std::filesystem::path& path) {
  const std::string bytes = ReadFile(path.string());
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

// Sums of two floats are rounded alike whoever adds them. Of four, Gloo rounds each and we round
// the last, by 8 bits in bfloat16; later steps start from there.
double ToleranceFor(const std::string& scenario, int ranks) {
  if (ranks <= 2) return 0;
  return scenario == "bfloat16" || scenario == "mixed" ? 0.05 : 1e-4;
}

// The largest difference, in parts of the numbers but at least of 0.1.
double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double scale = std::max({0.1, std::abs(a[i]), std::abs(b[i])});
    const double difference = std::abs(a[i] - b[i]) / scale;
    largest = difference <= largest ? largest : difference;  // a NaN stays
  }
  return largest;
}

int CompareWithPython(int ranks) {
  const TempDir ours, pythons;
  const std::string count = std::to_string(ranks), scenarios = Runfile(kHere + "scenarios.txt");
  Subprocess python({FindTorchPython().python, Runfile(kHere + "training.py"), scenarios,
                     pythons.path().string(), count},
                    {.env = kOneThread});
  REQUIRE_MESSAGE(python.Wait(150s) == 0, python.Describe());
  Subprocess libtorch({Programs::Get().Path("training"), scenarios, ours.path().string(), count},
                      {.env = kOneThread});
  REQUIRE_MESSAGE(libtorch.Wait() == 0, libtorch.Describe());
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(pythons.path())) {
    const std::string name = entry.path().filename().string();
    if (name == "store") continue;
    CAPTURE(name);
    const std::vector<double> theirs = ReadNumbers(entry.path());
    const std::vector<double> mine = ReadNumbers(ours.File(name));
    CHECK(theirs.size() > 1000);
    CHECK(mine.size() == theirs.size());
    const double tolerance = ToleranceFor(entry.path().stem().string(), ranks);
    CHECK(LargestDifference(mine, theirs) <= tolerance);
    ++compared;
  }
  return compared;
}

int CountScenarios() {
  std::istringstream lines(ReadFile(Runfile(kHere + "scenarios.txt")));
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with("#") ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("libtorch: losses, gradients, weights and buffers are those of Python") {
  if (IsSkipped()) return;
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    CHECK(CompareWithPython(ranks) == ranks * CountScenarios());
  }
}

TEST_CASE("libtorch: two forward passes and then two backward passes are both averaged") {
  if (IsSkipped()) return;
  CheckTold("forward_twice", {"rank 0: both are averages", "rank 1: both are averages"});
}

TEST_CASE("libtorch: a gradient that the program keeps outlives the wrapper") {
  if (IsSkipped()) return;
  CheckTold("keep_gradient",
            {"rank 0: the gradient is still there", "rank 1: the gradient is still there"});
}

TEST_CASE("libtorch: a module that cannot be trained so is refused with the tensor's name") {
  if (IsSkipped()) return;
  CheckBothTold("overlapping",
                "wrap the module (anonymous namespace)::OverlappingImpl: 'low' and 'high' share "
                "memory, and are two tensors: register one tensor for both\n");
  CheckBothTold("empty", "wrap the module torch::nn::SequentialImpl: it has 0 parameters and none");
  CheckBothTold("frozen",
                "wrap the module (anonymous namespace)::NetImpl: it has 4 parameters and "
                "none of them requires a gradient: nothing is to be reduced");
  CheckBothTold("two_devices",
                "wrap the module (anonymous namespace)::NetImpl: parameter "
                "'elsewhere' is on meta, and this rank's group is for cpu");
  CheckBothTold("complex",
                "wrap the module (anonymous namespace)::NetImpl: parameter "
                "'first.weight' is ComplexFloat, and gradients are averaged in float32");
  CheckBothTold("other_shapes",
                "parameter 0 is not the same on all ranks: rank 0 has "
                "'first.weight [8, 4]', 32 x float32, rank 1 has 'first.weight "
                "[6, 4]', 24 x float32\n");
  const std::string differs =
      "parameter 0 of those without a gradient is not the same on all ranks: rank 0 has ";
  CheckTold("other_frozen",
            {"rank 0: c10::Error: aborted by rank 1: " + differs,
             "rank 1: c10::Error: " + differs +
                 "'first.weight [8, 4] Float', rank 1 has 'first.weight [8, 4] in steps of [1, 8] "
                 "Float'\n"});
  CheckTold("fewer_frozen", {"rank 0: c10::Error: aborted by rank 1: " + differs,
                             "rank 1: c10::Error: " + differs +
                                 "'more [3] Float', rank 1 has 'first.weight [8, 4] Float'\n"});
  CheckBothTold("shared_buffers",
                "wrap the module (anonymous namespace)::NetImpl: 'one' and 'two' share memory, and "
                "are two tensors");
  CheckBothTold("expanded_buffer",
                "wrap the module (anonymous namespace)::NetImpl: buffer 'mask' has gaps or repeats "
                "in its memory");
  CheckBothTold("shard_gradients", "shard_gradients: an optimizer of libtorch needs all averages");
}

TEST_CASE("libtorch: what a backward pass cannot reduce comes out of it as c10::Error") {
  if (IsSkipped()) return;
  CheckBothTold("sparse", "parameter 'words.weight' got a gradient that is not dense (Sparse)");
  CheckBothTold("create_graph",
                "parameter 'second.bias' got a gradient that requires one itself: call backward() "
                "without create_graph\n");
  const std::string missing =
      "Expected to have finished reduction in the prior iteration before starting a new one: 2 of "
      "4 parameters got no gradient: 'second.weight [2, 8]', 'second.bias [2]'";
  CheckBothTold("unused", missing);
  CheckBothTold("goes_on", missing);
  CheckBothTold("nested",
                "parameter 'second.bias' got a gradient in a backward pass inside another, of "
                "which the gradients are not complete: end one before the next begins\n");
  CheckBothTold("moves", "parameter 'first.weight' has moved since the module was wrapped");
  CheckBothTold("unfreezes", "parameter 'first.weight' requires a gradient now and did not when");
  CheckBothTold("backward_twice", "Trying to backward through the graph a second time");
}

TEST_CASE("libtorch: a rank that leaves in forward or backward is known to the others at once") {
  if (IsSkipped()) return;
  CheckTold("forward_throws", {"rank 1: no such file\n", "rank 0: c10::Error: all-reduce #",
                               "failed: rank 1 (pid ", ") has left the group\n"});
  CheckTold("backward_throws",
            {"rank 1: a layer of mine failed\n",
             "rank 0: c10::Error: aborted by rank 1: the backward pass was left by an exception "
             "before its gradients were reduced\n"});
  CheckTold("dies_in_backward",
            {"rank 0: c10::Error: all-reduce #", "failed: rank 1 (pid ", ") died\n"});
}

TEST_CASE("libtorch: the example learns on two ranks, and names a file that is not there") {
  if (IsSkipped()) return;
  const TempDir folder;
  Subprocess digits({Runfile("tools/make_digits/make_digits"), folder.File("digits"), "--train",
                     "2000", "--test", "500"});
  REQUIRE_MESSAGE(digits.Wait() == 0, digits.Describe());
  Subprocess job({Runfile("ddprun"), "--standalone", "--nproc-per-node=2",
                  Programs::Get().Path("dist_mnist"), folder.File("digits"), "4"},
                 {.env = kOneThread});
  REQUIRE_MESSAGE(job.Wait() == 0, job.Describe());
  const std::string out = job.out(), last = "epoch 4/4: loss ", accuracy = "test accuracy ";
  const size_t line = out.find(last);
  REQUIRE_MESSAGE(line != std::string::npos, job.Describe());
  CHECK(std::stod(out.substr(out.find(accuracy, line) + accuracy.size())) > 80);

  Subprocess lost({Programs::Get().Path("dist_mnist"), folder.File("nowhere")});
  CHECK(lost.Wait() == 1);
  CHECK(lost.err() == "dist_mnist: read " + folder.File("nowhere") +
                          "/train-images-idx3-ubyte: no file of MNIST's; make_digits makes them\n");
}

}  // namespace ddprun::testing
