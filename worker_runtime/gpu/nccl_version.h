// NCCL's version numbers as people write them. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_GPU_NCCL_VERSION_H_
#define DDPRUN_WORKER_RUNTIME_GPU_NCCL_VERSION_H_

#include <string>

namespace ddp::internal {

// 22807 is "2.28.7".
std::string NcclVersionText(int version);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_NCCL_VERSION_H_
