#include "ddp/dynamic_library.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/in_child.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ddprun::testing::Runfile;
using ddprun::testing::Subprocess;
using ddprun::testing::TempDir;

std::string Library(const std::string& name) { return Runfile("tests/worker_runtime/gpu/" + name); }

// What print_loaded prints, in an environment in which `folder` is the system's.
std::string Loaded(std::vector<std::string> arguments, const std::string& folder,
                   std::map<std::string, std::string> env = {}) {
  for (const char* name : {"DDPRUN_NCCL_LIB", "DDPRUN_NCCL_PYTHON", "PYTHON_EXEC"}) {
    env.try_emplace(name, "");
  }
  env["LD_LIBRARY_PATH"] = folder;
  arguments.insert(arguments.begin(), Library("print_loaded"));
  Subprocess program(arguments, {.env = env});
  if (program.Wait() != 0) return program.Describe();
  return program.out();
}

TEST_CASE("library: a path is loaded only when somebody opened it") {
  const std::string file = Library("libnccl_2_19.so");
  CHECK_FALSE(DynamicLibrary::FindLoaded(file).has_value());
  const auto opened = DynamicLibrary::Open(file);
  REQUIRE(opened.ok());
  CHECK(opened->path() == file);
  REQUIRE(DynamicLibrary::FindLoaded(file).has_value());
  CHECK(DynamicLibrary::FindLoaded(file)->path() == file);
}

TEST_CASE("library: its path is whole, wherever the process goes afterwards") {
  const TempDir dir;
  fs::copy_file(Library("libnccl_2_19.so"), dir.path() / "one.so");
  CHECK(ddprun::testing::InChild({}, [&dir]() -> std::string {
          fs::current_path(dir.path());
          const auto opened = DynamicLibrary::Open("./one.so");
          fs::current_path("/");
          return opened.ok() ? opened->path() : opened.status().ToString();
        }) == fs::canonical(dir.path() / "one.so"));
}

TEST_CASE("library: a symbol that is not there leaves a null function") {
  const auto library = DynamicLibrary::Open(Library("libnccl_2_19.so"));
  REQUIRE(library.ok());
  int (*function)() = nullptr;
  CHECK(library->Take("ncclGroupStart", function));
  CHECK((function != nullptr));
  CHECK_FALSE(library->Take("ncclNothing", function));
  CHECK((function == nullptr));
}

// Ours must not answer a framework's calls, nor the other way round.
TEST_CASE("library: its symbols are seen by nobody else") {
  CHECK(ddprun::testing::InChild({}, [] {
          if (!DynamicLibrary::Open(Library("libnccl_2_19.so")).ok()) return std::string("none");
          return std::string(dlsym(RTLD_DEFAULT, "ncclGroupStart") != nullptr ? "seen" : "hidden");
        }) == "hidden");
}

TEST_CASE("library: the system's goes before a wheel's") {
  const TempDir dir;
  const std::string packages = "lib/python3.11/site-packages/nvidia/nccl/lib";
  fs::create_directories(dir.path() / "bin");
  fs::create_directories(dir.path() / packages);
  fs::create_directories(dir.path() / "system");
  std::ofstream(dir.File("bin/python"));
  fs::copy_file(Library("libnccl_2_28_7.so"), dir.path() / packages / "libnccl.so.2");
  const std::map<std::string, std::string> env = {{"PYTHON_EXEC", dir.File("bin/python")}};
  CHECK(Loaded({"nccl"}, dir.File("system"), env) == dir.File(packages + "/libnccl.so.2") + "\n");
  fs::copy_file(Library("libnccl_2_19.so"), dir.path() / "system/libnccl.so.2");
  CHECK(Loaded({"nccl"}, dir.File("system"), env) == dir.File("system/libnccl.so.2") + "\n");
}

TEST_CASE("library: an older one that is loaded goes before a newer one of the system") {
  const TempDir dir;
  fs::copy_file(Library("libnewest_2.so"), dir.path() / "libnewest.so.2");
  CHECK(Loaded({"newest"}, dir.path().string()) == dir.File("libnewest.so.2") + "\n");
  const std::string older = Library("libnewest_1.so");
  CHECK(Loaded({"newest", older}, dir.path().string()) == older + "\n");
}

}  // namespace
}  // namespace ddp
