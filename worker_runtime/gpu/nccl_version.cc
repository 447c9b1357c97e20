#include "worker_runtime/gpu/nccl_version.h"

namespace ddp::internal {

std::string NcclVersionText(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace ddp::internal
