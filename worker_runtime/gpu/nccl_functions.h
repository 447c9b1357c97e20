// The functions of NcclApi, and from which NCCL on each is used.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_NCCL_FUNCTIONS_H_
#define DDPRUN_WORKER_RUNTIME_GPU_NCCL_FUNCTIONS_H_

// X(function, first NCCL from which on it is used). A macro, because the loader needs the names as
// text and the test against nccl.h needs them as types. Up to kNcclOldest a function is required.
#define DDPRUN_NCCL_FUNCTIONS(X)                   \
  X(ncclGetVersion, kNcclOldest)                   \
  X(ncclGetUniqueId, kNcclOldest)                  \
  X(ncclGetErrorString, kNcclOldest)               \
  X(ncclGetLastError, kNcclOldest)                 \
  X(ncclCommInitRankConfig, kNcclOldest)           \
  X(ncclCommGetAsyncError, kNcclOldest)            \
  X(ncclCommFinalize, kNcclOldest)                 \
  X(ncclCommDestroy, kNcclOldest)                  \
  X(ncclCommAbort, kNcclOldest)                    \
  X(ncclAllReduce, kNcclOldest)                    \
  X(ncclBroadcast, kNcclOldest)                    \
  X(ncclReduce, kNcclOldest)                       \
  X(ncclAllGather, kNcclOldest)                    \
  X(ncclReduceScatter, kNcclOldest)                \
  X(ncclSend, kNcclOldest)                         \
  X(ncclRecv, kNcclOldest)                         \
  X(ncclGroupStart, kNcclOldest)                   \
  X(ncclGroupEnd, kNcclOldest)                     \
  X(ncclMemAlloc, NcclVersionCode(2, 19, 1))       \
  X(ncclMemFree, NcclVersionCode(2, 19, 1))        \
  X(ncclCommRegister, NcclVersionCode(2, 19, 1))   \
  X(ncclCommDeregister, NcclVersionCode(2, 19, 1)) \
  X(ncclSetEncryption, NcclVersionCode(2, 32, 0))

#endif  // DDPRUN_WORKER_RUNTIME_GPU_NCCL_FUNCTIONS_H_
