#include "worker_runtime/gpu/nccl_api.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "worker_runtime/gpu/dynamic_library.h"
#include "worker_runtime/gpu/nccl_functions.h"
#include "worker_runtime/gpu/wheel_folders.h"

namespace ddp::internal {
namespace {

constexpr char kVariable[] = "DDPRUN_NCCL_LIB";
constexpr char kLibrary[] = "libnccl.so.2";

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

absl::StatusOr<LoadedNccl> Read(const DynamicLibrary& library) {
  LoadedNccl nccl;
  nccl.path = library.path();
  const std::string needed = "NCCL " + NcclVersionText(kNcclOldest) + " or newer is needed";
  if (!library.Take("ncclGetVersion", nccl.api.ncclGetVersion)) {
    return absl::FailedPreconditionError(nccl.path + ": it has no ncclGetVersion; " + needed);
  }
  const NcclResult result = nccl.api.ncclGetVersion(&nccl.version);
  if (result != kNcclSuccess) {
    return absl::FailedPreconditionError(nccl.path + ": ncclGetVersion failed with " +
                                         std::to_string(result));
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
  return nccl;
}

// Tries one place after the other and keeps what was wrong with each.
class Search {
 public:
  // False, and the cause kept, unless `library` is there and serves.
  bool Try(const absl::StatusOr<DynamicLibrary>& library) {
    if (!library.ok()) {
      causes_.push_back(std::string(library.status().message()));
      return false;
    }
    auto nccl = Read(*library);
    if (nccl.ok()) {
      found_ = *std::move(nccl);
      return true;
    }
    causes_.push_back(std::string(nccl.status().message()));
    is_unfit_ = true;
    return false;
  }

  void Note(std::string cause) { causes_.push_back(std::move(cause)); }

  const LoadedNccl& found() const { return found_; }

  absl::Status Failure(const std::string& advice) const {
    return absl::Status(
        is_unfit_ ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kNotFound,
        "NCCL: " + absl::StrJoin(causes_, "; ") + "; " + advice);
  }

 private:
  LoadedNccl found_;
  std::vector<std::string> causes_;
  bool is_unfit_ = false;  // some place had a library, only not one that serves
};

bool TryWheels(Search* search) {
  const std::string python = WheelPython();
  if (python.empty()) {
    search->Note("no Python's packages, as neither DDPRUN_NCCL_PYTHON nor PYTHON_EXEC is set");
    return false;
  }
  const auto folders = PackageFolders(python);
  for (const auto& folder : folders) {
    if (search->Try(DynamicLibrary::Open(folder + "/nvidia/nccl/lib/" + kLibrary))) return true;
  }
  if (folders.empty()) search->Note("no folder of packages belongs to the Python " + python);
  return false;
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
  Search search;
  const char* given = std::getenv(kVariable);
  if (given != nullptr && *given != '\0') {
    if (search.Try(DynamicLibrary::Open(given))) return search.found();
    return search.Failure(std::string(kVariable) +
                          " names it; name another, or unset the variable");
  }
  if (const auto loaded = DynamicLibrary::FindLoaded(kLibrary); loaded.has_value()) {
    if (search.Try(*loaded)) return search.found();
    // A second one beside a framework's own is allowed: neither sees the other's symbols.
  } else if (search.Try(DynamicLibrary::Open(kLibrary))) {
    return search.found();
  }
  if (TryWheels(&search)) return search.found();
  return search.Failure(
      "install libnccl2 or the Python package nvidia-nccl-cu12 or -cu13, "
      "or name the file by DDPRUN_NCCL_LIB");
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
