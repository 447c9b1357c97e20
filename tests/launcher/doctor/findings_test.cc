#include "launcher/doctor/cuda_verdict.h"

#include <doctest/doctest.h>

#include "tests/launcher/doctor/example_facts.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using testing::GoodMachine;
using testing::PlainMachine;

Finding Of(const DoctorFacts& facts, const std::string& subject) {
  for (const Finding& finding : FindingsOf(facts)) {
    if (finding.subject == subject) return finding;
  }
  return {.subject = subject, .value = "there is no such finding"};
}

TEST_CASE("findings: of a machine that has everything there is nothing to advise") {
  for (const Finding& finding : FindingsOf(GoodMachine())) {
    CAPTURE(finding.subject);
    CHECK(finding.value != "");
    CHECK(finding.advice == "");
  }
}

TEST_CASE("findings: every lack of a plain machine is explained in one line") {
  for (const char* subject :
       {"driver", "nccl", "cublas", "toolkit", "infiniband", "nofile", "/dev/shm"}) {
    const Finding finding = Of(PlainMachine(), subject);
    CAPTURE(subject);
    CHECK(finding.advice != "");
    CHECK(finding.advice != Contains("\n"));
  }
  CHECK(Of(PlainMachine(), "driver").value == "not found");
  CHECK(Of(PlainMachine(), "gpus").value == "none");
  CHECK(Of(PlainMachine(), "gpus").advice == "");  // said of the driver
  CHECK(Of(PlainMachine(), "numa nodes").value == "unknown");
}

TEST_CASE("findings: a driver older than CUDA 12 is told what does not run on it") {
  DoctorFacts facts = GoodMachine();
  facts.gpu.cuda_version = 11080;
  facts.gpu.nccl_cuda_version = 0;
  CHECK(Of(facts, "driver").value == Contains("CUDA 11.8"));
  CHECK(Of(facts, "driver").advice == Contains("update the driver"));
  facts.gpu.nccl_cuda_version = 11040;  // this one runs on it
  CHECK(Of(facts, "driver").advice == "");
}

TEST_CASE("findings: an NCCL built for a CUDA that the driver does not serve is said once") {
  DoctorFacts facts = GoodMachine();
  facts.gpu.cuda_version = 11080;
  facts.gpu.nccl_lacks = {"ncclCommRegister (since 2.19)"};
  CHECK(Of(facts, "driver").advice == "");
  CHECK(Of(facts, "nccl").value == "/lib/libnccl.so.2, version 2.28.7, built for CUDA 13.0");
  CHECK(Of(facts, "nccl").advice == WhyDriverTooOldForNccl(facts.gpu).value_or("none"));
}

TEST_CASE("findings: a driver in trouble is shown as what it is, with its kernel module") {
  DoctorFacts facts = GoodMachine();
  facts.gpu = {.driver = DriverState::kUnusable, .driver_error = "too old"};
  CHECK(Of(facts, "driver").value == "not usable, kernel module 580.82.07");
  CHECK(Of(facts, "driver").advice == "too old");
  facts.gpu = {.interrupted = "it did not answer"};
  CHECK(Of(facts, "driver").value == "unknown, kernel module 580.82.07");
  CHECK(Of(facts, "driver").advice.find("it did not answer") == 0);
  CHECK(Of(facts, "nccl").advice == "it did not answer");
  CHECK(Of(facts, "cublas").advice.find("it did not answer; only") == 0);
}

TEST_CASE("findings: a list of GPUs that CUDA reads only in part is pointed out") {
  DoctorFacts facts = GoodMachine();
  facts.host.driver.visible_devices = "0,99,1";
  CHECK(Of(facts, "gpu 1").advice.find("CUDA_VISIBLE_DEVICES is '0,99,1'") == 0);
  facts.host.driver.visible_devices = "1,0";
  CHECK(Of(facts, "gpu 1").advice == "");
}

TEST_CASE("findings: what an older NCCL lacks, and what that means") {
  DoctorFacts facts = GoodMachine();
  facts.gpu.nccl_lacks = {"ncclCommRegister (since 2.19)"};
  facts.gpu.nccl_cuda_version = 0;
  CHECK(Of(facts, "nccl").value == "/lib/libnccl.so.2, version 2.28.7");
  CHECK(Of(facts, "nccl").advice.find("it lacks ncclCommRegister (since 2.19): ") == 0);
}

TEST_CASE("findings: what the NCCL here makes of slices of one GPU") {
  DoctorFacts facts = GoodMachine();
  facts.gpu.gpus[1].uuid = "MIG-b";
  for (const char* version : {"2.9.6", "2.28.7", "2.29.7"}) {
    facts.gpu.nccl_version = version;
    CHECK(Of(facts, "nccl").advice.find("it takes slices (MIG) of one GPU for the same GPU") == 0);
  }
  for (const char* version : {"2.30.3", "2.30.7", "2.31.2", "3.0.0"}) {
    facts.gpu.nccl_version = version;
    CHECK(Of(facts, "nccl").advice ==
          "slices (MIG) of one GPU form a group only where all ranks set "
          "NCCL_MULTI_RANK_GPU_ENABLE=1");
  }
  facts.gpu.nccl_lacks = {"ncclCommRegister (since 2.19)"};
  CHECK(Of(facts, "nccl").advice.find("it lacks ncclCommRegister (since 2.19): ") == 0);
  CHECK(Of(facts, "nccl").advice == Contains("; slices (MIG)"));
}

TEST_CASE("findings: interfaces that are down, without address or loopback are no network") {
  DoctorFacts facts = GoodMachine();
  CHECK(Of(facts, "network").value == "eth0, 100 Gbit/s, 10.0.0.1 fe80::1");
  facts.host.network[0].megabits = 2500;
  CHECK(Of(facts, "network").value == Contains("2500 Mbit/s"));
  facts.host.network[0].is_up = false;
  CHECK(Of(facts, "network").value == "none");
  CHECK(Of(facts, "network").advice == Contains("one node"));
}

TEST_CASE("findings: limits matter where something needs them") {
  DoctorFacts facts = GoodMachine();
  CHECK(Of(facts, "memlock").value == "unlimited");
  facts.host.memlock_bytes = 64 << 10;
  CHECK(Of(facts, "memlock").value == "64 KiB");
  CHECK(Of(facts, "memlock").advice == Contains("ulimit -l"));
  facts.host.infiniband[0].state = "DOWN";
  CHECK(Of(facts, "infiniband").advice.find("not active") == 0);
  facts.host.infiniband.clear();
  CHECK(Of(facts, "memlock").advice == "");
  facts.host.open_files = 1024;
  CHECK(Of(facts, "nofile").value == "1024, at most 65536");
  CHECK(Of(facts, "nofile").advice == Contains("ulimit -n"));
  facts.host.open_files = facts.host.open_files_hard = std::nullopt;
  CHECK(Of(facts, "nofile").value == "unlimited");
  facts.host.has_shm = false;
  facts.host.shm_free_bytes = 0;
  CHECK(Of(facts, "/dev/shm").value == "none");
  CHECK(Of(facts, "/dev/shm").advice != "");
}

TEST_CASE("findings: sizes are written with the unit that fits") {
  CHECK(BytesText(0) == "0 KiB");
  CHECK(BytesText(64 << 10) == "64 KiB");
  CHECK(BytesText(8 << 20) == "8 MiB");
  CHECK(BytesText(uint64_t{1536} << 20) == "1.5 GiB");
  CHECK(BytesText(150110011392) == "139.8 GiB");
  CHECK(BytesText(~uint64_t{0}) == "17179869183.9 GiB");
}

}  // namespace
}  // namespace ddprun::launcher
