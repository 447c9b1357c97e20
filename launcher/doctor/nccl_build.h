// Which CUDA an NCCL was built for. Its functions do not say, but its file holds the line that
// NCCL_DEBUG=VERSION prints: "NCCL version 2.28.7+cuda13.0".
#ifndef DDPRUN_LAUNCHER_DOCTOR_NCCL_BUILD_H_
#define DDPRUN_LAUNCHER_DOCTOR_NCCL_BUILD_H_

#include <string>
#include <string_view>

namespace ddprun::launcher {

// 13000 for the line above, wherever it stands in `bytes`; 0: there is none.
int CudaInNcclBytes(std::string_view bytes);

// The same of a file. Only its first 64 MiB are looked at: the text precedes the kernels, and a
// build of NCCL is up to 400 MB. 0 also for a file that cannot be read.
int CudaOfNcclFile(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_NCCL_BUILD_H_
