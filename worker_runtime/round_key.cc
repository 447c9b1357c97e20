#include "worker_runtime/round_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "worker_runtime/env_contract.h"

namespace ddp::internal {
namespace {

// A program may have closed the descriptor and opened something else under its number.
bool IsOfLauncher(int descriptor) {
  struct stat found {};
  if (fstat(descriptor, &found) != 0) return false;
  const int seals = fcntl(descriptor, F_GET_SEALS);
  return found.st_size == static_cast<off_t>(kRoundKeyBytes) && seals >= 0 &&
         (seals & F_SEAL_WRITE) != 0;
}

}  // namespace

absl::StatusOr<std::string> ReadRoundKey(int descriptor) {
  std::string key(kRoundKeyBytes, '\0');
  // pread: the offset is shared by all that have inherited it.
  if (IsOfLauncher(descriptor) &&
      pread(descriptor, key.data(), key.size(), 0) == static_cast<ssize_t>(key.size())) {
    return key;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the key of this round is not behind descriptor ", descriptor, " (", kRoundKeyVar,
      "): a program between ddprun and this one has closed it; it has to be handed on, as with "
      "pass_fds of Python's subprocess"));
}

}  // namespace ddp::internal
