// The only part that differs between the builds of the double.
#include "tests/gpu_double/exports.h"
#include "tests/gpu_double/settings.h"

namespace ddprun::gpu_double {

NcclResult ncclGetVersion(int* version) {
  if (version == nullptr) return kNcclInvalidArgument;
  *version = static_cast<int>(NumberSetting("DDPRUN_DOUBLE_NCCL_VERSION", DDPRUN_DOUBLE_VERSION));
  return kNcclSuccess;
}

}  // namespace ddprun::gpu_double
