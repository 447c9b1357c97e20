// The part of NCCL's ABI that we use, declared anew: no NCCL header is needed to build. Checked
// against the real nccl.h by a test where one is found.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_NCCL_ABI_H_
#define DDPRUN_WORKER_RUNTIME_GPU_NCCL_ABI_H_

#include <climits>
#include <cstddef>

namespace ddp::internal {

using NcclComm = struct NcclCommTag*;

// A secret: who knows it can join the group. Travels through the round's store, never into a log.
struct NcclUniqueId {
  char bytes[128];
};

using NcclResult = int;
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclUnhandledCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidArgument = 4;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

using NcclDataType = int;
inline constexpr NcclDataType kNcclInt8 = 0;
inline constexpr NcclDataType kNcclUint8 = 1;
inline constexpr NcclDataType kNcclInt32 = 2;
inline constexpr NcclDataType kNcclInt64 = 4;
inline constexpr NcclDataType kNcclFloat16 = 6;
inline constexpr NcclDataType kNcclFloat32 = 7;
inline constexpr NcclDataType kNcclFloat64 = 8;
inline constexpr NcclDataType kNcclBfloat16 = 9;

using NcclRedOp = int;
inline constexpr NcclRedOp kNcclSum = 0;
inline constexpr NcclRedOp kNcclProd = 1;
inline constexpr NcclRedOp kNcclMax = 2;
inline constexpr NcclRedOp kNcclMin = 3;
inline constexpr NcclRedOp kNcclAvg = 4;

// 2.28.7 is 22807; before 2.9 it was 1000 * major + 100 * minor + patch.
constexpr int NcclVersionCode(int major, int minor, int patch) {
  return major <= 2 && minor <= 8 ? major * 1000 + minor * 100 + patch
                                  : major * 10000 + minor * 100 + patch;
}

// The first members of ncclConfig_t, as of 2.18. A newer library takes an older, shorter struct by
// its `size` and `version` and uses its own defaults for what is not there.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;

  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = NcclVersionCode(2, 18, 3);
  int blocking = kUndefined;  // 0: calls return kNcclInProgress instead of waiting
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

// ncclEncryptionConfig_t, as of 2.32.
struct NcclEncryptionConfig {
  static constexpr int kNone = 0, kPsk = 1;

  size_t size = sizeof(NcclEncryptionConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = NcclVersionCode(2, 32, 0);
  int mode = kNone;
  const char* psk = nullptr;  // a text of 32 bytes or more, of which NCCL takes a copy
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_NCCL_ABI_H_
