// The CUDA driver as a table of functions, opened at run time.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_CUDA_API_H_
#define DDPRUN_WORKER_RUNTIME_GPU_CUDA_API_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/gpu/cuda_abi.h"

namespace ddp::internal {

// Members are named after the functions of cuda.h; those with a `_v2` in the library stand under
// the name that cuda.h gives them. Only the last is null in a table that LoadCuda returned. A
// value: tests put functions of their own into a copy.
struct CudaApi {
  CudaResult (*cuInit)(unsigned flags);
  CudaResult (*cuDriverGetVersion)(int* version);  // 12040 is CUDA 12.4
  CudaResult (*cuGetErrorName)(CudaResult error, const char** name);
  CudaResult (*cuGetErrorString)(CudaResult error, const char** text);

  CudaResult (*cuDeviceGetCount)(int* count);
  CudaResult (*cuDeviceGet)(CudaDevice* device, int ordinal);
  CudaResult (*cuDeviceGetName)(char* name, int size, CudaDevice device);
  CudaResult (*cuDeviceGetUuid)(CudaUuid* uuid,
                                CudaDevice device);  // of the MIG slice, if it is one
  CudaResult (*cuDeviceGetPCIBusId)(char* bus_id, int size, CudaDevice device);
  CudaResult (*cuDeviceGetAttribute)(int* value, int attribute, CudaDevice device);
  CudaResult (*cuDeviceTotalMem)(size_t* bytes, CudaDevice device);
  CudaResult (*cuDevicePrimaryCtxRetain)(CudaContext* context, CudaDevice device);
  CudaResult (*cuDevicePrimaryCtxRelease)(CudaDevice device);
  CudaResult (*cuCtxSetCurrent)(CudaContext context);
  CudaResult (*cuCtxGetCurrent)(CudaContext* context);
  CudaResult (*cuCtxGetStreamPriorityRange)(int* least, int* greatest);

  CudaResult (*cuStreamCreateWithPriority)(CudaStream* stream, unsigned flags, int priority);
  CudaResult (*cuStreamDestroy)(CudaStream stream);
  CudaResult (*cuStreamQuery)(CudaStream stream);
  CudaResult (*cuStreamSynchronize)(CudaStream stream);
  CudaResult (*cuStreamWaitEvent)(CudaStream stream, CudaEvent event, unsigned flags);
  CudaResult (*cuStreamIsCapturing)(CudaStream stream, int* status);
  CudaResult (*cuStreamBeginCapture)(CudaStream stream, int mode);
  CudaResult (*cuStreamEndCapture)(CudaStream stream, CudaGraph* graph);
  CudaResult (*cuThreadExchangeStreamCaptureMode)(int* mode);
  CudaResult (*cuGraphInstantiateWithFlags)(CudaGraphExec* exec, CudaGraph graph,
                                            unsigned long long flags);
  CudaResult (*cuGraphLaunch)(CudaGraphExec exec, CudaStream stream);
  CudaResult (*cuGraphExecDestroy)(CudaGraphExec exec);
  CudaResult (*cuGraphDestroy)(CudaGraph graph);

  CudaResult (*cuEventCreate)(CudaEvent* event, unsigned flags);
  CudaResult (*cuEventDestroy)(CudaEvent event);
  CudaResult (*cuEventRecord)(CudaEvent event, CudaStream stream);
  CudaResult (*cuEventRecordWithFlags)(CudaEvent event, CudaStream stream, unsigned flags);
  CudaResult (*cuEventQuery)(CudaEvent event);
  CudaResult (*cuEventSynchronize)(CudaEvent event);
  CudaResult (*cuEventElapsedTime)(float* milliseconds, CudaEvent begin, CudaEvent end);

  CudaResult (*cuMemAlloc)(CudaPointer* pointer, size_t bytes);
  CudaResult (*cuMemFree)(CudaPointer pointer);
  CudaResult (*cuMemAllocHost)(void** pointer, size_t bytes);
  CudaResult (*cuMemFreeHost)(void* pointer);
  CudaResult (*cuMemcpyHtoDAsync)(CudaPointer to, const void* from, size_t bytes,
                                  CudaStream stream);
  CudaResult (*cuMemcpyDtoHAsync)(void* to, CudaPointer from, size_t bytes, CudaStream stream);
  CudaResult (*cuMemcpyDtoDAsync)(CudaPointer to, CudaPointer from, size_t bytes,
                                  CudaStream stream);
  CudaResult (*cuMemcpyPeerAsync)(CudaPointer to, CudaContext to_context, CudaPointer from,
                                  CudaContext from_context, size_t bytes, CudaStream stream);
  CudaResult (*cuDeviceCanAccessPeer)(int* can_access, CudaDevice device, CudaDevice peer);
  CudaResult (*cuCtxEnablePeerAccess)(CudaContext peer, unsigned flags);
  CudaResult (*cuMemsetD8Async)(CudaPointer to, unsigned char value, size_t bytes,
                                CudaStream stream);
  CudaResult (*cuPointerGetAttribute)(void* value, int attribute, CudaPointer pointer);

  CudaResult (*cuModuleLoadData)(CudaModule* module, const void* image);
  CudaResult (*cuModuleUnload)(CudaModule module);
  CudaResult (*cuModuleGetFunction)(CudaFunction* function, CudaModule module, const char* name);
  CudaResult (*cuLaunchKernel)(CudaFunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, CudaStream stream,
                               void** parameters, void** extra);

  // The library's cuDeviceGetUuid without _v2: of the whole GPU, for its MIG slices too. Null where
  // the driver has only the newer one, to which cuda.h gives the name.
  CudaResult (*cuDeviceGetGpuUuid)(CudaUuid* uuid, CudaDevice device);
};

// An address in the GPU's memory as the driver's calls take it.
inline CudaPointer AddressOf(const void* device) { return reinterpret_cast<CudaPointer>(device); }

// A driver that was opened, never to be closed again.
struct LoadedCuda {
  CudaApi api{};
  std::string path;  // of the file
  int version = 0;   // the newest CUDA it serves: 12040 is 12.4
};

// Opens the driver: $DDPRUN_CUDA_LIB, else "libcuda.so.1". Does not initialise it and touches no
// GPU. Errors: NotFound naming what was looked for; FailedPrecondition naming the first function
// that the file lacks, and the version that has it.
absl::StatusOr<LoadedCuda> LoadCuda();

// Ok, or the driver's words: "cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)". The code is
// ResourceExhausted for memory, FailedPrecondition for a driver or device that cannot work,
// InvalidArgument for a wrong value, Internal otherwise.
absl::Status CudaStatus(const CudaApi& api, const char* call, CudaResult result);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_CUDA_API_H_
