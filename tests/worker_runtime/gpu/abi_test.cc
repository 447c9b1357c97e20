// What we declared of CUDA and NCCL, against their own headers.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "nvidia_found.h"
#include "tests/support/skip.h"
#include "tests/worker_runtime/gpu/abi_alike.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/cuda_functions.h"
#include "worker_runtime/gpu/nccl_api.h"
#include "worker_runtime/gpu/nccl_functions.h"

// Taken before cuda.h, whose macros rename our members too.
namespace ddp::internal::ours {
#define OURS(member, symbol, since) using member##_type = decltype(CudaApi::member);
DDPRUN_CUDA_FUNCTIONS(OURS)
#undef OURS
}  // namespace ddp::internal::ours

#if NVIDIA_HAS_CUDA
#include <cuda.h>
#include <cudaTypedefs.h>
#if CUDA_VERSION >= 12000
#define CAN_CHECK_CUDA 1
#endif
#endif
#if NVIDIA_HAS_NCCL
#include <nccl.h>
#if NCCL_VERSION_CODE >= 23200
#define CAN_CHECK_NCCL 1
#endif
#endif

namespace ddp::internal {

#if CAN_CHECK_NCCL
template <>
inline constexpr bool kIsPrefix<NcclConfig, ncclConfig_t> = true;
template <>
inline constexpr bool kIsPrefix<NcclEncryptionConfig, ncclEncryptionConfig_t> = true;
#endif

namespace {

// A word after the macros of the headers.
#define TEXT(word) TEXT_OF(word)
#define TEXT_OF(word) #word

// The judge itself.
TEST_CASE("abi: types that differ in a call are told apart") {
  enum Enum : unsigned { kOne };
  struct Opaque;
  struct Other;
  struct Four {
    char bytes[4];
  };
  struct Five {
    char bytes[5];
  };
  CHECK(CallAlike<int (*)(int, Opaque*), Enum (*)(Enum, Other*)>::value);
  CHECK(CallAlike<int (*)(Four), int (*)(Four)>::value);
  CHECK_FALSE(CallAlike<int (*)(Four), int (*)(Five)>::value);
  CHECK_FALSE(CallAlike<int (*)(Four*), int (*)(Opaque*)>::value);
  CHECK_FALSE(CallAlike<int (*)(int), int (*)(int, int)>::value);
  CHECK_FALSE(CallAlike<int (*)(int), int (*)(unsigned)>::value);
  CHECK_FALSE(CallAlike<int (*)(long), int (*)(Enum)>::value);
  CHECK_FALSE(CallAlike<int (*)(char*), int (*)(const char*)>::value);
  CHECK_FALSE(CallAlike<int (*)(void**), int (*)(void*)>::value);
  CHECK_FALSE(CallAlike<int (*)(size_t*), int (*)(int*)>::value);
}

#if CAN_CHECK_CUDA

// cudaTypedefs.h names each version of each function's type by the CUDA that brought it.
TEST_CASE("abi: each function of the driver has the type that its version has") {
#define CHECK_TYPE(member, symbol, since) \
  CHECK_MESSAGE((CallAlike<ours::member##_type, PFN_##member##_v##since>::value), #member);
  DDPRUN_CUDA_FUNCTIONS(CHECK_TYPE)
#undef CHECK_TYPE
}

TEST_CASE("abi: each function of the driver is looked up by the name that cuda.h gives it") {
  const auto check = [](const std::string& member, const std::string& ours,
                        const std::string& theirs) {
    if (member == "cuEventElapsedTime") return;  // its first version, on purpose
    CHECK_MESSAGE(ours == theirs, member);
  };
#define CHECK_NAME(member, symbol, since) check(#member, #symbol, TEXT(member));
  DDPRUN_CUDA_FUNCTIONS(CHECK_NAME)
#undef CHECK_NAME
}

TEST_CASE("abi: the driver's types have their sizes") {
  CHECK(sizeof(CudaResult) == sizeof(CUresult));
  CHECK(std::is_same_v<CudaDevice, CUdevice>);
  CHECK(std::is_same_v<CudaPointer, CUdeviceptr>);
  CHECK(sizeof(CudaUuid) == sizeof(CUuuid));
  CHECK(Alike<CudaContext, CUcontext>());
  CHECK(Alike<CudaStream, CUstream>());
  CHECK(Alike<CudaEvent, CUevent>());
  CHECK(Alike<CudaGraph, CUgraph>());
  CHECK(Alike<CudaGraphExec, CUgraphExec>());
  CHECK(Alike<CudaModule, CUmodule>());
  CHECK(Alike<CudaFunction, CUfunction>());
}

TEST_CASE("abi: the driver's constants have their values") {
  CHECK(kCudaSuccess == CUDA_SUCCESS);
  CHECK(kCudaErrorInvalidValue == CUDA_ERROR_INVALID_VALUE);
  CHECK(kCudaErrorOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(kCudaErrorStubLibrary == CUDA_ERROR_STUB_LIBRARY);
  CHECK(kCudaErrorDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
  CHECK(kCudaErrorNoDevice == CUDA_ERROR_NO_DEVICE);
  CHECK(kCudaErrorInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
  CHECK(kCudaErrorInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(kCudaErrorNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(kCudaErrorInvalidPtx == CUDA_ERROR_INVALID_PTX);
  CHECK(kCudaErrorUnsupportedPtxVersion == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  CHECK(kCudaErrorInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
  CHECK(kCudaErrorNotReady == CUDA_ERROR_NOT_READY);
  CHECK(kCudaErrorSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  CHECK(kCudaErrorCompatNotSupportedOnDevice == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
  CHECK(kCudaErrorStreamCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(kCudaErrorUnknown == CUDA_ERROR_UNKNOWN);
  CHECK(kCudaEventDefault == CU_EVENT_DEFAULT);
  CHECK(kCudaEventDisableTiming == CU_EVENT_DISABLE_TIMING);
  CHECK(kCudaEventRecordDefault == CU_EVENT_RECORD_DEFAULT);
  CHECK(kCudaEventRecordExternal == CU_EVENT_RECORD_EXTERNAL);
  CHECK(kCudaStreamNonBlocking == CU_STREAM_NON_BLOCKING);
  CHECK(kCudaCaptureModeGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(kCudaCaptureModeThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CHECK(kCudaCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(kCudaCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(kCudaCaptureStatusActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(kCudaCaptureStatusInvalidated == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(kCudaDeviceAttributeMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  CHECK(kCudaDeviceAttributeComputeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  CHECK(kCudaDeviceAttributeComputeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  CHECK(kCudaPointerAttributeMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  CHECK(kCudaPointerAttributeIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
  CHECK(kCudaPointerAttributeDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  CHECK(kCudaMemoryTypeHost == CU_MEMORYTYPE_HOST);
  CHECK(kCudaMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
}

#else

TEST_CASE("abi: the driver's declarations are those of cuda.h") {
  ddprun::testing::SkipTest("no cuda.h of CUDA 12 or newer in " NVIDIA_LOOKED_FOR);
}

#endif

#if CAN_CHECK_NCCL

TEST_CASE("abi: each function of NCCL has its type") {
#define CHECK_TYPE(function, since) \
  CHECK_MESSAGE((CallAlike<decltype(NcclApi::function), decltype(&::function)>::value), #function);
  DDPRUN_NCCL_FUNCTIONS(CHECK_TYPE)
#undef CHECK_TYPE
}

TEST_CASE("abi: NCCL's types have their sizes") {
  CHECK(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
  CHECK(sizeof(NcclResult) == sizeof(ncclResult_t));
  CHECK(sizeof(NcclDataType) == sizeof(ncclDataType_t));
  CHECK(sizeof(NcclRedOp) == sizeof(ncclRedOp_t));
  CHECK(Alike<NcclComm, ncclComm_t>());
}

TEST_CASE("abi: NCCL's reductions have its numbers") {
  CHECK(static_cast<int>(ncclSum) == kNcclSum);
  CHECK(static_cast<int>(ncclProd) == kNcclProd);
  CHECK(static_cast<int>(ncclMax) == kNcclMax);
  CHECK(static_cast<int>(ncclMin) == kNcclMin);
  CHECK(static_cast<int>(ncclAvg) == kNcclAvg);
}

// A newer library reads as much of a config as its `size` says, and of that what its `version` had.
TEST_CASE("abi: our config is the beginning of NCCL's") {
  CHECK(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
#define CHECK_MEMBER(ours, theirs)                                     \
  CHECK(offsetof(NcclConfig, ours) == offsetof(ncclConfig_t, theirs)); \
  CHECK(std::is_same_v<decltype(NcclConfig::ours), decltype(ncclConfig_t::theirs)>);
  CHECK_MEMBER(size, size)
  CHECK_MEMBER(magic, magic)
  CHECK_MEMBER(version, version)
  CHECK_MEMBER(blocking, blocking)
  CHECK_MEMBER(cga_cluster_size, cgaClusterSize)
  CHECK_MEMBER(min_ctas, minCTAs)
  CHECK_MEMBER(max_ctas, maxCTAs)
  CHECK_MEMBER(net_name, netName)
  CHECK_MEMBER(split_share, splitShare)
#undef CHECK_MEMBER
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  CHECK(ours.magic == theirs.magic);
  CHECK(ours.blocking == theirs.blocking);
  CHECK(ours.cga_cluster_size == theirs.cgaClusterSize);
  CHECK(ours.min_ctas == theirs.minCTAs);
  CHECK(ours.max_ctas == theirs.maxCTAs);
  CHECK(ours.net_name == theirs.netName);
  CHECK(ours.split_share == theirs.splitShare);
  CHECK(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);
}

TEST_CASE("abi: our config of the encryption is NCCL's") {
  CHECK(sizeof(NcclEncryptionConfig) <= sizeof(ncclEncryptionConfig_t));
#define CHECK_MEMBER(name)                                                               \
  CHECK(offsetof(NcclEncryptionConfig, name) == offsetof(ncclEncryptionConfig_t, name)); \
  CHECK(std::is_same_v<decltype(NcclEncryptionConfig::name),                             \
                       decltype(ncclEncryptionConfig_t::name)>);
  CHECK_MEMBER(size)
  CHECK_MEMBER(magic)
  CHECK_MEMBER(version)
  CHECK_MEMBER(mode)
  CHECK_MEMBER(psk)
#undef CHECK_MEMBER
  const ncclEncryptionConfig_t theirs = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  const NcclEncryptionConfig ours;
  CHECK(ours.magic == theirs.magic);
  CHECK(ours.mode == theirs.mode);
  CHECK(ours.psk == theirs.psk);
  CHECK(NcclEncryptionConfig::kPsk == NCCL_ENCRYPTION_MODE_PSK);
}

TEST_CASE("abi: NCCL's constants have their values") {
  CHECK(kNcclSuccess == ncclSuccess);
  CHECK(kNcclUnhandledCudaError == ncclUnhandledCudaError);
  CHECK(kNcclSystemError == ncclSystemError);
  CHECK(kNcclInternalError == ncclInternalError);
  CHECK(kNcclInvalidArgument == ncclInvalidArgument);
  CHECK(kNcclInvalidUsage == ncclInvalidUsage);
  CHECK(kNcclRemoteError == ncclRemoteError);
  CHECK(kNcclInProgress == ncclInProgress);
  CHECK(kNcclInt8 == ncclInt8);
  CHECK(kNcclUint8 == ncclUint8);
  CHECK(kNcclInt32 == ncclInt32);
  CHECK(kNcclInt64 == ncclInt64);
  CHECK(kNcclFloat16 == ncclFloat16);
  CHECK(kNcclFloat32 == ncclFloat32);
  CHECK(kNcclFloat64 == ncclFloat64);
  CHECK(kNcclBfloat16 == ncclBfloat16);
  CHECK(kNcclSum == ncclSum);
  CHECK(kNcclAvg == ncclAvg);
  CHECK(NcclVersionCode(2, 28, 7) == NCCL_VERSION(2, 28, 7));
  CHECK(NcclVersionCode(2, 8, 4) == NCCL_VERSION(2, 8, 4));
}

#else

TEST_CASE("abi: NCCL's declarations are those of nccl.h") {
  ddprun::testing::SkipTest(
      "no nccl.h of NCCL 2.32 or newer, or no cuda_runtime.h, in " NVIDIA_LOOKED_FOR);
}

#endif

}  // namespace
}  // namespace ddp::internal
