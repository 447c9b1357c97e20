// Every function that the double exports, by the names that the real libraries export. Functions
// that only an older ABI has (cuMemAlloc without _v2) are absent on purpose, but for
// cuDeviceGetUuid: who asks for them fails.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_EXPORTS_H_
#define DDPRUN_TESTS_GPU_DOUBLE_EXPORTS_H_

#include <cstddef>

#include "worker_runtime/gpu/cuda_abi.h"
#include "worker_runtime/gpu/nccl_abi.h"

// NOLINTBEGIN: names and parameters are NVIDIA's.
namespace ddprun::gpu_double {
using namespace ddp::internal;
}

#define DDPRUN_DOUBLE_CUDA_FUNCTIONS(X)                                                          \
  X(CudaResult, cuInit, (unsigned flags))                                                        \
  X(CudaResult, cuDriverGetVersion, (int* version))                                              \
  X(CudaResult, cuGetErrorName, (CudaResult error, const char** name))                           \
  X(CudaResult, cuGetErrorString, (CudaResult error, const char** text))                         \
  X(CudaResult, cuDeviceGetCount, (int* count))                                                  \
  X(CudaResult, cuDeviceGet, (CudaDevice * device, int ordinal))                                 \
  X(CudaResult, cuDeviceGetName, (char* name, int size, CudaDevice device))                      \
  X(CudaResult, cuDeviceGetUuid, (CudaUuid * uuid, CudaDevice device))                           \
  X(CudaResult, cuDeviceGetUuid_v2, (CudaUuid * uuid, CudaDevice device))                        \
  X(CudaResult, cuDeviceGetPCIBusId, (char* bus_id, int size, CudaDevice device))                \
  X(CudaResult, cuDeviceGetAttribute, (int* value, int attribute, CudaDevice device))            \
  X(CudaResult, cuDeviceTotalMem_v2, (size_t * bytes, CudaDevice device))                        \
  X(CudaResult, cuDevicePrimaryCtxRetain, (CudaContext * context, CudaDevice device))            \
  X(CudaResult, cuDevicePrimaryCtxRelease_v2, (CudaDevice device))                               \
  X(CudaResult, cuCtxSetCurrent, (CudaContext context))                                          \
  X(CudaResult, cuCtxGetCurrent, (CudaContext * context))                                        \
  X(CudaResult, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                        \
  X(CudaResult, cuStreamCreateWithPriority, (CudaStream * stream, unsigned flags, int priority)) \
  X(CudaResult, cuStreamDestroy_v2, (CudaStream stream))                                         \
  X(CudaResult, cuStreamQuery, (CudaStream stream))                                              \
  X(CudaResult, cuStreamSynchronize, (CudaStream stream))                                        \
  X(CudaResult, cuStreamWaitEvent, (CudaStream stream, CudaEvent event, unsigned flags))         \
  X(CudaResult, cuStreamIsCapturing, (CudaStream stream, int* status))                           \
  X(CudaResult, cuStreamBeginCapture_v2, (CudaStream stream, int mode))                          \
  X(CudaResult, cuStreamEndCapture, (CudaStream stream, CudaGraph * graph))                      \
  X(CudaResult, cuThreadExchangeStreamCaptureMode, (int* mode))                                  \
  X(CudaResult, cuGraphInstantiateWithFlags,                                                     \
    (CudaGraphExec * exec, CudaGraph graph, unsigned long long flags))                           \
  X(CudaResult, cuGraphLaunch, (CudaGraphExec exec, CudaStream stream))                          \
  X(CudaResult, cuGraphExecDestroy, (CudaGraphExec exec))                                        \
  X(CudaResult, cuGraphDestroy, (CudaGraph graph))                                               \
  X(CudaResult, cuEventCreate, (CudaEvent * event, unsigned flags))                              \
  X(CudaResult, cuEventDestroy_v2, (CudaEvent event))                                            \
  X(CudaResult, cuEventRecord, (CudaEvent event, CudaStream stream))                             \
  X(CudaResult, cuEventRecordWithFlags, (CudaEvent event, CudaStream stream, unsigned flags))    \
  X(CudaResult, cuEventQuery, (CudaEvent event))                                                 \
  X(CudaResult, cuEventSynchronize, (CudaEvent event))                                           \
  X(CudaResult, cuEventElapsedTime, (float* milliseconds, CudaEvent begin, CudaEvent end))       \
  X(CudaResult, cuEventElapsedTime_v2, (float* milliseconds, CudaEvent begin, CudaEvent end))    \
  X(CudaResult, cuMemAlloc_v2, (CudaPointer * pointer, size_t bytes))                            \
  X(CudaResult, cuMemFree_v2, (CudaPointer pointer))                                             \
  X(CudaResult, cuMemAllocHost_v2, (void** pointer, size_t bytes))                               \
  X(CudaResult, cuMemFreeHost, (void* pointer))                                                  \
  X(CudaResult, cuMemcpyHtoDAsync_v2,                                                            \
    (CudaPointer to, const void* from, size_t bytes, CudaStream stream))                         \
  X(CudaResult, cuMemcpyDtoHAsync_v2,                                                            \
    (void* to, CudaPointer from, size_t bytes, CudaStream stream))                               \
  X(CudaResult, cuMemcpyDtoDAsync_v2,                                                            \
    (CudaPointer to, CudaPointer from, size_t bytes, CudaStream stream))                         \
  X(CudaResult, cuMemcpyPeerAsync,                                                               \
    (CudaPointer to, CudaContext to_context, CudaPointer from, CudaContext from_context,         \
     size_t bytes, CudaStream stream))                                                           \
  X(CudaResult, cuDeviceCanAccessPeer, (int* can_access, CudaDevice device, CudaDevice peer))    \
  X(CudaResult, cuCtxEnablePeerAccess, (CudaContext peer, unsigned flags))                       \
  X(CudaResult, cuMemsetD8Async,                                                                 \
    (CudaPointer to, unsigned char value, size_t bytes, CudaStream stream))                      \
  X(CudaResult, cuPointerGetAttribute, (void* value, int attribute, CudaPointer pointer))        \
  X(CudaResult, cuModuleLoadData, (CudaModule * module, const void* image))                      \
  X(CudaResult, cuModuleUnload, (CudaModule module))                                             \
  X(CudaResult, cuModuleGetFunction,                                                             \
    (CudaFunction * function, CudaModule module, const char* name))                              \
  X(CudaResult, cuLaunchKernel,                                                                  \
    (CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CudaStream stream,               \
     void** parameters, void** extra))

#define DDPRUN_DOUBLE_NCCL_FUNCTIONS(X)                                                          \
  X(NcclResult, ncclGetVersion, (int* version))                                                  \
  X(NcclResult, ncclGetUniqueId, (NcclUniqueId * id))                                            \
  X(const char*, ncclGetErrorString, (NcclResult result))                                        \
  X(const char*, ncclGetLastError, (NcclComm comm))                                              \
  X(NcclResult, ncclCommInitRankConfig,                                                          \
    (NcclComm * comm, int world_size, NcclUniqueId id, int rank, NcclConfig* config))            \
  X(NcclResult, ncclCommGetAsyncError, (NcclComm comm, NcclResult * error))                      \
  X(NcclResult, ncclCommFinalize, (NcclComm comm))                                               \
  X(NcclResult, ncclCommDestroy, (NcclComm comm))                                                \
  X(NcclResult, ncclCommAbort, (NcclComm comm))                                                  \
  X(NcclResult, ncclAllReduce,                                                                   \
    (const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op,             \
     NcclComm comm, CudaStream stream))                                                          \
  X(NcclResult, ncclBroadcast,                                                                   \
    (const void* input, void* output, size_t count, NcclDataType type, int root, NcclComm comm,  \
     CudaStream stream))                                                                         \
  X(NcclResult, ncclReduce,                                                                      \
    (const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op, int root,   \
     NcclComm comm, CudaStream stream))                                                          \
  X(NcclResult, ncclAllGather,                                                                   \
    (const void* input, void* output, size_t count, NcclDataType type, NcclComm comm,            \
     CudaStream stream))                                                                         \
  X(NcclResult, ncclReduceScatter,                                                               \
    (const void* input, void* output, size_t count, NcclDataType type, NcclRedOp op,             \
     NcclComm comm, CudaStream stream))                                                          \
  X(NcclResult, ncclSend,                                                                        \
    (const void* input, size_t count, NcclDataType type, int peer, NcclComm comm,                \
     CudaStream stream))                                                                         \
  X(NcclResult, ncclRecv,                                                                        \
    (void* output, size_t count, NcclDataType type, int peer, NcclComm comm, CudaStream stream)) \
  X(NcclResult, ncclGroupStart, ())                                                              \
  X(NcclResult, ncclGroupEnd, ())                                                                \
  X(NcclResult, ncclMemAlloc, (void** pointer, size_t bytes))                                    \
  X(NcclResult, ncclMemFree, (void* pointer))                                                    \
  X(NcclResult, ncclCommRegister, (NcclComm comm, void* buffer, size_t bytes, void** handle))    \
  X(NcclResult, ncclCommDeregister, (NcclComm comm, void* handle))                               \
  X(NcclResult, ncclSetEncryption, (const NcclEncryptionConfig* config))

// Of the double alone.
// ddprun_double_leaks: "" or what was not given back, as "streams=1 events=2": what a clean end of
// a program leaves empty. The text stays until the thread's next call. ddprun_double_hold: work
// that keeps the stream busy until ddprun_double_release: a long kernel. ddprun_double_fall_silent:
// from now on no call that needs a context returns. ddprun_double_refuse_threads: from now on
// cuCtxSetCurrent fails on threads that are not there yet.
#define DDPRUN_DOUBLE_OWN_FUNCTIONS(X)                              \
  X(const char*, ddprun_double_leaks, ())                           \
  X(CudaResult, ddprun_double_hold, (CudaStream stream, int* hold)) \
  X(CudaResult, ddprun_double_release, (int hold))                  \
  X(void, ddprun_double_fall_silent, ())                            \
  X(void, ddprun_double_refuse_threads, ())

namespace ddprun::gpu_double {
// Of the build: whether NCCL is one with TLS.
bool HasTls();

extern "C" {
#define DDPRUN_DOUBLE_DECLARE(result, name, parameters) \
  __attribute__((visibility("default"))) result name parameters;
DDPRUN_DOUBLE_CUDA_FUNCTIONS(DDPRUN_DOUBLE_DECLARE)
DDPRUN_DOUBLE_NCCL_FUNCTIONS(DDPRUN_DOUBLE_DECLARE)
DDPRUN_DOUBLE_OWN_FUNCTIONS(DDPRUN_DOUBLE_DECLARE)
#undef DDPRUN_DOUBLE_DECLARE
}
}  // namespace ddprun::gpu_double
// NOLINTEND

#endif  // DDPRUN_TESTS_GPU_DOUBLE_EXPORTS_H_
