#include "launcher/agent/node_identity.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

// Whether `path` is a directory of this user that nobody else can write to; makes it when missing.
bool IsOwnDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return false;
  return S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 0077) == 0;
}

// A file name: what could leave the directory or confuse a reader becomes its number.
std::string FileName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
      name += c;
    } else {
      absl::StrAppend(&name, "%", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
    }
  }
  return name.substr(0, 200);
}

}  // namespace

NodeId NewNodeId(const std::string& host) {
  uint64_t random = 0;
  // At most 256 bytes are never interrupted, and after boot there is always enough.
  while (getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
  }
  return NodeId{absl::StrCat(host, "_", getpid(), "_", absl::Hex(random, absl::kZeroPad16))};
}

std::string RunDirectory(const std::string& run_id, uint16_t port) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string base = absl::StrCat(runtime != nullptr && *runtime != '\0' ? runtime : "/tmp",
                                        "/ddprun-", geteuid());
  const std::string directory = absl::StrCat(base, "/", FileName(run_id), "-", port);
  const bool exists = access(directory.c_str(), F_OK) == 0;
  return IsOwnDirectory(base) && (!exists || IsOwnDirectory(directory)) ? directory : "";
}

}  // namespace ddprun::launcher
