#include "launcher/doctor/doctor.h"

#include <doctest/doctest.h>

#include "rendezvous/base/version.h"
#include "tests/launcher/doctor/example_facts.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("doctor output: the text of a machine that has everything") {
  CHECK(DoctorText(testing::GoodMachine()) ==
        "driver      /lib/libcuda.so.1, CUDA 13.1, kernel module 580.82.07\n"
        "gpu 0       NVIDIA H200, 140 GiB, compute capability 9.0, 0000:18:00.0, GPU-a\n"
        "gpu 1       NVIDIA H200, 140 GiB, compute capability 9.0, 0000:18:00.0, GPU-b\n"
        "nccl        /lib/libnccl.so.2, version 2.28.7, built for CUDA 13.0\n"
        "cublas      /lib/libcublas.so.13, version 13.1.0\n"
        "toolkit     /usr/local/cuda/bin/nvcc, version 13.0.1\n"
        "network     eth0, 100 Gbit/s, 10.0.0.1 fe80::1\n"
        "infiniband  mlx5_0 port 1, ACTIVE, 400 Gb/sec (4X NDR)\n"
        "memlock     unlimited\n"
        "nofile      65536\n"
        "/dev/shm    64 GiB, 60 GiB free\n"
        "numa nodes  2\n"
        "verdict     CUDA training can run here\n");
}

TEST_CASE("doctor output: the advice stands below what it is about, the verdict last") {
  const std::string text = DoctorText(testing::PlainMachine());
  CHECK(text.find("driver      not found\n            -> no libcuda.so.1; install it\ngpus") == 0);
  const std::string verdict =
      "verdict     CUDA training cannot run here; training on the CPU can\n";
  CHECK(text.substr(text.size() - verdict.size()) == verdict);
}

TEST_CASE("doctor output: the JSON of a machine that has everything") {
  DoctorFacts facts = testing::GoodMachine();
  facts.gpu.gpus.resize(1);
  facts.host.driver.visible_devices = "0";
  const std::vector<std::string> lines = {
      R"({)",
      R"(  "ddprun": ")" + std::string(kVersion) + R"(",)",
      R"(  "system": {"host": "node7", "kernel": "Linux 6.1.0-25-amd64", "glibc": "2.36", )"
      R"("cpu": "AMD EPYC 9654", "cpus": 96},)",
      R"(  "driver": {"file": "/lib/libcuda.so.1", "cuda_version": "13.1", )"
      R"("kernel_module": "580.82.07", "gpus_in_machine": 2, "cuda_visible_devices": "0", )"
      R"("error": null},)",
      R"(  "gpus": [{"index": 0, "name": "NVIDIA H200", "memory_bytes": 150323855360, )"
      R"("compute_capability": "9.0", "pci_bus_id": "0000:18:00.0", "uuid": "GPU-a"}],)",
      R"(  "gpu_error": null,)",
      R"(  "nccl": {"file": "/lib/libnccl.so.2", "version": "2.28.7", )"
      R"("cuda_version": "13.0", "lacks": [], "error": null},)",
      R"(  "cublas": {"file": "/lib/libcublas.so.13", "version": "13.1.0", "error": null},)",
      R"(  "toolkit": {"nvcc": "/usr/local/cuda/bin/nvcc", "version": "13.0.1"},)",
      R"(  "network": [{"name": "eth0", "up": true, "loopback": false, )"
      R"("addresses": ["10.0.0.1", "fe80::1"], "megabits": 100000}, )"
      R"({"name": "lo", "up": true, "loopback": true, "addresses": ["127.0.0.1"], )"
      R"("megabits": null}],)",
      R"(  "infiniband": [{"device": "mlx5_0", "port": 1, "state": "ACTIVE", )"
      R"x("rate": "400 Gb/sec (4X NDR)"}],)x",
      R"(  "limits": {"memlock_bytes": null, "nofile": 65536, "nofile_hard": 65536, )"
      R"("shm_bytes": 68719476736, "shm_free_bytes": 64424509440},)",
      R"(  "numa_nodes": 2,)",
      R"(  "advice": [],)",
      R"(  "cuda_training": {"possible": true, "reason": null})",
      R"(})"};
  std::string expected;
  for (const std::string& line : lines) expected += line + "\n";
  CHECK(DoctorJson(facts) == expected);
}

TEST_CASE("doctor output: what is lacking is null, the reason stands in the JSON") {
  const std::string json = DoctorJson(testing::PlainMachine());
  for (const char* part :
       {"\"file\": null", "\"gpus\": []", "\"memlock_bytes\": 8388608", "\"numa_nodes\": null",
        "{\"subject\": \"driver\", \"advice\": \"no libcuda.so.1; install it\"}",
        "\"cuda_training\": {\"possible\": false, \"reason\": \"no libcuda.so.1; install it\"}"}) {
    CAPTURE(part);
    CHECK(json == Contains(part));
  }
}

TEST_CASE("doctor output: strings of a library or a user stay strings of JSON") {
  DoctorFacts facts = testing::GoodMachine();
  facts.gpu.gpus[0].name = "a\"b\\c\td\ne\x01\xff";
  CHECK(DoctorJson(facts) == Contains(R"("name": "a\"b\\c\td\\ne\\x01\\xff")"));
}

}  // namespace
}  // namespace ddprun::launcher
