// The only part that differs between the builds of the double.
#include "tests/gpu_double/exports.h"
#include "tests/gpu_double/settings.h"

// NVIDIA's library has such a line in its file, from which tools learn the CUDA it is for.
extern "C" __attribute__((used)) const char ddprun_double_version_text[] =
    "NCCL version " DDPRUN_DOUBLE_VERSION_TEXT;

namespace ddprun::gpu_double {

#ifdef DDPRUN_DOUBLE_TLS
// A build with TLS names what it opens.
extern "C" __attribute__((used)) const char ddprun_double_tls_text[] = "libssl.so.3";
bool HasTls() { return true; }
#else
bool HasTls() { return false; }
#endif

NcclResult ncclGetVersion(int* version) {
  if (version == nullptr) return kNcclInvalidArgument;
  *version = static_cast<int>(NumberSetting("DDPRUN_DOUBLE_NCCL_VERSION", DDPRUN_DOUBLE_VERSION));
  return kNcclSuccess;
}

}  // namespace ddprun::gpu_double
