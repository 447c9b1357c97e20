#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

// What the script says first.
std::string FirstLine(const Subprocess& script) {
  const std::string said = script.err();
  return said.substr(0, said.find('\n'));
}

TEST_CASE("gpu_kernels: the committed PTX is what its sources give") {
  Subprocess check({Runfile("tools/gpu_kernels"), "--check"});
  const std::optional<int> status = check.Wait(std::chrono::minutes(4));
  REQUIRE_MESSAGE(status.has_value(), check.Describe());
  CHECK_MESSAGE((*status == 0 || *status == 3), check.Describe());
  if (*status == 3) return SkipTest(FirstLine(check));
}

TEST_CASE("gpu_kernels: a changed source is noticed, with nvcc and without") {
  TempDir dir;
  const std::string header = "examples/train/gpu/layers.h";
  for (const std::string file :
       {"tools/gpu_kernels", "tools/lib.sh", "examples/train/constants.h", header.c_str(),
        "bench/gpu/mlp.cu", "bench/gpu/mlp.ptx", "bench/gpu/mlp_kernels.h",
        "examples/train/gpu/layers.cu", "examples/train/gpu/layers.ptx",
        "worker_runtime/gpu/kernels/cast.cu", "worker_runtime/gpu/kernels/cast.ptx",
        "worker_runtime/gpu/kernels/elements.h", "worker_runtime/gpu/kernels/hash.cu",
        "worker_runtime/gpu/kernels/hash.ptx", "worker_runtime/gpu/kernels/sum.cu",
        "worker_runtime/gpu/kernels/sum.ptx", "worker_runtime/gpu/kernels/value_term.h",
        "worker_runtime/gpu/kernels/values.cu", "worker_runtime/gpu/kernels/values.ptx"}) {
    const std::filesystem::path to = dir.File(file);
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::copy_file(Runfile(file), to);
    std::filesystem::permissions(to, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
  }
  std::ofstream(dir.File(header), std::ios::app) << "// changed\n";
  Subprocess check({dir.File("tools/gpu_kernels"), "--check"});
  CHECK_MESSAGE(check.Wait() == 1, check.Describe());
  CHECK(check.err() == Contains("gpu/layers.ptx: its sources have changed"));
}

TEST_CASE("gpu_kernels: without nvcc it says where it looked") {
  if (std::filesystem::exists("/usr/local/cuda/bin/nvcc")) {
    return SkipTest("/usr/local/cuda has an nvcc");
  }
  Subprocess::Options nowhere;
  nowhere.env = {{"PATH", "/usr/bin:/bin"}, {"CUDA_HOME", "/nowhere"}};
  Subprocess check({Runfile("tools/gpu_kernels"), "--check"}, nowhere);
  CHECK_MESSAGE(check.Wait() == 3, check.Describe());
  CHECK(check.err() == Contains("/nowhere/bin"));
}

TEST_CASE("gpu_kernels: an argument that is none is an error") {
  Subprocess wrong({Runfile("tools/gpu_kernels"), "--frobnicate"});
  CHECK_MESSAGE(wrong.Wait() == 2, wrong.Describe());
  CHECK(wrong.err() == Contains("unknown argument '--frobnicate'"));
}

}  // namespace
}  // namespace ddprun::testing
