#include "launcher/doctor/host_facts.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

// A machine made of files.
class Machine {
 public:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = dir_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void WriteProgram(const std::string& path) const {
    Write(path, "#!/bin/sh\n");
    chmod(dir_.File(path).c_str(), 0755);
  }
  std::string File(const std::string& name) const { return dir_.File(name); }
  SystemFolders folders() const {
    return {.proc = File("proc"), .sys = File("sys"), .shm = File("shm"), .cuda = File("cuda")};
  }
  HostFacts Read(std::vector<std::string> variables = {}) const {
    return ReadHostFacts({.variables = std::move(variables), .machine = {}}, folders());
  }

 private:
  testing::TempDir dir_;
};

TEST_CASE("host facts: a machine without any of the files has none of the things") {
  const HostFacts facts = Machine().Read();
  CHECK(facts.driver.kernel_module == "");
  CHECK(facts.driver.gpus_in_machine == 0);
  CHECK_FALSE(facts.driver.visible_devices.has_value());
  CHECK(facts.nvcc_file == "");
  CHECK(facts.infiniband.empty());
  CHECK_FALSE(facts.has_shm);
  CHECK(facts.numa_nodes == 0);
}

TEST_CASE("host facts: the kernel module's version, closed and open") {
  const Machine machine;
  machine.Write("proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24 2024\n"
                "GCC version:  gcc version 12.2.0\n");
  CHECK(machine.Read().driver.kernel_module == "535.161.08");
  machine.Write("proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build "
                " (dvs-builder@U22)  Wed Aug 27 2025\nGCC version:  gcc version 12.2.0\n");
  CHECK(machine.Read().driver.kernel_module == "580.82.07");
  machine.Write("proc/driver/nvidia/version", "\n");
  CHECK(machine.Read().driver.kernel_module == "");
}

TEST_CASE("host facts: GPUs of the kernel module, and the user's choice among them") {
  const Machine machine;
  machine.Write("proc/driver/nvidia/gpus/0000:18:00.0/information", "x");
  machine.Write("proc/driver/nvidia/gpus/0000:2a:00.0/information", "x");
  CHECK(machine.Read().driver.gpus_in_machine == 2);
  CHECK(machine.Read({"CUDA_VISIBLE_DEVICES="}).driver.visible_devices == "");
  CHECK(machine.Read({"CUDA_VISIBLE_DEVICES=GPU-a,1"}).driver.visible_devices == "GPU-a,1");
}

TEST_CASE("host facts: nvcc is taken from PATH, then CUDA_HOME, then /usr/local/cuda") {
  const Machine machine;
  machine.Write("cuda/version.json", R"({"cuda" : {"name" : "CUDA SDK", "version" : "13.0.1"}})");
  machine.WriteProgram("cuda/bin/nvcc");
  CHECK(machine.Read().nvcc_file == machine.File("cuda/bin/nvcc"));
  CHECK(machine.Read().toolkit_version == "13.0.1");
  const std::string home = "CUDA_HOME=" + machine.File("home");
  CHECK(machine.Read({home}).nvcc_file == machine.File("cuda/bin/nvcc"));
  machine.WriteProgram("home/bin/nvcc");
  CHECK(machine.Read({home}).nvcc_file == machine.File("home/bin/nvcc"));
  CHECK(machine.Read({home}).toolkit_version == "");
  machine.Write("plain/nvcc", "not executable");
  machine.WriteProgram("path/nvcc");
  const std::string path = "PATH=:" + machine.File("plain") + ":" + machine.File("path");
  CHECK(machine.Read({home, path}).nvcc_file == machine.File("path/nvcc"));
}

TEST_CASE("host facts: a toolkit without version.json is known by its folder") {
  const Machine machine;
  machine.WriteProgram("cuda-13.0/bin/nvcc");
  CHECK(machine.Read({"CUDA_HOME=" + machine.File("cuda-13.0")}).toolkit_version == "13.0");
}

TEST_CASE("host facts: the toolkit's version.json is read as far as it makes sense") {
  CHECK(ToolkitVersion(R"({ "cuda" : { "name" : "x", "version" : "12.4.1" }, "y": 1 })") ==
        "12.4.1");
  for (const char* text : {"", "{}", "\"cuda\"", R"("cuda": {}, "z": {"version": "1"})",
                           R"("cuda": {"version": 3)", R"("cuda": {"version": "3)"}) {
    CAPTURE(text);
    CHECK(ToolkitVersion(text) == "");
  }
}

TEST_CASE("host facts: InfiniBand ports with state and rate") {
  const Machine machine;
  machine.Write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  machine.Write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  machine.Write("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  const HostFacts facts = machine.Read();
  REQUIRE(facts.infiniband.size() == 2);
  CHECK(facts.infiniband[0].device == "mlx5_0");
  CHECK(facts.infiniband[0].state == "ACTIVE");
  CHECK(facts.infiniband[0].rate == "400 Gb/sec (4X NDR)");
  CHECK(facts.infiniband[1].state == "DOWN");
  CHECK(facts.infiniband[1].rate == "");
}

TEST_CASE("host facts: NUMA nodes are counted, other files there are not") {
  const Machine machine;
  for (const char* name : {"node0/cpulist", "node1/cpulist", "node10/cpulist", "online", "nodes"}) {
    machine.Write(std::string("sys/devices/system/node/") + name, "x");
  }
  CHECK(machine.Read().numa_nodes == 3);
}

TEST_CASE("host facts: this machine's loopback, its limits and a folder's size") {
  const Machine machine;
  machine.Write("shm/file", "x");
  machine.Write("sys/class/net/lo/speed", "-1\n");
  const HostFacts facts = machine.Read();
  const auto lo = std::find_if(facts.network.begin(), facts.network.end(),
                               [](const auto& interface) { return interface.is_loopback; });
  REQUIRE(lo != facts.network.end());
  CHECK(lo->megabits == 0);
  CHECK(facts.has_shm);
  CHECK(facts.shm_bytes > 0);
  CHECK((!facts.open_files || *facts.open_files > 0));
}

TEST_CASE("host facts: kernel, C library and CPU, for the doctor and the record of a run alike") {
  const Machine machine;
  CHECK(machine.Read().system.cpu == "");
  machine.Write("proc/cpuinfo",
                "processor\t: 0\nmodel name\t: AMD EPYC 9654 \nflags\t: a\nmodel name\t: other\n");
  const SystemFacts system = machine.Read().system;
  CHECK(system.cpu == "AMD EPYC 9654");
  CHECK(system.kernel.find("Linux ") == 0);
  CHECK(system.glibc.find("2.") == 0);
  CHECK(system.cpus >= 1);
}

}  // namespace
}  // namespace ddprun::launcher
