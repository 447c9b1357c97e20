#include "rendezvous/base/unique_fd.h"

#include <unistd.h>
#include <cerrno>

namespace ddprun {

void UniqueFd::Reset(int fd) {
  const int old = std::exchange(fd_, fd);
  if (old < 0) return;
  const int saved = errno;
  close(old);  // Linux releases the descriptor even when close reports EINTR.
  errno = saved;
}

}  // namespace ddprun
