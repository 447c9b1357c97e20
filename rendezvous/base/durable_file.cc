#include "rendezvous/base/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun {
namespace {

// Linux writes at most 2 GiB - 4 KiB at once, and says so by a short count.
constexpr size_t kMaxWrite = size_t{1} << 30;

}  // namespace

absl::Status FileError(absl::string_view call, absl::string_view path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(call, " \"", path, "\""));
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), kMaxWrite));
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError("write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& directory) {
  const UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return FileError("open", directory);
  return fsync(fd.get()) == 0 ? absl::OkStatus() : FileError("fsync", directory);
}

}  // namespace ddprun
