// NCCL as a table of functions, opened at run time.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_NCCL_API_H_
#define DDPRUN_WORKER_RUNTIME_GPU_NCCL_API_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/gpu/cuda_abi.h"
#include "worker_runtime/gpu/nccl_abi.h"
#include "worker_runtime/gpu/nccl_version.h"

namespace ddp::internal {

// Members are named after the functions of nccl.h. A value: tests put functions of their own into a
// copy.
struct NcclApi {
  NcclResult (*ncclGetVersion)(int* version);
  NcclResult (*ncclGetUniqueId)(NcclUniqueId* id);
  const char* (*ncclGetErrorString)(NcclResult result);
  const char* (*ncclGetLastError)(NcclComm comm);
  NcclResult (*ncclCommInitRankConfig)(NcclComm* comm, int world_size, NcclUniqueId id, int rank,
                                       NcclConfig* config);
  NcclResult (*ncclCommGetAsyncError)(NcclComm comm, NcclResult* error);
  NcclResult (*ncclCommFinalize)(NcclComm comm);
  NcclResult (*ncclCommDestroy)(NcclComm comm);
  NcclResult (*ncclCommAbort)(NcclComm comm);

  NcclResult (*ncclAllReduce)(const void* input, void* output, size_t count, NcclDataType type,
                              NcclRedOp op, NcclComm comm, CudaStream stream);
  NcclResult (*ncclBroadcast)(const void* input, void* output, size_t count, NcclDataType type,
                              int root, NcclComm comm, CudaStream stream);
  NcclResult (*ncclReduce)(const void* input, void* output, size_t count, NcclDataType type,
                           NcclRedOp op, int root, NcclComm comm, CudaStream stream);
  // `count` is per rank, of the input.
  NcclResult (*ncclAllGather)(const void* input, void* output, size_t count, NcclDataType type,
                              NcclComm comm, CudaStream stream);
  // `count` is per rank, of the output.
  NcclResult (*ncclReduceScatter)(const void* input, void* output, size_t count, NcclDataType type,
                                  NcclRedOp op, NcclComm comm, CudaStream stream);
  NcclResult (*ncclSend)(const void* input, size_t count, NcclDataType type, int peer,
                         NcclComm comm, CudaStream stream);
  NcclResult (*ncclRecv)(void* output, size_t count, NcclDataType type, int peer, NcclComm comm,
                         CudaStream stream);
  NcclResult (*ncclGroupStart)();
  NcclResult (*ncclGroupEnd)();

  // Newer than kNcclOldest; null where the library has none.
  NcclResult (*ncclMemAlloc)(void** pointer, size_t bytes);                                  // 2.19
  NcclResult (*ncclMemFree)(void* pointer);                                                  // 2.19
  NcclResult (*ncclCommRegister)(NcclComm comm, void* buffer, size_t bytes, void** handle);  // 2.19
  NcclResult (*ncclCommDeregister)(NcclComm comm, void* handle);                             // 2.19
  NcclResult (*ncclSetEncryption)(const NcclEncryptionConfig* config);                       // 2.32
};

// The oldest NCCL that is used at all: its ncclConfig_t is ours.
inline constexpr int kNcclOldest = NcclVersionCode(2, 18, 3);

struct LoadedNccl {
  NcclApi api{};
  std::string path;  // of the file, as the loader found it
  int version = 0;   // 22807 is 2.28.7

  // ncclMemAlloc and registration.
  bool can_register() const { return api.ncclMemAlloc != nullptr; }
};

// Opens NCCL, in this order: $DDPRUN_NCCL_LIB, and nothing else when that is set; the library that
// a framework has loaded into this process already; "libnccl.so.2" as the system finds it; the
// folder of the wheel nvidia-nccl-cu* of $DDPRUN_NCCL_PYTHON, else $PYTHON_EXEC, else the python3
// of $PATH. Does not call into it but for its version. Errors: NotFound naming every place that was
// looked at; FailedPrecondition naming the version found, the function missing, and the version
// needed.
absl::StatusOr<LoadedNccl> LoadNccl();

// Ok, or NCCL's words with its last error of `comm` (may be null). The code is Unavailable for a
// peer's or the network's failure, InvalidArgument for wrong use, Internal otherwise.
absl::Status NcclStatus(const NcclApi& api, const char* call, NcclResult result, NcclComm comm);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_NCCL_API_H_
