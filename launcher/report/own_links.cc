#include "launcher/report/own_links.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's own limit

absl::Status Failed(const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("open ", EscapeControl(path)));
}

// Where the link at `path` points to. What is checked is what is read: the link is held open.
absl::StatusOr<std::string> Follow(const std::string& path) {
  const UniqueFd link(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!link.is_open() || fstat(link.get(), &about) != 0) return Failed(path, errno);
  if (!S_ISLNK(about.st_mode)) return path;  // replaced meanwhile
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(EscapeControl(path), ": it is a symbolic link of user ", about.st_uid,
                     "; remove it, or name another file"));
  }
  std::array<char, PATH_MAX> target;
  const ssize_t size = readlinkat(link.get(), "", target.data(), target.size());
  if (size <= 0) return Failed(path, size < 0 ? errno : ENOENT);
  const std::string to(target.data(), static_cast<size_t>(size));
  if (to.front() == '/') return to;
  return absl::StrCat(path.substr(0, path.rfind('/') + 1), to);  // npos + 1 is 0
}

}  // namespace

absl::StatusOr<UniqueFd> OpenOwn(const std::string& path, int flags, mode_t mode) {
  std::string at = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    UniqueFd fd(open(at.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode));
    if (fd.is_open()) return fd;
    if (errno != ELOOP) return Failed(path, errno);
    absl::StatusOr<std::string> next = Follow(at);
    if (!next.ok()) return next.status();
    at = *std::move(next);
  }
  return Failed(path, ELOOP);
}

absl::StatusOr<std::string> EndOfOwnLinks(const std::string& path) {
  std::string at = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    struct stat about {};
    if (lstat(at.c_str(), &about) != 0 || !S_ISLNK(about.st_mode)) return at;
    absl::StatusOr<std::string> next = Follow(at);
    if (!next.ok()) return next.status();
    at = *std::move(next);
  }
  return Failed(path, ELOOP);
}

}  // namespace ddprun::launcher
