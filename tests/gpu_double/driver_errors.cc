// Names of the driver's errors, and what the double cannot do: run kernels.
#include "tests/gpu_double/driver.h"

namespace ddprun::gpu_double {
namespace {

struct Named {
  CudaResult code;
  const char* name;
  const char* text;
};

constexpr Named kErrors[] = {
    {kCudaSuccess, "CUDA_SUCCESS", "no error"},
    {kCudaErrorInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kCudaErrorOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kCudaErrorStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {kCudaErrorNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kCudaErrorInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kCudaErrorInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kCudaErrorUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {kCudaErrorInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kCudaErrorNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCudaErrorSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {kCudaErrorCompatNotSupportedOnDevice, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {kCudaErrorStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {kCudaErrorUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Named* Find(CudaResult code) {
  for (const Named& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

}  // namespace

CudaResult cuGetErrorName(CudaResult error, const char** name) {
  const Named* found = Find(error);
  *name = found != nullptr ? found->name : nullptr;
  return found != nullptr ? kCudaSuccess : kCudaErrorInvalidValue;
}

CudaResult cuGetErrorString(CudaResult error, const char** text) {
  const Named* found = Find(error);
  *text = found != nullptr ? found->text : nullptr;
  return found != nullptr ? kCudaSuccess : kCudaErrorInvalidValue;
}

}  // namespace ddprun::gpu_double
