#include "launcher/doctor/doctor_facts.h"

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

const Gpu kH200 = {.memory_bytes = uint64_t{140} << 30,
                   .major = 9,
                   .minor = 0,
                   .bus_id = "00000000:18:00.0",
                   .uuid = "GPU-0123",
                   .name = "NVIDIA H200 | a name with bars"};

TEST_CASE("gpu report: what was written is what is read") {
  const GpuReport report = ParseProbeLines(
      ProbeLine("stage", "the NVIDIA driver (cuInit)") +
      ProbeLine("driver_file", "/lib/libcuda.so.1") + ProbeLine("cuda_version", "12040") +
      ProbeLine("gpu", EncodeGpu(kH200)) + ProbeLine("gpu", EncodeGpu({.name = "second"})) +
      ProbeLine("nccl_file", "/lib/libnccl.so.2") + ProbeLine("nccl_version", "2.28.7") +
      ProbeLine("nccl_cuda_version", "13020") + ProbeLine("nccl_lacks", "one") +
      ProbeLine("nccl_lacks", "two") + ProbeLine("cublas_file", "/lib/libcublas.so.13") +
      ProbeLine("cublas_version", "13.1.0") + ProbeLine("end", ""));

  CHECK(report.driver == DriverState::kOpened);
  CHECK(report.driver_file == "/lib/libcuda.so.1");
  CHECK(report.cuda_version == 12040);
  REQUIRE(report.gpus.size() == 2);
  CHECK(report.gpus[0] == kH200);
  CHECK(report.gpus[1].name == "second");
  CHECK(report.nccl_file == "/lib/libnccl.so.2");
  CHECK(report.nccl_version == "2.28.7");
  CHECK(report.nccl_cuda_version == 13020);
  CHECK(report.nccl_lacks == std::vector<std::string>{"one", "two"});
  CHECK(report.cublas_file == "/lib/libcublas.so.13");
  CHECK(report.cublas_version == "13.1.0");
  CHECK(report.stage == "the NVIDIA driver (cuInit)");
  CHECK(report.is_complete);
}

TEST_CASE("gpu report: each error has its place") {
  GpuReport report = ParseProbeLines("driver_missing=a\nnccl_error=b\ncublas_error=c\n");
  CHECK(report.driver == DriverState::kMissing);
  CHECK(report.driver_error == "a");
  CHECK(report.nccl_error == "b");
  CHECK(report.cublas_error == "c");
  CHECK_FALSE(report.is_complete);
  report = ParseProbeLines("driver_unusable=too old\ngpu_error=none\n");
  CHECK(report.driver == DriverState::kUnusable);
  CHECK(report.driver_error == "too old");
  CHECK(report.gpu_error == "none");
}

TEST_CASE("gpu report: a line that is cut off or makes no sense is skipped") {
  const GpuReport report = ParseProbeLines(
      "nonsense\n=\ngpu=1|2\ngpu=a|b|c|d|e|f\ngpu=99999999999999999999|1|1|b|u|n\n"
      "cuda_version=x\nnccl_cuda_version=12.4\nunknown=1\n\ndriver_file=/lib/x\nend");
  CHECK(report.gpus.empty());
  CHECK(report.cuda_version == 0);
  CHECK(report.nccl_cuda_version == 0);
  CHECK(report.driver_file == "/lib/x");
  CHECK_FALSE(report.is_complete);
  CHECK(ParseProbeLines("").driver == DriverState::kUnknown);
}

TEST_CASE("gpu report: what a library says cannot end a line or reach a terminal raw") {
  CHECK(ProbeLine("gpu_error", "a\nend=\x1b[31m") == "gpu_error=a\\nend=\\x1b[31m\n");
  CHECK(ParseProbeLines("gpu_error=\x1b[31m\n").gpu_error == "\\x1b[31m");
}

}  // namespace
}  // namespace ddprun::launcher
