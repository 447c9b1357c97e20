#include "launcher/report/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/report/own_links.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

absl::Status Failed(const char* what, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", EscapeControl(path)));
}

// `name` becomes the temporary file's. Readable as any file of the user's: the kernel applies the
// umask, which a process with threads can neither read nor set without another's file being made
// meanwhile under the wrong one. In place of a file it has that one's owner, group and mode
// (`before`; null: there is none). Closed: it cannot be made so.
UniqueFd OpenTemporary(const std::string& path, const struct stat* before, std::string& name) {
  std::random_device random;
  name = absl::StrCat(path, ".", absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8));
  UniqueFd fd(
      open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, before == nullptr ? 0666 : 0600));
  if (!fd.is_open() || before == nullptr) return fd;
  // The owner first: a change of it takes set-id bits away.
  const bool is_alike = fchown(fd.get(), before->st_uid, before->st_gid) == 0 &&
                        fchmod(fd.get(), before->st_mode & 07777) == 0;
  if (is_alike) return fd;
  unlink(name.c_str());
  return UniqueFd();
}

absl::Status WriteInPlace(const std::string& path, absl::string_view text) {
  // O_NONBLOCK: a FIFO would wait for its reader.
  const absl::StatusOr<UniqueFd> fd =
      OpenOwn(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0644);
  return fd.ok() ? WriteAll(fd->get(), text, path) : fd.status();
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, absl::string_view text) {
  if (const std::optional<int> own = OwnDescriptor(path)) return WriteAll(*own, text, path);
  struct stat about {};
  // A link or a device keeps being what it is.
  const bool is_there = lstat(path.c_str(), &about) == 0;
  const bool is_special = is_there && !S_ISREG(about.st_mode);
  std::string name;
  const UniqueFd fd =
      is_special ? UniqueFd() : OpenTemporary(path, is_there ? &about : nullptr, name);
  if (!fd.is_open()) return WriteInPlace(path, text);
  absl::Status status = WriteAll(fd.get(), text, path);
  if (status.ok() && rename(name.c_str(), path.c_str()) == 0) return absl::OkStatus();
  unlink(name.c_str());
  return status.ok() ? WriteInPlace(path, text) : status;
}

absl::Status WriteIfThere(const std::string& path, absl::string_view text) {
  if (const std::optional<int> own = OwnDescriptor(path)) return WriteAll(*own, text, path);
  const absl::StatusOr<UniqueFd> fd = OpenOwn(path, O_WRONLY | O_TRUNC | O_NONBLOCK);
  return fd.ok() ? WriteAll(fd->get(), text, path) : absl::OkStatus();
}

absl::Status CheckWritable(const std::string& path) {
  if (const std::optional<int> own = OwnDescriptor(path)) {
    const int mode = fcntl(*own, F_GETFL) & O_ACCMODE;
    if (mode == O_WRONLY || mode == O_RDWR) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(EscapeControl(path), ": descriptor ", *own, " is not open for writing"));
  }
  struct stat about {};
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(EscapeControl(path), ": expected the path of a regular file"));
  }
  // Neither made nor emptied.
  const absl::Status opened = OpenOwn(path, O_WRONLY | O_NONBLOCK).status();
  if (!absl::IsNotFound(opened)) return opened;
  // A link that leads nowhere yet: what counts is where the file would be made.
  const absl::StatusOr<std::string> end = EndOfOwnLinks(path);
  if (!end.ok()) return end.status();
  std::string name;
  const UniqueFd fd = OpenTemporary(*end, nullptr, name);
  if (!fd.is_open()) {
    const int error = errno;
    const std::string leads = *end == path ? "" : absl::StrCat(" (a link to ", *end, ")");
    return Failed("write to", absl::StrCat(path, leads), error);
  }
  unlink(name.c_str());
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
