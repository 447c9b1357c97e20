#include "launcher/agent/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

absl::Status Failed(const char* what, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", EscapeControl(path)));
}

// `name` becomes the temporary file's.
UniqueFd OpenTemporary(const std::string& path, std::string& name) {
  name = path + ".XXXXXX";
  return UniqueFd(mkostemp(name.data(), O_CLOEXEC));
}

absl::Status WriteInPlace(const std::string& path, absl::string_view text) {
  // O_NONBLOCK: a FIFO would wait for its reader.
  const UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0644));
  if (!fd.is_open()) return Failed("open", path, errno);
  return WriteAll(fd.get(), text, path);
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, absl::string_view text) {
  struct stat about {};
  // A link or a device keeps being what it is.
  const bool is_special = lstat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode);
  std::string name;
  const UniqueFd fd = is_special ? UniqueFd() : OpenTemporary(path, name);
  if (!fd.is_open()) return WriteInPlace(path, text);
  absl::Status status = WriteAll(fd.get(), text, name);
  // mkostemp made it private; others read it as they would any file of the user's.
  const mode_t mask = umask(0);
  umask(mask);
  if (status.ok() && fchmod(fd.get(), 0666 & ~mask) != 0) status = Failed("chmod", name, errno);
  if (status.ok() && rename(name.c_str(), path.c_str()) == 0) return absl::OkStatus();
  unlink(name.c_str());
  return status.ok() ? WriteInPlace(path, text) : status;
}

absl::Status CheckWritable(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) == 0) {
    if (!S_ISREG(about.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat(EscapeControl(path), ": expected the path of a regular file"));
    }
    if (access(path.c_str(), W_OK) == 0) return absl::OkStatus();
    return Failed("write to", path, errno);
  }
  if (errno != ENOENT) return Failed("write to", path, errno);
  std::string name;
  const UniqueFd fd = OpenTemporary(path, name);
  if (!fd.is_open()) return Failed("write to", path, errno);
  unlink(name.c_str());
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
