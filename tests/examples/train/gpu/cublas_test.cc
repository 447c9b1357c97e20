#include "examples/train/gpu/cublas.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "ddp/dynamic_library.h"
#include "launcher/doctor/gpu_probe_child.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace train {
namespace {

using ddp::DynamicLibrary;
using ddprun::testing::InChild;

std::string Library(const std::string& name) {
  return ddprun::testing::Runfile("tests/examples/train/gpu/" + name);
}

template <typename Found>
std::string Text(const absl::StatusOr<Found>& cublas) {
  return cublas.ok() ? cublas->version + "|" + cublas->path : cublas.status().ToString();
}

// "version|path", or "CODE: message", of a search for cuBLAS, the trainer's own when none is given.
std::string Load(
    std::map<std::string, std::string> env, const std::string& loaded_before = "",
    const std::function<std::string()>& search = [] { return Text(LoadCublas()); }) {
  for (const char* name : {"DDPRUN_CUBLAS_LIB", "DDPRUN_NCCL_PYTHON", "PYTHON_EXEC"}) {
    env.try_emplace(name, "");
  }
  return InChild(env, [&] {
    if (!loaded_before.empty() && !DynamicLibrary::Open(loaded_before).ok()) return std::string();
    return search();
  });
}

TEST_CASE("cublas: the variable names the library, and nothing is tried after it") {
  const std::string file = Library("libcublas_12.so");
  CHECK(Load({{"DDPRUN_CUBLAS_LIB", file}}) == "12.4.2|" + file);
  CHECK(Load({{"DDPRUN_CUBLAS_LIB", "/nowhere/libcublas.so"}}, Library("libcublas_13.so")) ==
        "NOT_FOUND: cuBLAS: /nowhere/libcublas.so: cannot open shared object file: No such file or "
        "directory; DDPRUN_CUBLAS_LIB names it; name another, or unset the variable");
}

// With 12 loaded, an own 13 would be a second set of kernels and a second workspace on the device.
TEST_CASE("cublas: what a framework has loaded is used, be it 12 or 13") {
  for (const char* name : {"libcublas_12.so", "libcublas_13.so"}) {
    const std::string file = Library(name);
    CHECK(Load({}, file) == std::string(name).substr(10, 2) + ".4.2|" + file);
  }
}

TEST_CASE("cublas: a missing function is named") {
  const std::string file = Library("libcublas_without_workspace.so");
  const std::string text = Load({{"DDPRUN_CUBLAS_LIB", file}});
  CHECK_MESSAGE(
      text.starts_with("FAILED_PRECONDITION: cuBLAS: " + file +
                       ": it has no cublasSetWorkspace_v2, which cuBLAS 12 and 13 have; "),
      text);
}

TEST_CASE("cublas: the wheels of a named Python are found, 13 before 12") {
  namespace fs = std::filesystem;
  if (Load({}).find("NOT_FOUND") != 0) {
    return ddprun::testing::SkipTest("the system has a libcublas");
  }
  const ddprun::testing::TempDir dir;
  const fs::path packages = dir.path() / "lib/python3.11/site-packages";
  fs::create_directories(dir.path() / "bin");
  fs::create_directories(packages / "nvidia/cublas/lib");
  fs::create_directories(packages / "nvidia/cu13/lib");
  std::ofstream(dir.File("bin/python"));
  const std::string twelve = (packages / "nvidia/cublas/lib/libcublas.so.12").string();
  fs::copy_file(Library("libcublas_12.so"), twelve);
  CHECK(Load({{"PYTHON_EXEC", dir.File("bin/python")}}) == "12.4.2|" + twelve);
  const std::string thirteen = (packages / "nvidia/cu13/lib/libcublas.so.13").string();
  fs::copy_file(Library("libcublas_13.so"), thirteen);
  CHECK(Load({{"PYTHON_EXEC", dir.File("bin/python")}}) == "13.4.2|" + thirteen);
}

// Each reads what it needs from the library.
TEST_CASE("cublas: ddprun doctor finds what the trainer finds") {
  const auto doctor = [] { return Text(ddprun::launcher::FindCublas()); };
  for (const std::string& file : {Library("libcublas_12.so"), std::string("/nowhere")}) {
    CHECK(Load({{"DDPRUN_CUBLAS_LIB", file}}, "", doctor) == Load({{"DDPRUN_CUBLAS_LIB", file}}));
  }
  CHECK(Load({}, "", doctor) == Load({}));
  const std::string loaded = Library("libcublas_12.so");
  CHECK(Load({}, loaded, doctor) == "12.4.2|" + loaded);
  const ddprun::testing::TempDir dir;
  std::filesystem::create_directories(dir.path() / "bin");
  std::ofstream(dir.File("bin/python"));
  const std::map<std::string, std::string> env = {{"PYTHON_EXEC", dir.File("bin/python")}};
  for (const char* folder :
       {"nvidia/cublas/lib/libcublas.so.12", "nvidia/cu13/lib/libcublas.so.13"}) {
    const auto file = dir.path() / "lib/python3.11/site-packages" / folder;
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::copy_file(Library("libcublas_12.so"), file);
    CHECK(Load(env, "", doctor) == Load(env));
  }
}

TEST_CASE("cublas: ddprun doctor takes no library that tells no version") {
  const std::string file = Library("libcublas_without_version.so");
  const std::string text =
      Load({{"DDPRUN_CUBLAS_LIB", file}}, "", [] { return Text(ddprun::launcher::FindCublas()); });
  CHECK_MESSAGE(text.starts_with("FAILED_PRECONDITION: cuBLAS: " + file +
                                 ": cublasGetProperty tells no version; "),
                text);
}

TEST_CASE("cublas: every place that failed is named") {
  const std::string text = Load({{"PATH", "/nowhere"}});
  if (text.find("NOT_FOUND") != 0) return ddprun::testing::SkipTest("the system has a libcublas");
  CHECK(
      text ==
      "NOT_FOUND: cuBLAS: libcublas.so.13: cannot open shared object file: No such file or "
      "directory; libcublas.so.12: cannot open shared object file: No such file or directory; no "
      "Python's packages, as neither DDPRUN_NCCL_PYTHON nor PYTHON_EXEC is set, and PATH has no "
      "python3; install the Python package nvidia-cublas or nvidia-cublas-cu12, or a CUDA toolkit, "
      "or name the file by DDPRUN_CUBLAS_LIB");
}

TEST_CASE("cublas: a result becomes a status in the library's words") {
  CublasApi api{};
  api.cublasGetStatusName = [](CublasResult) { return "CUBLAS_STATUS_ALLOC_FAILED"; };
  api.cublasGetStatusString = [](CublasResult) { return "the resource allocation failed"; };
  CHECK(CublasStatus(api, "cublasCreate", kCublasSuccess).ok());
  CHECK(CublasStatus(api, "cublasCreate", kCublasAllocFailed).ToString() ==
        "RESOURCE_EXHAUSTED: cublasCreate: the resource allocation failed "
        "(CUBLAS_STATUS_ALLOC_FAILED 3)");
  CHECK(CublasStatus(api, "f", kCublasInvalidValue).code() == absl::StatusCode::kInvalidArgument);
  for (const CublasResult result :
       {kCublasNotInitialized, kCublasArchMismatch, kCublasNotSupported}) {
    CHECK(CublasStatus(api, "f", result).code() == absl::StatusCode::kFailedPrecondition);
  }
  CHECK(CublasStatus(api, "f", kCublasExecutionFailed).code() == absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace train
