#include "worker_runtime/comm/nccl/nccl_environment.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace ddp::internal {

absl::Status CheckNcclEnvironment() {
  const char* id = std::getenv("NCCL_COMM_ID");
  if (id != nullptr && *id != '\0') {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_COMM_ID is set (\"", id,
                     "\"): NCCL would use a public constant as the group's secret; unset it"));
  }
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");
  // As NCCL reads it.
  if (blocking != nullptr && *blocking != '\0' && std::strtoll(blocking, nullptr, 0) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_COMM_BLOCKING is set (\"", blocking,
                     "\"): the library makes blocking calls of NCCL, as PyTorch does; unset it"));
  }
  return absl::OkStatus();
}

void SetNcclEnvironment() {
  constexpr int kKeepTheUsers = 0;
  setenv("NCCL_GRAPH_REGISTER", "0", kKeepTheUsers);
}

}  // namespace ddp::internal
