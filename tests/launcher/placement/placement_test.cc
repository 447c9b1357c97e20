#include "launcher/placement/placement.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "launcher/placement/sysfs.h"
#include "tests/launcher/placement/placed.h"
#include "tests/support/contains.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

using Sets = std::vector<CpuSet>;

// Two nodes of two CPUs, GPU 0 at node 1, GPU 1 at a place unknown to the kernel.
class SmallMachine {
 public:
  SmallMachine() {
    FakeMachine machine;
    machine.nodes = {{0, {0, 1}}, {1, {2, 3}}};
    for (int cpu = 0; cpu < 4; ++cpu) {
      machine.cpus[cpu] = {
          .package = cpu / 2, .core = {cpu}, .caches = {{.level = 2, .shared = {cpu}}}};
    }
    machine.devices = {{BusIdOf(0), 1}, {BusIdOf(1), -1}};
    WriteSys(machine, root());
  }
  std::string root() const { return dir_.path().string(); }
  void Write(const std::string& path, const std::string& text) const {
    WriteSysFile(root(), path, text);
  }
  void Remove(const std::string& path) const { std::filesystem::remove_all(dir_.path() / path); }

  absl::StatusOr<Sets> Bind(NumaBinding binding, int workers, const GpuReport& report,
                            const DriverFacts& driver = {}) const {
    return BindToCpus(Bound(binding, workers), report, driver, root(), {0, 1, 2, 3});
  }
  std::string ErrorOf(NumaBinding binding, int workers, const GpuReport& report,
                      const DriverFacts& driver = {}) const {
    const absl::StatusOr<Sets> cpus = Bind(binding, workers, report, driver);
    REQUIRE_FALSE(cpus.ok());
    CHECK(absl::IsFailedPrecondition(cpus.status()));
    return std::string(cpus.status().message());
  }

 private:
  TempDir dir_;
};

TEST_CASE("placement: a GPU that the kernel has no node for is at node 0") {
  const SmallMachine machine;
  const absl::StatusOr<Sets> cpus = machine.Bind(NumaBinding::kNode, 2, GpusOfDouble(2));
  REQUIRE(cpus.ok());
  CHECK(*cpus == Sets{{2, 3}, {0, 1}});
}

TEST_CASE("placement: a GPU that cannot be read stops the worker that has it, and no other") {
  const SmallMachine machine;
  CHECK(machine.Bind(NumaBinding::kNode, 2, GpusOfDouble(3)).value() == Sets{{2, 3}, {0, 1}});
  CHECK(machine.ErrorOf(NumaBinding::kNode, 3, GpusOfDouble(3))
            .starts_with("--numa-binding 'node': local rank 2's GPU: "));
}

TEST_CASE("placement: PCI addresses are found in every form that libraries write") {
  const SmallMachine machine;
  machine.Write("bus/pci/devices/10000:dc:1f.0/numa_node", "7");
  for (const char* address : {"0000:10:00.0", "00000000:10:00.0", "0:10:00.0"}) {
    CHECK(ReadNodeOfDevice(machine.root(), address).value() == 1);
  }
  CHECK(ReadNodeOfDevice(machine.root(), "00010000:DC:1F.0").value() == 7);
  for (const char* address : {"", "x", "0000:10", "0000:10:../x", "0000:10:00.0/../0000:10:00.0"}) {
    CAPTURE(address);
    CHECK_FALSE(ReadNodeOfDevice(machine.root(), address).ok());
  }
}

TEST_CASE("placement: more workers than visible GPUs are refused") {
  const SmallMachine machine;
  CHECK(machine.ErrorOf(NumaBinding::kExclusive, 3, GpusOfDouble(2)) ==
        "--numa-binding 'exclusive': local rank 2 has no GPU: 2 visible, for 3 workers; workers "
        "that use no GPU are bound with CUDA_VISIBLE_DEVICES=-1");
}

TEST_CASE("placement: without GPUs, or with all hidden, the workers are spread over the nodes") {
  const SmallMachine machine;
  GpuReport missing;
  missing.driver = DriverState::kMissing;
  missing.driver_error = "no driver";
  GpuReport hidden;
  hidden.driver = DriverState::kOpened;
  for (const NumaBinding binding : {NumaBinding::kNode, NumaBinding::kSocket}) {
    CHECK(machine.Bind(binding, 2, missing).value() == Sets{{0, 1}, {2, 3}});
    for (const char* value : {"", "-1", " -1 "}) {
      CHECK(machine.Bind(binding, 2, hidden, {.visible_devices = value}).value() ==
            Sets{{0, 1}, {2, 3}});
    }
  }
  CHECK(machine.Bind(NumaBinding::kExclusive, 4, missing).value() == Sets{{0}, {1}, {2}, {3}});
  CHECK(machine.Bind(NumaBinding::kCoreComplex, 3, missing).value() == Sets{{0}, {1}, {2}});
}

TEST_CASE("placement: a driver in trouble is an error, not a machine without GPUs") {
  const SmallMachine machine;
  GpuReport broken;
  broken.driver = DriverState::kUnusable;
  broken.driver_error = "too old";
  CHECK(machine.ErrorOf(NumaBinding::kNode, 1, broken) == "--numa-binding 'node': too old");
  GpuReport none;
  none.driver = DriverState::kOpened;
  CHECK(machine.ErrorOf(NumaBinding::kNode, 1, none, {.visible_devices = "GPU-ff"}) ==
        Contains("CUDA_VISIBLE_DEVICES is 'GPU-ff'"));
}

TEST_CASE("placement: files that are missing or hold something else are named") {
  struct Row {
    NumaBinding binding;
    const char* path;
    const char* text;  // nullptr: the file, or folder, is not there
    const char* wanted;
  };
  const char* const siblings = "devices/system/cpu/cpu2/topology/thread_siblings_list";
  const char* const device = "bus/pci/devices/0000:10:00.0/numa_node";
  const Row rows[] = {
      {NumaBinding::kNode, device, nullptr, "No such file or directory"},
      {NumaBinding::kNode, device, "one", "'one' is no number"},
      {NumaBinding::kNode, device, "", "'' is no number"},
      {NumaBinding::kNode, device, "5", "the kernel has no NUMA node 5"},
      {NumaBinding::kNode, "devices/system/node", nullptr, "tells nothing about NUMA nodes"},
      {NumaBinding::kNode, "devices/system/node/node1/cpulist", nullptr, "No such file"},
      {NumaBinding::kNode, "devices/system/node/node1/cpulist", "a-b", "'a-b' is no list of CPUs"},
      {NumaBinding::kNode, "devices/system/node/node1/cpulist", "", "node 1 has no CPU that"},
      {NumaBinding::kSocket, "devices/system/cpu/cpu2/topology/physical_package_id", nullptr,
       "physical_package_id: No such file"},
      {NumaBinding::kExclusive, siblings, nullptr, "thread_siblings_list: No such file"},
      {NumaBinding::kExclusive, siblings, "", "thread_siblings_list: it is empty"},
      {NumaBinding::kCoreComplex, "devices/system/cpu/cpu2/cache", nullptr, "cpu2/cache: No such"},
      {NumaBinding::kCoreComplex, "devices/system/cpu/cpu2/cache/index0/type", "Instruction",
       "it names no cache for data"},
      {NumaBinding::kCoreComplex, "devices/system/cpu/cpu2/cache/index0/level", "x", "no number"},
      {NumaBinding::kCoreComplex, "devices/system/cpu/cpu2/cache/index0/shared_cpu_list",
       "99999999", "'99999999' is no list"},
  };
  for (const Row& row : rows) {
    const SmallMachine machine;
    machine.Remove(row.path);
    if (row.text != nullptr) machine.Write(row.path, row.text);
    const std::string error = machine.ErrorOf(row.binding, 1, GpusOfDouble(1));
    CHECK(error == Contains(row.wanted));
    CHECK(error.find("--numa-binding '") == 0);
    CHECK(error != Contains("\n"));
  }
}

TEST_CASE("placement: a file without end is not read to it") {
  const SmallMachine machine;
  machine.Write("devices/system/node/node1/cpulist", std::string(1 << 20, '1'));
  CHECK(machine.ErrorOf(NumaBinding::kNode, 1, GpusOfDouble(1)) == Contains("too long"));
}

TEST_CASE("placement: what a mode does not ask may be missing") {
  const SmallMachine machine;
  machine.Remove("devices/system/cpu");
  CHECK(machine.Bind(NumaBinding::kNode, 1, GpusOfDouble(1)).ok());
}

TEST_CASE("placement: CPUs that this process may not use are left out") {
  const SmallMachine machine;
  const auto bind = [&](const CpuSet& allowed) {
    return BindToCpus(Bound(NumaBinding::kNode, 1), GpusOfDouble(1), {}, machine.root(), allowed);
  };
  CHECK(bind({1, 3}).value() == Sets{{3}});
  CHECK(bind({1}).status().message() ==
        "--numa-binding 'node': local rank 0: NUMA node 1 has no CPU that this process may use");
}

LaunchConfig Workers(int count) {
  LaunchConfig config;
  config.workers_per_node = count;
  return config;
}

constexpr char kCuda[] = "CUDA_VISIBLE_DEVICES";

TEST_CASE("chosen devices: by their place in the launcher's own list, where there is one") {
  LaunchConfig config = Workers(2);
  config.gpus = {3, 1};
  CHECK(ChosenDevices(config, std::nullopt) == "3,1");
  CHECK(ChosenDevices(config, "7, 6,GPU-a5,4") == "4,6");
  CHECK(VirtualDevices(config, kCuda, ChosenDevices(config, std::nullopt)).value() ==
        std::vector<std::string>{"3", "1"});
}

TEST_CASE("virtual devices: each worker's GPU is its entry of the launcher's own list") {
  using Devices = std::vector<std::string>;
  CHECK(VirtualDevices(Workers(3), kCuda, std::nullopt).value() == Devices{"0", "1", "2"});
  CHECK(VirtualDevices(Workers(2), kCuda, "3,1").value() == Devices{"3", "1"});
  CHECK(VirtualDevices(Workers(2), kCuda, " 3 , GPU-a1 ,7").value() == Devices{"3", "GPU-a1"});
  CHECK(VirtualDevices(Workers(2), kCuda, "0,0").value() == Devices{"0", "0"});
  CHECK(VirtualDevices(Workers(1), kCuda, "").value() == Devices{""});
  CHECK(VirtualDevices(Workers(1), kCuda, "-1").value() == Devices{"-1"});
  const auto devices = VirtualDevices(Workers(4), kCuda, "3,1");
  CHECK(absl::IsInvalidArgument(devices.status()));
  CHECK(devices.status().message() ==
        "--virtual-local-rank: local rank 2 exceeds the GPUs in CUDA_VISIBLE_DEVICES '3,1': "
        "expected one for each of 4 workers");
  const auto hip = VirtualDevices(Workers(4), "HIP_VISIBLE_DEVICES", "3,1");
  CHECK(hip.status().message() == Contains("the GPUs in HIP_VISIBLE_DEVICES '3,1'"));
}

TEST_CASE("virtual devices: what hides all GPUs is named, not counted as a GPU") {
  for (const std::string value : {"", "-1", " -1 ", "-1,0,1,2"}) {
    CAPTURE(value);
    const auto devices = VirtualDevices(Workers(2), kCuda, value);
    CHECK(absl::IsInvalidArgument(devices.status()));
    CHECK(devices.status().message() ==
          "--virtual-local-rank: CUDA_VISIBLE_DEVICES '" + value +
              "' hides all GPUs: unset it, or leave --virtual-local-rank out");
  }
}

}  // namespace
}  // namespace ddprun::launcher
