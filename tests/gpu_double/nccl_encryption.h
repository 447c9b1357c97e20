// What the process has NCCL encrypt with.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_NCCL_ENCRYPTION_H_
#define DDPRUN_TESTS_GPU_DOUBLE_NCCL_ENCRYPTION_H_

#include <cstdint>
#include <string>

#include "tests/gpu_double/exports.h"
#include "tests/gpu_double/settings.h"

namespace ddprun::gpu_double {

// From now on the key may not change.
void NoteNetworking();
// Whether this rank can connect as it was told to; `text` says why not.
NcclResult CheckEncryption(const Faults& faults, std::string* text);
// 0: there is no key.
uint64_t HashOfKey();

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_NCCL_ENCRYPTION_H_
