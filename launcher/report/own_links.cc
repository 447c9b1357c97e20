#include "launcher/report/own_links.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/numbers.h"
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

std::optional<int> OwnDescriptor(const std::string& path) {
  std::string at = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    const UniqueFd link(open(at.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    struct statfs system {};
    if (!link.is_open() || fstat(link.get(), &about) != 0 || !S_ISLNK(about.st_mode)) return {};
    if (fstatfs(link.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC) {
      // Another process's descriptor has a number as well, but leads elsewhere.
      int number = -1;
      struct stat named {};
      struct stat own {};
      const bool is_own = absl::SimpleAtoi(at.substr(at.rfind('/') + 1), &number) && number >= 0 &&
                          stat(at.c_str(), &named) == 0 && fstat(number, &own) == 0 &&
                          named.st_dev == own.st_dev && named.st_ino == own.st_ino;
      if (is_own) return number;
    }
    absl::StatusOr<std::string> next = Follow(at);
    if (!next.ok()) return {};
    at = *std::move(next);
  }
  return {};
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
