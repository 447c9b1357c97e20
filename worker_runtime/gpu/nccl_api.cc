#include "worker_runtime/gpu/nccl_api.h"

#include "absl/strings/strip.h"
#include "ddp/dynamic_library.h"
#include "worker_runtime/gpu/nccl_functions.h"

namespace ddp::internal {
namespace {

// Functions of one purpose are there together or not at all.
void DropHalfRegistration(NcclApi* api) {
  if (api->ncclMemAlloc != nullptr && api->ncclMemFree != nullptr &&
      api->ncclCommRegister != nullptr && api->ncclCommDeregister != nullptr) {
    return;
  }
  api->ncclMemAlloc = nullptr;
  api->ncclMemFree = nullptr;
  api->ncclCommRegister = nullptr;
  api->ncclCommDeregister = nullptr;
}

absl::Status Read(const DynamicLibrary& library, LoadedNccl* result) {
  LoadedNccl nccl;
  nccl.path = library.path();
  const std::string needed = "NCCL " + NcclVersionText(kNcclOldest) + " or newer is needed";
  if (!library.Take("ncclGetVersion", nccl.api.ncclGetVersion)) {
    return absl::FailedPreconditionError(nccl.path + ": it has no ncclGetVersion; " + needed);
  }
  const NcclResult answer = nccl.api.ncclGetVersion(&nccl.version);
  if (answer != kNcclSuccess) {
    return absl::FailedPreconditionError(nccl.path + ": ncclGetVersion failed with " +
                                         std::to_string(answer));
  }
  if (nccl.version < kNcclOldest) {
    return absl::FailedPreconditionError(nccl.path + ": it is NCCL " +
                                         NcclVersionText(nccl.version) + "; " + needed);
  }
  const char* missing = nullptr;
  const auto take = [&](const char* symbol, auto& member, int since) {
    if (since > nccl.version) return;
    if (!library.Take(symbol, member) && since <= kNcclOldest && missing == nullptr) {
      missing = symbol;
    }
  };
#define DDPRUN_TAKE(function, since) take(#function, nccl.api.function, since);
  DDPRUN_NCCL_FUNCTIONS(DDPRUN_TAKE)
#undef DDPRUN_TAKE
  if (missing != nullptr) {
    return absl::FailedPreconditionError(
        nccl.path + ": it says that it is NCCL " + NcclVersionText(nccl.version) + ", but has no " +
        missing + ", which " + NcclVersionText(kNcclOldest) + " and newer have");
  }
  DropHalfRegistration(&nccl.api);
  *result = nccl;
  return absl::OkStatus();
}

std::string Words(const NcclApi& api, NcclResult result, NcclComm comm) {
  const char* text = api.ncclGetErrorString(result);
  std::string words = text != nullptr ? text : "unknown error";
  const char* last = api.ncclGetLastError(comm);
  const auto detail = absl::StripAsciiWhitespace(last != nullptr ? last : "");
  if (!detail.empty()) words += ": " + std::string(detail);
  return words;
}

}  // namespace

absl::StatusOr<LoadedNccl> LoadNccl() {
  LoadedNccl nccl;
  const auto status = SearchLibrary(
      {.what = "NCCL",
       .variable = "DDPRUN_NCCL_LIB",
       .names = {"libnccl.so.2"},
       .wheel_files = {"nvidia/nccl/lib/libnccl.so.2"},
       .advice = "install libnccl2 or the Python package nvidia-nccl-cu12 or -cu13, or name the "
                 "file by DDPRUN_NCCL_LIB"},
      [&nccl](const DynamicLibrary& library) { return Read(library, &nccl); });
  if (!status.ok()) return status;
  return nccl;
}

absl::Status NcclStatus(const NcclApi& api, const char* call, NcclResult result, NcclComm comm) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  switch (result) {
    case kNcclSuccess:
      return absl::OkStatus();
    case kNcclSystemError:
    case kNcclRemoteError:
      code = absl::StatusCode::kUnavailable;
      break;
    case kNcclInvalidArgument:
    case kNcclInvalidUsage:
      code = absl::StatusCode::kInvalidArgument;
      break;
    default:
      break;
  }
  return absl::Status(code, std::string(call) + ": " + Words(api, result, comm));
}

}  // namespace ddp::internal
