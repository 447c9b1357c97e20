#include "examples/train/gpu/cublas.h"

#include "ddp/dynamic_library.h"
#include "examples/train/gpu/cublas_functions.h"

namespace train {

using ddp::DynamicLibrary;

namespace {

absl::Status Read(const DynamicLibrary& library, LoadedCublas* result) {
  LoadedCublas cublas;
  cublas.path = library.path();
  const char* missing = nullptr;
  const auto take = [&](const char* symbol, auto& member) {
    if (!library.Take(symbol, member) && missing == nullptr) missing = symbol;
  };
#define DDPRUN_TAKE(member, symbol) take(#symbol, cublas.api.member);
  DDPRUN_CUBLAS_FUNCTIONS(DDPRUN_TAKE)
#undef DDPRUN_TAKE
  if (missing != nullptr) {
    return absl::FailedPreconditionError(cublas.path + ": it has no " + missing +
                                         ", which cuBLAS 12 and 13 have");
  }
  for (const int property : {kCublasMajorVersion, kCublasMinorVersion, kCublasPatchLevel}) {
    int value = 0;
    const CublasResult answer = cublas.api.cublasGetProperty(property, &value);
    const auto status = CublasStatus(cublas.api, "cublasGetProperty", answer);
    if (!status.ok()) {
      return absl::FailedPreconditionError(cublas.path + ": " + std::string(status.message()));
    }
    cublas.version += (cublas.version.empty() ? "" : ".") + std::to_string(value);
  }
  *result = cublas;
  return absl::OkStatus();
}

absl::StatusCode CodeOf(CublasResult result) {
  switch (result) {
    case kCublasAllocFailed:
      return absl::StatusCode::kResourceExhausted;
    case kCublasInvalidValue:
      return absl::StatusCode::kInvalidArgument;
    case kCublasNotInitialized:
    case kCublasArchMismatch:
    case kCublasNotSupported:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<LoadedCublas> LoadCublas() {
  LoadedCublas cublas;
  const auto status = ddp::SearchLibrary(
      ddp::CublasPlaces(),
      [&cublas](const DynamicLibrary& library) { return Read(library, &cublas); });
  if (!status.ok()) return status;
  return cublas;
}

absl::Status CublasStatus(const CublasApi& api, const char* call, CublasResult result) {
  if (result == kCublasSuccess) return absl::OkStatus();
  const char* name = api.cublasGetStatusName(result);
  const char* text = api.cublasGetStatusString(result);
  return absl::Status(CodeOf(result), std::string(call) + ": " +
                                          (text != nullptr ? text : "unknown error") + " (" +
                                          (name != nullptr ? name : "cublasStatus_t") + " " +
                                          std::to_string(result) + ")");
}

}  // namespace train
