#include "launcher/doctor/cuda_verdict.h"

#include <utility>

#include <doctest/doctest.h>

#include "tests/launcher/doctor/example_facts.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using testing::GoodMachine;

// The reason begins with the first text and holds the second.
void Expect(const DoctorFacts& facts, const std::string& begin, const std::string& advice) {
  const std::string why = WhyNoCuda(facts).value_or("nothing is lacking");
  CAPTURE(why);
  CHECK(why.rfind(begin, 0) == 0);
  CHECK(why == Contains(advice));
  CHECK(why != Contains("\n"));
}

DoctorFacts NoneVisible(const std::string& error) {
  DoctorFacts facts = GoodMachine();
  facts.gpu.gpus.clear();
  facts.gpu.gpu_error = error;
  return facts;
}

TEST_CASE("cuda verdict: a machine that has everything lacks nothing") {
  CHECK_FALSE(WhyNoCuda(GoodMachine()).has_value());
  DoctorFacts facts = GoodMachine();
  facts.gpu.cublas_file = "";  // only the example needs it
  CHECK_FALSE(WhyNoCuda(facts).has_value());
}

TEST_CASE("cuda verdict: the driver comes first, then the GPUs, then NCCL") {
  DoctorFacts facts = testing::PlainMachine();
  Expect(facts, "no libcuda.so.1", "install it");
  facts.gpu.driver = DriverState::kOpened;
  Expect(facts, "no GPU is visible", "kernel module is not loaded");
  facts.gpu.gpus = GoodMachine().gpu.gpus;
  Expect(facts, "no libnccl.so.2", "install it");
  facts.gpu.nccl_error = "";
  Expect(facts, "NCCL: ", "it was not looked for");
}

TEST_CASE("cuda verdict: a driver serves NCCLs of its own major version of CUDA and older ones") {
  DoctorFacts facts = GoodMachine();
  for (const auto& [driver, nccl] :
       {std::pair(13000, 13040), std::pair(13000, 12090), std::pair(12000, 12090),
        std::pair(14000, 13000), std::pair(0, 13000), std::pair(11080, 0)}) {
    CAPTURE(driver);
    CAPTURE(nccl);
    facts.gpu.cuda_version = driver;
    facts.gpu.nccl_cuda_version = nccl;
    CHECK_FALSE(WhyNoCuda(facts).has_value());
  }
}

TEST_CASE("cuda verdict: a driver too old for NCCL is told with both versions and what to do") {
  DoctorFacts facts = GoodMachine();
  facts.gpu.cuda_version = 12090;
  CHECK(WhyNoCuda(facts) ==
        "NCCL 2.28.7 (/lib/libnccl.so.2) is built for CUDA 13.0, and the driver serves CUDA 12.9 "
        "at most: update the driver (580 or newer), or install an NCCL built for CUDA 12");
  facts.gpu.cuda_version = 11080;
  facts.gpu.nccl_cuda_version = 12040;
  Expect(facts, "NCCL 2.28.7", "(525 or newer), or install an NCCL built for CUDA 11");
  facts.gpu.nccl_cuda_version = 99000;  // nobody knows yet
  Expect(facts, "NCCL 2.28.7", "update the driver, or");
}

TEST_CASE("cuda verdict: without a driver or a GPU, the age of the driver is nobody's concern") {
  DoctorFacts facts = testing::PlainMachine();
  facts.gpu.nccl_file = "/lib/libnccl.so.2";
  facts.gpu.nccl_cuda_version = 13000;
  Expect(facts, "no libcuda.so.1", "install it");
  CHECK_FALSE(WhyDriverTooOldForNccl(facts.gpu).has_value());
}

TEST_CASE("cuda verdict: a library without its kernel module, and the reverse") {
  DoctorFacts facts = testing::PlainMachine();
  facts.host.driver.kernel_module = "580.82.07";
  Expect(facts, "no libcuda.so.1", "kernel module 580.82.07 is loaded: only the library");
  facts = NoneVisible("cuInit: no device (CUDA_ERROR_NO_DEVICE)");
  facts.host.driver = {};
  Expect(facts, "no GPU is visible: cuInit", "modprobe nvidia");
}

TEST_CASE("cuda verdict: a driver that cannot be used is quoted") {
  DoctorFacts facts = GoodMachine();
  facts.gpu = {.driver = DriverState::kUnusable, .driver_error = "it has no cuX; update it"};
  Expect(facts, "it has no cuX", "update it");
}

TEST_CASE("cuda verdict: CUDA_VISIBLE_DEVICES that hides all is named with what the machine has") {
  for (const std::string value : {"", "-1", "GPU-no-such"}) {
    DoctorFacts facts = NoneVisible("cuInit: no device (CUDA_ERROR_NO_DEVICE)");
    facts.host.driver.visible_devices = value;
    Expect(facts, "no GPU is visible: CUDA_VISIBLE_DEVICES is '" + value + "'",
           "(the machine has 2); unset it");
  }
  DoctorFacts facts = NoneVisible("cuInit: no device (CUDA_ERROR_NO_DEVICE)");
  facts.host.driver.visible_devices = "\x1b[31m";
  Expect(facts, "no GPU is visible: CUDA_VISIBLE_DEVICES is '\\x1b[31m'", "unset it");
}

TEST_CASE("cuda verdict: what the driver says of itself brings its own advice") {
  Expect(NoneVisible("cuInit: x (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"), "cuInit: x",
         "does not fit its kernel module 580.82.07: reboot");
  Expect(NoneVisible("cuInit: x (CUDA_ERROR_SYSTEM_NOT_READY)"), "cuInit: x", "fabricmanager");
  Expect(NoneVisible("cuInit: x (CUDA_ERROR_UNKNOWN)"), "cuInit: x", "nvidia-smi");
  Expect(NoneVisible("cuInit: x (CUDA_ERROR_NO_DEVICE)"),
         "no GPU is visible (the machine has 2): cuInit: x", "--gpus all");
}

TEST_CASE("cuda verdict: a GPU that cannot be asked spoils the others") {
  DoctorFacts facts = GoodMachine();
  facts.gpu.gpu_error = "GPU 1: cuDeviceTotalMem: x (CUDA_ERROR_UNKNOWN)";
  Expect(facts, "GPU 1: cuDeviceTotalMem", "nvidia-smi");
}

TEST_CASE("cuda verdict: a probe that did not end is the reason") {
  DoctorFacts facts;
  facts.gpu.interrupted = "the NVIDIA driver (cuInit) did not answer in 10 s";
  Expect(facts, "the NVIDIA driver (cuInit) did not answer in 10 s", "dmesg");
  facts.gpu.driver = DriverState::kOpened;
  Expect(facts, "the NVIDIA driver (cuInit) did not answer in 10 s", "dmesg");
  CHECK(WhyNoNccl(facts.gpu) == facts.gpu.interrupted);
}

}  // namespace
}  // namespace ddprun::launcher
