#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "examples/train/gpu/cublas.h"
#include "tools/gpu_check_program/child.h"
#include "tools/gpu_check_program/rank.h"
#include "tools/gpu_check_program/rank_commands.h"
#include "worker_runtime/gpu/device.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddprun::gpu_check {
namespace {

void PrintLack(const char* name, const absl::Status& status) {
  PrintText(name, std::string(status.message()));
}

// "580.82.07, ", or nothing where the kernel does not say.
std::string KernelModule() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  return file >> version ? version + ", " : "";
}

void MustHaveGpu(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "no GPU: %s\n", std::string(status.message()).c_str());
  std::exit(kExitNoGpu);
}

}  // namespace

int Machine(const Arguments&) {
  const auto& cuda = ddp::internal::Cuda();
  MustHaveGpu(cuda.status());
  const absl::StatusOr<int> count = ddp::internal::CountGpus(cuda->api);
  MustHaveGpu(count.status());
  MustHaveGpu(ddp::internal::OrdinalFor(0, *count).status());
  PrintText("driver", absl::StrCat(KernelModule(), "CUDA ", cuda->version / 1000, ".",
                                   cuda->version % 1000 / 10, " (", cuda->path, ")"));
  for (int i = 0; i < *count; ++i) {
    const auto device = ddp::internal::Device::Open(cuda->api, i);
    MustBeOk("no GPU", device.status());
    PrintText(absl::StrCat("gpu", i), absl::StrCat((*device)->name(), " ", (*device)->uuid()));
  }
  PrintValue("gpus", *count);
  if (const auto& nccl = ddp::internal::Nccl(); nccl.ok()) {
    PrintText("nccl",
              absl::StrCat(ddp::internal::NcclVersionText(nccl->version), " (", nccl->path, ")"));
  } else {
    PrintLack("nccl_lack", nccl.status());
  }
  if (const auto cublas = train::LoadCublas(); cublas.ok()) {
    PrintText("cublas", cublas->path);
  } else {
    PrintLack("cublas_lack", cublas.status());
  }
  return EXIT_SUCCESS;
}

}  // namespace ddprun::gpu_check
