#include "launcher/doctor/cuda_verdict.h"

#include <doctest/doctest.h>

#include "absl/status/status.h"
#include "tests/launcher/doctor/example_facts.h"

namespace ddprun::launcher {
namespace {

using testing::GoodMachine;
using testing::PlainMachine;

constexpr int kCpus = 6;

LaunchConfig Asked(WorkersBy by) {
  LaunchConfig config;
  config.workers_by = by;
  config.sources["nproc_per_node"] = "PET_NPROC_PER_NODE";
  return config;
}

absl::Status Resolve(const DoctorFacts& facts, LaunchConfig& config) {
  return ResolveWorkers(facts.gpu, facts.host.driver, kCpus, config);
}

TEST_CASE("worker count: gpu and auto are the visible GPUs") {
  for (const WorkersBy by : {WorkersBy::kGpu, WorkersBy::kGpuOrCpu}) {
    LaunchConfig config = Asked(by);
    CHECK(Resolve(GoodMachine(), config).ok());
    CHECK(config.workers_per_node == 2);
    CHECK(config.workers_by == WorkersBy::kNumber);
    CHECK(config.warnings.empty());
  }
}

TEST_CASE("worker count: gpu without one says what was looked for and what to do") {
  LaunchConfig config = Asked(WorkersBy::kGpu);
  const absl::Status status = Resolve(PlainMachine(), config);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() ==
        "PET_NPROC_PER_NODE 'gpu': no libcuda.so.1; install it; or give a number, or cpu (6 here)");
}

TEST_CASE("worker count: gpu counts no GPU of a driver that fails, whatever it listed") {
  DoctorFacts facts = GoodMachine();
  facts.gpu.gpu_error = "GPU 1: cuDeviceTotalMem: x";
  LaunchConfig config = Asked(WorkersBy::kGpu);
  CHECK(absl::IsFailedPrecondition(Resolve(facts, config)));
}

TEST_CASE("worker count: auto without a GPU is the CPUs; a driver in trouble is warned of") {
  LaunchConfig config = Asked(WorkersBy::kGpuOrCpu);
  CHECK(Resolve(PlainMachine(), config).ok());
  CHECK(config.workers_per_node == kCpus);
  CHECK(config.warnings.empty());

  DoctorFacts facts = PlainMachine();
  facts.gpu = {.interrupted = "the driver did not answer in 10 s"};
  config = Asked(WorkersBy::kGpuOrCpu);
  CHECK(Resolve(facts, config).ok());
  CHECK(config.workers_per_node == kCpus);
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0].find("PET_NPROC_PER_NODE 'auto': one worker for each of 6 CPUs, since "
                                "the driver did not answer in 10 s") == 0);
}

}  // namespace
}  // namespace ddprun::launcher
