#include "rendezvous/base/read_system_facts.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

// The kernel's files as the test writes them.
class FakeProc {
 public:
  FakeProc() { std::filesystem::create_directories(dir_.path() / "driver/nvidia"); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.File(name), std::ios::binary) << text;
  }
  SystemFacts Facts() const { return ReadSystemFacts(dir_.path().string()); }

 private:
  const TempDir dir_;
};

TEST_CASE("system facts: the processor is the first model that is named") {
  const FakeProc proc;
  proc.Write("cpuinfo",
             "processor\t: 0\nmodel\t\t: 17\nmodel name\t:  Some CPU @ 2: GHz \n"
             "processor\t: 1\nmodel name\t: another\n");
  CHECK(proc.Facts().cpu == "Some CPU @ 2: GHz");
  proc.Write("cpuinfo", "model name\t: red \x1b[31m\n");
  CHECK(proc.Facts().cpu == "red \\x1b[31m");
}

TEST_CASE("system facts: a processor without a name has none") {
  const FakeProc proc;
  CHECK(proc.Facts().cpu == "");
  for (const char* text : {"", "model name\n", "processor\t: 0\nBogoMIPS\t: 50.00\n"}) {
    CAPTURE(text);
    proc.Write("cpuinfo", text);
    CHECK(proc.Facts().cpu == "");
  }
}

TEST_CASE("system facts: the version of either kernel module of NVIDIA is found") {
  const FakeProc proc;
  CHECK(proc.Facts().nvidia_module == "");
  proc.Write("driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27\n"
             "GCC version:  gcc version 12.2.0\n");
  CHECK(proc.Facts().nvidia_module == "580.82.07");
  proc.Write("driver/nvidia/version",
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\n");
  CHECK(proc.Facts().nvidia_module == "575.57.08");
  // Only the first line tells of the module.
  proc.Write("driver/nvidia/version", "NVRM version: none\nGCC version:  gcc 12.2.0 (Debian)\n");
  CHECK(proc.Facts().nvidia_module == "");
}

TEST_CASE("system facts: a file is read up to a bound, and one that is not there is empty") {
  const TempDir dir;
  CHECK(ReadSmallFile(dir.File("none")) == "");
  CHECK(ReadSmallFile(dir.path().string()) == "");
  std::ofstream(dir.File("short")) << "1000\n";
  CHECK(ReadSmallFile(dir.File("short")) == "1000\n");
  std::ofstream(dir.File("long")) << std::string(100'000, 'x');
  CHECK(ReadSmallFile(dir.File("long")) == std::string(64 * 1024, 'x'));
}

TEST_CASE("system facts: this machine says what the system's own calls say") {
  const SystemFacts facts = ReadSystemFacts();
  char host[256] = {};
  REQUIRE(gethostname(host, sizeof host - 1) == 0);
  CHECK(facts.host == host);
  CHECK(facts.kernel.starts_with("Linux "));
  CHECK(facts.kernel.size() > 8);
  CHECK(facts.glibc.starts_with("2."));
  cpu_set_t mask;
  REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
  CHECK(facts.cpus == CPU_COUNT(&mask));
}

TEST_CASE("system facts: CPUs that this process may not use do not count") {
  const std::string seen = InChild({}, [] {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return std::string("no mask");
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0) return std::string("not narrowed");
    return std::to_string(ReadSystemFacts().cpus);
  });
  CHECK(seen == "1");
}

}  // namespace
}  // namespace ddprun::testing
