#include "launcher/control/control_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr char kSuffix[] = ".sock";
// Connections that the agent has not accepted yet.
constexpr int kBacklog = 64;

absl::Status CheckOwn(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("look at ", path));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no directory; name one with DDPRUN_CONTROL_DIR"));
  }
  if (info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to another user; name another with DDPRUN_CONTROL_DIR"));
  }
  if ((info.st_mode & 0077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path,
                     " is open to other users; chmod 700 it, if it is for nothing else, or "
                     "name another with DDPRUN_CONTROL_DIR"));
  }
  return absl::OkStatus();
}

// False: the path is too long for a socket.
bool AddressOf(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return true;
}

absl::StatusOr<ControlSocket> ListenIn(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("make ", directory));
  }
  if (absl::Status own = CheckOwn(directory); !own.ok()) return own;
  uint32_t random = 0;
  // After boot there is always enough.
  while (getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "draw a random name");
  }
  ControlSocket socket_made;
  socket_made.path =
      absl::StrCat(directory, "/", getpid(), "-", absl::Hex(random, absl::kZeroPad8), kSuffix);
  // Whoever looks for sockets meanwhile would take one that does not listen yet for a dead agent's.
  const std::string unready = socket_made.path + "~";
  sockaddr_un address;
  if (!AddressOf(unready, address)) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " is too long a name for a socket's directory"));
  }
  socket_made.listening = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_made.listening.is_open()) return absl::ErrnoToStatus(errno, "make a Unix socket");
  const int fd = socket_made.listening.get();
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd, kBacklog) != 0 || rename(unready.c_str(), socket_made.path.c_str()) != 0) {
    const absl::Status status =
        absl::ErrnoToStatus(errno, absl::StrCat("listen on ", socket_made.path));
    unlink(unready.c_str());
    return status;
  }
  return socket_made;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

// errno of a connect that waits for nothing; 0: somebody listens.
int Probe(const std::string& path) {
  sockaddr_un address;
  if (!AddressOf(path, address)) return ENAMETOOLONG;
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return errno;
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  return connect(fd.get(), to, sizeof address) == 0 ? 0 : errno;
}

bool IsOld(const std::string& path) {
  struct stat info {};
  constexpr time_t kOldSeconds = 60;
  return lstat(path.c_str(), &info) == 0 && info.st_mtime + kOldSeconds < time(nullptr);
}

std::optional<ucred> PeerOf(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

// Null: none is given.
const char* GivenDirectory() {
  const char* given = std::getenv("DDPRUN_CONTROL_DIR");
  return given != nullptr && *given != '\0' ? given : nullptr;
}

}  // namespace

std::vector<std::string> ControlDirectories() {
  if (const char* given = GivenDirectory()) return {given};
  const std::string name = absl::StrCat("/ddprun-", geteuid());
  std::vector<std::string> directories = {"/tmp" + name};
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') directories.push_back(runtime + name);
  return directories;
}

absl::Status CheckControlDirectories() {
  absl::Status first;
  for (const std::string& directory : ControlDirectories()) {
    absl::Status own = CheckOwn(directory);
    if (absl::IsNotFound(own)) continue;
    if (own.ok()) return own;
    first.Update(own);
  }
  return first;
}

std::string WhereJobsAreSought() {
  const char* given = GivenDirectory();
  if (given == nullptr) return "on this machine";
  return absl::StrCat("on this machine (DDPRUN_CONTROL_DIR is ", EscapeControl(given), ")");
}

absl::StatusOr<ControlSocket> ListenForControl() {
  absl::Status first;
  for (const std::string& directory : ControlDirectories()) {
    absl::StatusOr<ControlSocket> made = ListenIn(directory);
    if (made.ok()) return made;
    first.Update(made.status());
  }
  return first;
}

void RemoveControlSocket(const std::string& path) { unlink(path.c_str()); }

std::vector<std::string> FindControlSockets() {
  std::vector<std::string> found;
  for (const std::string& directory : ControlDirectories()) {
    struct stat info {};
    // Another user's is none of ours.
    if (lstat(directory.c_str(), &info) != 0 || info.st_uid != geteuid()) continue;
    const std::unique_ptr<DIR, CloseDirectory> opened(opendir(directory.c_str()));
    if (opened == nullptr) continue;
    while (const dirent* entry = readdir(opened.get())) {
      std::string path = absl::StrCat(directory, "/", entry->d_name);
      // Of an agent that was killed before it had renamed it.
      if (absl::EndsWith(path, absl::StrCat(kSuffix, "~")) && IsOld(path)) unlink(path.c_str());
      if (!absl::EndsWith(path, kSuffix)) continue;
      const int error = Probe(path);
      if (error == ECONNREFUSED) {
        unlink(path.c_str());
      } else if (error == 0 || error == EAGAIN) {
        found.push_back(std::move(path));
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

absl::StatusOr<UniqueFd> ConnectToControl(const std::string& path, Duration timeout) {
  sockaddr_un address;
  if (!AddressOf(path, address)) {
    return absl::InvalidArgumentError(absl::StrCat(EscapeControl(path), ": too long a name"));
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return absl::ErrnoToStatus(errno, "make a Unix socket");
  const TimePoint until = SteadyNow() + timeout;
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  // A full backlog is EAGAIN, and no descriptor tells when it has room.
  while (connect(fd.get(), to, sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return absl::ErrnoToStatus(errno, "connect to " + EscapeControl(path));
    if (SteadyNow() >= until) {
      return absl::DeadlineExceededError(
          absl::StrCat("connect to ", EscapeControl(path), ": its ddprun accepts nobody"));
    }
    poll(nullptr, 0, 20);
  }
  if (!IsPeerAllowed(fd.get())) {
    return absl::PermissionDeniedError(
        absl::StrCat(EscapeControl(path), " is another user's socket"));
  }
  return fd;
}

bool IsPeerAllowed(int fd) {
  const std::optional<ucred> peer = PeerOf(fd);
  return peer && (peer->uid == geteuid() || peer->uid == 0);
}

int ListenerOf(int fd) { return PeerOf(fd).value_or(ucred{}).pid; }

}  // namespace ddprun::launcher
