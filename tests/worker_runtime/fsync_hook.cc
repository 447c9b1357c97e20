#include "tests/worker_runtime/fsync_hook.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace ddp {

std::function<void(const std::string& path)>& OnFsync() {
  static std::function<void(const std::string&)> hook;
  return hook;
}

}  // namespace ddp

// In place of libc's, which does no more.
extern "C" int fsync(int fd) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const auto hook = ddp::OnFsync();  // it may take itself away
  if (hook && readlink(link.c_str(), path, sizeof(path) - 1) > 0) hook(path);
  return static_cast<int>(syscall(SYS_fsync, fd));
}
