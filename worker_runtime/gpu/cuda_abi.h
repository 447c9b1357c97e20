// The part of the CUDA driver's ABI that we use, declared anew: no CUDA header is needed to build.
// Checked against the real cuda.h by a test where one is found.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_CUDA_ABI_H_
#define DDPRUN_WORKER_RUNTIME_GPU_CUDA_ABI_H_

#include <cstddef>
#include <cstdint>

namespace ddp::internal {

// Handles are opaque; a CUstream is also a cudaStream_t, a CUevent a cudaEvent_t.
using CudaResult = int;
using CudaDevice = int;
using CudaContext = struct CudaContextTag*;
using CudaStream = struct CudaStreamTag*;
using CudaEvent = struct CudaEventTag*;
using CudaGraph = struct CudaGraphTag*;
using CudaGraphExec = struct CudaGraphExecTag*;
using CudaModule = struct CudaModuleTag*;
using CudaFunction = struct CudaFunctionTag*;
using CudaPointer = unsigned long long;

struct CudaUuid {
  char bytes[16];
};

// CUresult
inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaErrorInvalidValue = 1;
inline constexpr CudaResult kCudaErrorOutOfMemory = 2;
inline constexpr CudaResult kCudaErrorStubLibrary = 34;
inline constexpr CudaResult kCudaErrorDeviceUnavailable = 46;
inline constexpr CudaResult kCudaErrorNoDevice = 100;
inline constexpr CudaResult kCudaErrorInvalidDevice = 101;
inline constexpr CudaResult kCudaErrorInvalidContext = 201;
inline constexpr CudaResult kCudaErrorNoBinaryForGpu = 209;
inline constexpr CudaResult kCudaErrorInvalidPtx = 218;
inline constexpr CudaResult kCudaErrorUnsupportedPtxVersion = 222;
inline constexpr CudaResult kCudaErrorInvalidHandle = 400;
inline constexpr CudaResult kCudaErrorNotReady = 600;
inline constexpr CudaResult kCudaErrorSystemDriverMismatch = 803;
inline constexpr CudaResult kCudaErrorCompatNotSupportedOnDevice = 804;
inline constexpr CudaResult kCudaErrorStreamCaptureUnsupported = 900;
inline constexpr CudaResult kCudaErrorUnknown = 999;

// CUevent_flags, CUstream_flags
inline constexpr unsigned kCudaEventDefault = 0;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr unsigned kCudaEventRecordDefault = 0;
inline constexpr unsigned kCudaEventRecordExternal = 1;
inline constexpr unsigned kCudaStreamNonBlocking = 1;

// CUstreamCaptureMode, CUstreamCaptureStatus
inline constexpr int kCudaCaptureModeGlobal = 0;
inline constexpr int kCudaCaptureModeThreadLocal = 1;
inline constexpr int kCudaCaptureModeRelaxed = 2;
inline constexpr int kCudaCaptureStatusNone = 0;
inline constexpr int kCudaCaptureStatusActive = 1;
inline constexpr int kCudaCaptureStatusInvalidated = 2;

// CUdevice_attribute
inline constexpr int kCudaDeviceAttributeMultiprocessorCount = 16;
inline constexpr int kCudaDeviceAttributeComputeCapabilityMajor = 75;
inline constexpr int kCudaDeviceAttributeComputeCapabilityMinor = 76;

// CUpointer_attribute, CUmemorytype
inline constexpr int kCudaPointerAttributeMemoryType = 2;
inline constexpr int kCudaPointerAttributeIsManaged = 8;
inline constexpr int kCudaPointerAttributeDeviceOrdinal = 9;
inline constexpr unsigned kCudaMemoryTypeHost = 1;
inline constexpr unsigned kCudaMemoryTypeDevice = 2;

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_CUDA_ABI_H_
