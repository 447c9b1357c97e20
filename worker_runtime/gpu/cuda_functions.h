// The functions of CudaApi beside what the driver's library calls them.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_CUDA_FUNCTIONS_H_
#define DDPRUN_WORKER_RUNTIME_GPU_CUDA_FUNCTIONS_H_

// X(member of CudaApi, symbol of the library, first CUDA that has it: 11040 is 11.4). A macro,
// because the loader needs the names as text and the test against cuda.h needs them as types.
// cuEventElapsedTime stays at its first version: CUDA 12.8 has a _v2 of the same signature that
// older drivers lack.
#define DDPRUN_CUDA_FUNCTIONS(X)                                                 \
  X(cuInit, cuInit, 2000)                                                        \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020)                                \
  X(cuGetErrorName, cuGetErrorName, 6000)                                        \
  X(cuGetErrorString, cuGetErrorString, 6000)                                    \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000)                                    \
  X(cuDeviceGet, cuDeviceGet, 2000)                                              \
  X(cuDeviceGetName, cuDeviceGetName, 2000)                                      \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                                  \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)                              \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)                            \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                                 \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                    \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)              \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                      \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                      \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050)              \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050)                \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                                   \
  X(cuStreamQuery, cuStreamQuery, 2000)                                          \
  X(cuStreamSynchronize, cuStreamSynchronize, 2000)                              \
  X(cuStreamWaitEvent, cuStreamWaitEvent, 3020)                                  \
  X(cuStreamIsCapturing, cuStreamIsCapturing, 10000)                             \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010)                        \
  X(cuStreamEndCapture, cuStreamEndCapture, 10000)                               \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010) \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)             \
  X(cuGraphLaunch, cuGraphLaunch, 10000)                                         \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000)                               \
  X(cuGraphDestroy, cuGraphDestroy, 10000)                                       \
  X(cuEventCreate, cuEventCreate, 2000)                                          \
  X(cuEventDestroy, cuEventDestroy_v2, 4000)                                     \
  X(cuEventRecord, cuEventRecord, 2000)                                          \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010)                       \
  X(cuEventQuery, cuEventQuery, 2000)                                            \
  X(cuEventSynchronize, cuEventSynchronize, 2000)                                \
  X(cuEventElapsedTime, cuEventElapsedTime, 2000)                                \
  X(cuMemAlloc, cuMemAlloc_v2, 3020)                                             \
  X(cuMemFree, cuMemFree_v2, 3020)                                               \
  X(cuMemAllocHost, cuMemAllocHost_v2, 3020)                                     \
  X(cuMemFreeHost, cuMemFreeHost, 2000)                                          \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020)                               \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020)                               \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020)                               \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000)                                  \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000)                          \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000)                          \
  X(cuMemsetD8Async, cuMemsetD8Async, 3020)                                      \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000)                          \
  X(cuModuleLoadData, cuModuleLoadData, 2000)                                    \
  X(cuModuleUnload, cuModuleUnload, 2000)                                        \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000)                              \
  X(cuLaunchKernel, cuLaunchKernel, 4000)

#endif  // DDPRUN_WORKER_RUNTIME_GPU_CUDA_FUNCTIONS_H_
