#include "launcher/agent/round_key_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"

namespace ddprun::launcher {

absl::StatusOr<UniqueFd> RoundKeyFileOf(const rendezvous::Assignment& assignment,
                                        bool has_identity) {
  if (!has_identity || assignment.node_count < 2) return UniqueFd();
  const std::string& key = assignment.round_key;
  if (key.size() != rendezvous::kRoundKeyBytes) {
    return absl::FailedPreconditionError(
        "hand the round's key to the workers: the coordinator has given none; do all nodes run the "
        "same version of ddprun?");
  }
  UniqueFd fd(memfd_create("ddprun-round-key", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (!fd.is_open() ||
      write(fd.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()) ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return absl::ErrnoToStatus(errno, "make the file of the round's key (memfd_create)");
  }
  return fd;
}

}  // namespace ddprun::launcher
