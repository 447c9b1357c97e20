// What the example declares of cuBLAS, against its own header.
#include <doctest/doctest.h>

#include <string>

#include "examples/train/gpu/cublas.h"
#include "examples/train/gpu/cublas_functions.h"
#include "nvidia_found.h"
#include "tests/support/skip.h"
#include "tests/worker_runtime/gpu/abi_alike.h"

// Taken before cublas_v2.h, whose macros rename our members too.
namespace train::ours {
#define OURS(member, symbol) using member##_type = decltype(CublasApi::member);
DDPRUN_CUBLAS_FUNCTIONS(OURS)
#undef OURS
}  // namespace train::ours

#if NVIDIA_HAS_CUBLAS
#include <cublas_v2.h>
#if CUBLAS_VER_MAJOR >= 12
#define CAN_CHECK_CUBLAS 1
#endif
#endif

namespace train {
namespace {

using ddp::internal::Alike;
using ddp::internal::CallAlike;

// A word after the macros of the header.
#define TEXT(word) TEXT_OF(word)
#define TEXT_OF(word) #word

#if CAN_CHECK_CUBLAS

TEST_CASE("cublas abi: each function of cuBLAS has its type and its symbol") {
#define CHECK_FUNCTION(member, symbol)                                                  \
  CHECK_MESSAGE((CallAlike<ours::member##_type, decltype(&::symbol)>::value), #member); \
  CHECK(std::string(#symbol) == TEXT(member));
  DDPRUN_CUBLAS_FUNCTIONS(CHECK_FUNCTION)
#undef CHECK_FUNCTION
}

TEST_CASE("cublas abi: cuBLAS's types and constants are those of its header") {
  CHECK(Alike<CublasHandle, cublasHandle_t>());
  CHECK(Alike<CublasStream, cudaStream_t>());
  CHECK(sizeof(CublasResult) == sizeof(cublasStatus_t));
  CHECK(sizeof(CublasOperation) == sizeof(cublasOperation_t));
  CHECK(kCublasSuccess == CUBLAS_STATUS_SUCCESS);
  CHECK(kCublasNotInitialized == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(kCublasAllocFailed == CUBLAS_STATUS_ALLOC_FAILED);
  CHECK(kCublasInvalidValue == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(kCublasArchMismatch == CUBLAS_STATUS_ARCH_MISMATCH);
  CHECK(kCublasExecutionFailed == CUBLAS_STATUS_EXECUTION_FAILED);
  CHECK(kCublasNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(kCublasPlain == CUBLAS_OP_N);
  CHECK(kCublasTransposed == CUBLAS_OP_T);
  CHECK(kCublasMajorVersion == MAJOR_VERSION);
  CHECK(kCublasMinorVersion == MINOR_VERSION);
  CHECK(kCublasPatchLevel == PATCH_LEVEL);
}

#else

TEST_CASE("cublas abi: cuBLAS's declarations are those of cublas_v2.h") {
  ddprun::testing::SkipTest(
      "no cublas_v2.h of cuBLAS 12 or newer, or no cuda_runtime.h, in " NVIDIA_LOOKED_FOR);
}

#endif

}  // namespace
}  // namespace train
