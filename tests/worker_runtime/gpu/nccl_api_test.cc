#include "worker_runtime/gpu/nccl_api.h"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "ddp/dynamic_library.h"
#include "tests/support/contains.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddp::internal {
namespace {

using ddprun::testing::InChild;
using ddprun::testing::TempDir;
using Env = std::map<std::string, std::string>;

std::string Library(const std::string& name) {
  return ddprun::testing::Runfile("tests/worker_runtime/gpu/" + name);
}

// "version|path|what it can", or "CODE: message".
std::string Describe(const absl::StatusOr<LoadedNccl>& nccl) {
  if (!nccl.ok()) return nccl.status().ToString();
  return NcclVersionText(nccl->version) + "|" + nccl->path + "|" +
         (nccl->can_register() ? "register" : "") +
         (nccl->api.ncclSetEncryption != nullptr ? " encrypt" : "");
}

std::string Load(Env env, const std::string& loaded_before = "") {
  for (const char* name : {"DDPRUN_NCCL_LIB", "DDPRUN_NCCL_PYTHON", "PYTHON_EXEC"}) {
    env.try_emplace(name, "");
  }
  return InChild(env, [&loaded_before] {
    if (!loaded_before.empty() && !DynamicLibrary::Open(loaded_before).ok()) return std::string();
    return Describe(LoadNccl());
  });
}

// <dir>/<name>/bin/python with a libnccl.so.2 where the wheel has it; the interpreter's path.
std::string MakePython(const TempDir& dir, const std::string& name, const std::string& packages,
                       const std::string& library) {
  namespace fs = std::filesystem;
  const fs::path prefix = dir.path() / name;
  fs::create_directories(prefix / "bin");
  fs::create_directories(prefix / packages / "nvidia/nccl/lib");
  std::ofstream(prefix / "bin/python");
  if (!library.empty()) {
    fs::copy_file(library, prefix / packages / "nvidia/nccl/lib/libnccl.so.2");
  }
  return (prefix / "bin/python").string();
}

// What the system itself has would be found before a wheel.
bool SystemHasNccl() {
  return InChild({}, [] {
           return std::string(DynamicLibrary::Open("libnccl.so.2").ok() ? "yes" : "no");
         }) == "yes";
}

TEST_CASE("nccl: a file that is not there is named with the variable that named it") {
  const std::string text = Load({{"DDPRUN_NCCL_LIB", "/nowhere/libnccl.so.2"}});
  CHECK(text ==
        "NOT_FOUND: NCCL: /nowhere/libnccl.so.2: cannot open shared object file: No such file or "
        "directory; DDPRUN_NCCL_LIB names it; name another, or unset the variable");
}

TEST_CASE("nccl: a file that is no library is named with the loader's words") {
  const TempDir dir;
  std::ofstream(dir.File("text")) << std::string(4096, 'x');
  const std::string text = Load({{"DDPRUN_NCCL_LIB", dir.File("text")}});
  CHECK_MESSAGE(text.starts_with("NOT_FOUND: NCCL: " + dir.File("text") + ": "), text);
  CHECK(text == Contains("invalid ELF header"));
}

TEST_CASE("nccl: a version that is too old is told what is needed") {
  const std::string file = Library("libnccl_2_17.so");
  CHECK(Load({{"DDPRUN_NCCL_LIB", file}}) ==
        "FAILED_PRECONDITION: NCCL: " + file +
            ": it is NCCL 2.17.1; NCCL 2.18.3 or newer is needed; DDPRUN_NCCL_LIB names it; "
            "name another, or unset the variable");
}

TEST_CASE("nccl: a missing function is named") {
  const std::string file = Library("libnccl_without_finalize.so");
  CHECK(Load({{"DDPRUN_NCCL_LIB", file}}) ==
        "FAILED_PRECONDITION: NCCL: " + file +
            ": it says that it is NCCL 2.28.9, but has no ncclCommFinalize, which 2.18.3 and newer "
            "have; DDPRUN_NCCL_LIB names it; name another, or unset the variable");
}

TEST_CASE("nccl: a library that has nothing of NCCL is told so") {
  const std::string file = Library("libcuda_fake.so");
  const std::string text = Load({{"DDPRUN_NCCL_LIB", file}});
  CHECK(text == Contains(file + ": it has no ncclGetVersion; NCCL 2.18.3 or newer"));
}

// The file has every function: it is the version that decides.
TEST_CASE("nccl: functions newer than the library are not used") {
  for (const auto& [name, version, can] :
       {std::array{"libnccl_2_18.so", "2.18.3", ""},
        std::array{"libnccl_2_19.so", "2.19.3", "register"},
        std::array{"libnccl_2_28_7.so", "2.28.7", "register"},
        std::array{"libnccl_2_32.so", "2.32.3", "register encrypt"}}) {
    const std::string file = Library(name);
    CHECK(Load({{"DDPRUN_NCCL_LIB", file}}) == std::string(version) + "|" + file + "|" + can);
  }
}

TEST_CASE("nccl: an optional function may be missing, and registration is there whole or not") {
  const std::string file = Library("libnccl_without_register.so");
  CHECK(Load({{"DDPRUN_NCCL_LIB", file}}) == "2.28.9|" + file + "|");
  CHECK(InChild({{"DDPRUN_NCCL_LIB", file}}, [] {
          const auto nccl = LoadNccl();
          return std::string(nccl->api.ncclMemAlloc == nullptr &&
                                     nccl->api.ncclMemFree == nullptr &&
                                     nccl->api.ncclCommDeregister == nullptr
                                 ? "none"
                                 : "some");
        }) == "none");
}

TEST_CASE("nccl: what a framework has loaded is used, wherever its file lies") {
  const std::string loaded = Library("libnccl_soname.so");
  CHECK(Load({}, loaded) == "2.28.9|" + loaded + "|register");
}

TEST_CASE("nccl: the variable goes before what is loaded, and nothing is tried after it") {
  const std::string loaded = Library("libnccl_soname.so");
  const std::string named = Library("libnccl_2_19.so");
  CHECK(Load({{"DDPRUN_NCCL_LIB", named}}, loaded) == "2.19.3|" + named + "|register");
  const std::string text = Load({{"DDPRUN_NCCL_LIB", "/nowhere/x.so"}}, loaded);
  CHECK_MESSAGE(text.starts_with("NOT_FOUND: NCCL: /nowhere/x.so: "), text);
}

TEST_CASE("nccl: the wheel of a named Python is found, its own environment's first") {
  if (SystemHasNccl()) return ddprun::testing::SkipTest("the system has a libnccl.so.2");
  const TempDir dir;
  const std::string base =
      MakePython(dir, "base", "lib/python3.11/dist-packages", Library("libnccl_2_19.so"));
  const std::string in_base = dir.File("base/lib/python3.11/dist-packages/");
  CHECK(Load({{"PYTHON_EXEC", base}}) ==
        "2.19.3|" + in_base + "nvidia/nccl/lib/libnccl.so.2|register");

  // A virtual environment without the wheel leads to the Python that it was made of.
  const std::string bare = MakePython(dir, "bare", "lib/python3.11/site-packages", "");
  std::filesystem::remove(bare);
  std::filesystem::create_symlink(base, bare);
  CHECK(Load({{"PYTHON_EXEC", bare}}) ==
        "2.19.3|" + in_base + "nvidia/nccl/lib/libnccl.so.2|register");

  const std::string own =
      MakePython(dir, "own", "lib/python3.12/site-packages", Library("libnccl_2_28_7.so"));
  std::filesystem::remove(own);
  std::filesystem::create_symlink(base, own);
  const std::string in_own =
      "2.28.7|" + dir.File("own/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2") +
      "|register";
  CHECK(Load({{"PYTHON_EXEC", own}}) == in_own);
  CHECK(Load({{"DDPRUN_NCCL_PYTHON", own}, {"PYTHON_EXEC", base}}) == in_own);
}

TEST_CASE("nccl: a Python without a slash is looked up in the path") {
  if (SystemHasNccl()) return ddprun::testing::SkipTest("the system has a libnccl.so.2");
  const TempDir dir;
  const std::string python =
      MakePython(dir, "p", "lib/python3.11/site-packages", Library("libnccl_2_19.so"));
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const std::string text =
      Load({{"PYTHON_EXEC", "python"}, {"PATH", "/nowhere::" + dir.File("p/bin") + ":/bin"}});
  CHECK_MESSAGE(text.starts_with("2.19.3|" + dir.File("p/lib")), text);
}

TEST_CASE("nccl: a variable that is empty names no Python") {
  if (SystemHasNccl()) return ddprun::testing::SkipTest("the system has a libnccl.so.2");
  const TempDir dir;
  const std::string python =
      MakePython(dir, "p", "lib/python3.11/site-packages", Library("libnccl_2_19.so"));
  const std::string text = InChild({{"DDPRUN_NCCL_LIB", ""}, {"PYTHON_EXEC", python}}, [] {
    setenv("DDPRUN_NCCL_PYTHON", "", 1);
    return Describe(LoadNccl());
  });
  CHECK_MESSAGE(text.starts_with("2.19.3|" + dir.File("p/lib")), text);
}

TEST_CASE("nccl: every place that failed is named") {
  if (SystemHasNccl()) return ddprun::testing::SkipTest("the system has a libnccl.so.2");
  const TempDir dir;
  const std::string python =
      MakePython(dir, "p", "lib/python3.11/site-packages", Library("libnccl_2_17.so"));
  const std::string text = Load({{"PYTHON_EXEC", python}});
  CHECK_MESSAGE(text.starts_with("FAILED_PRECONDITION: NCCL: libnccl.so.2: cannot open"), text);
  CHECK(text == Contains("; " + dir.File("p/lib/python3.11/site-packages/nvidia/nccl/lib/") +
                         "libnccl.so.2: it is NCCL 2.17.1; "));
  CHECK(text == Contains("DDPRUN_NCCL_LIB"));
  const std::string missing = dir.File("nothing/bin/python");
  for (const char* variable : {"DDPRUN_NCCL_PYTHON", "PYTHON_EXEC"}) {
    const std::string text = Load({{variable, missing}});
    CHECK(text == Contains("no Python's packages, as " + std::string(variable) + " names " +
                           missing + ", which does not exist; install "));
  }
  std::filesystem::create_directories(dir.File("nothing/bin"));
  std::ofstream(dir.File("nothing/bin/python"));
  const std::string none = Load({{"PYTHON_EXEC", missing}});
  CHECK(none ==
        Contains("no folder of packages belongs to the Python " + dir.File("nothing/bin/python")));
  CHECK(Load({{"PATH", "/nowhere"}}) ==
        Contains("neither DDPRUN_NCCL_PYTHON nor PYTHON_EXEC is set, and PATH has no python3; "));
}

TEST_CASE("nccl: where no variable names a Python, it is the python3 of the path") {
  if (SystemHasNccl()) return ddprun::testing::SkipTest("the system has a libnccl.so.2");
  const TempDir dir;
  const std::string packages = "lib/python3.11/site-packages";
  const std::string python = MakePython(dir, "p", packages, Library("libnccl_2_19.so"));
  std::filesystem::rename(python, dir.File("p/bin/python3"));
  std::filesystem::permissions(dir.File("p/bin/python3"), std::filesystem::perms::owner_all);
  const std::string path = dir.File("p/bin") + ":/bin";
  const std::string text = Load({{"PATH", path}});
  CHECK_MESSAGE(text.starts_with("2.19.3|" + dir.File("p/lib")), text);
  std::filesystem::remove(dir.File("p/" + packages + "/nvidia/nccl/lib/libnccl.so.2"));
  CHECK(Load({{"PATH", path}}) ==
        Contains("; no nvidia/nccl/lib/libnccl.so.2 among the packages of " +
                 dir.File("p/bin/python3") + "; "));
}

TEST_CASE("nccl: one that is loaded but too old gives way to the wheel") {
  const TempDir dir;
  const std::string python =
      MakePython(dir, "p", "lib/python3.11/site-packages", Library("libnccl_2_28_7.so"));
  const std::string text = Load({{"PYTHON_EXEC", python}}, Library("libnccl_2_17_soname.so"));
  CHECK_MESSAGE(text.starts_with("2.28.7|" + dir.File("p/lib")), text);
}

TEST_CASE("nccl: versions are written as people do") {
  CHECK(NcclVersionText(22807) == "2.28.7");
  CHECK(NcclVersionText(21803) == "2.18.3");
  CHECK(NcclVersionText(23203) == "2.32.3");
  CHECK(NcclVersionText(2708) == "2.7.8");
  CHECK(NcclVersionCode(2, 7, 8) == 2708);
}

TEST_CASE("nccl: a result becomes a status in the library's words") {
  NcclApi api{};
  api.ncclGetErrorString = [](NcclResult) -> const char* { return "remote process exited"; };
  api.ncclGetLastError = [](NcclComm) -> const char* { return "peer 3 is gone\n"; };
  CHECK(NcclStatus(api, "ncclAllReduce", kNcclSuccess, nullptr).ok());
  CHECK(NcclStatus(api, "ncclAllReduce", kNcclRemoteError, nullptr).ToString() ==
        "UNAVAILABLE: ncclAllReduce: remote process exited: peer 3 is gone");
  api.ncclGetLastError = [](NcclComm) -> const char* { return nullptr; };
  CHECK(NcclStatus(api, "f", kNcclSystemError, nullptr).ToString() ==
        "UNAVAILABLE: f: remote process exited");
  CHECK(NcclStatus(api, "f", kNcclInvalidUsage, nullptr).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(NcclStatus(api, "f", kNcclInvalidArgument, nullptr).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(NcclStatus(api, "f", kNcclUnhandledCudaError, nullptr).code() ==
        absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ddp::internal
