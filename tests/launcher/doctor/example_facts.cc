#include "tests/launcher/doctor/example_facts.h"

namespace ddprun::testing {

using launcher::DoctorFacts;
using launcher::DriverState;

DoctorFacts GoodMachine() {
  DoctorFacts facts;
  facts.gpu = {.driver = DriverState::kOpened,
               .driver_file = "/lib/libcuda.so.1",
               .cuda_version = 13010,
               .nccl_file = "/lib/libnccl.so.2",
               .nccl_version = "2.28.7",
               .nccl_cuda_version = 13000,
               .cublas_file = "/lib/libcublas.so.13",
               .cublas_version = "13.1.0",
               .is_complete = true};
  for (const char* uuid : {"GPU-a", "GPU-b"}) {
    facts.gpu.gpus.push_back({.memory_bytes = uint64_t{140} << 30,
                              .major = 9,
                              .minor = 0,
                              .bus_id = "0000:18:00.0",
                              .uuid = uuid,
                              .name = "NVIDIA H200"});
  }
  facts.host = {
      .system = {.host = "node7",
                 .kernel = "Linux 6.1.0-25-amd64",
                 .glibc = "2.36",
                 .cpu = "AMD EPYC 9654",
                 .cpus = 96,
                 .nvidia_module = "580.82.07"},
      .driver = {.kernel_module = "580.82.07", .gpus_in_machine = 2},
      .nvcc_file = "/usr/local/cuda/bin/nvcc",
      .toolkit_version = "13.0.1",
      .network = {{.name = "eth0",
                   .is_up = true,
                   .addresses = {"10.0.0.1", "fe80::1"},
                   .megabits = 100000},
                  {.name = "lo", .is_up = true, .is_loopback = true, .addresses = {"127.0.0.1"}}},
      .infiniband =
          {{.device = "mlx5_0", .port = 1, .state = "ACTIVE", .rate = "400 Gb/sec (4X NDR)"}},
      .memlock_bytes = std::nullopt,
      .open_files = 65536,
      .open_files_hard = 65536,
      .has_shm = true,
      .shm_bytes = uint64_t{64} << 30,
      .shm_free_bytes = uint64_t{60} << 30,
      .numa_nodes = 2};
  return facts;
}

DoctorFacts PlainMachine() {
  DoctorFacts facts;
  facts.gpu = {.driver = DriverState::kMissing,
               .driver_error = "no libcuda.so.1; install it",
               .nccl_error = "no libnccl.so.2; install it",
               .cublas_error = "looked for libcublas.so.13",
               .is_complete = true};
  facts.host = {.network = {{.name = "eth0", .is_up = true, .addresses = {"10.0.0.1"}}},
                .memlock_bytes = 8 << 20,
                .open_files = 1024,
                .open_files_hard = 1048576,
                .has_shm = true,
                .shm_bytes = 64 << 20,
                .shm_free_bytes = 64 << 20};
  return facts;
}

}  // namespace ddprun::testing
