#include "launcher/process/owner_tag.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/fnv1a.h"

namespace ddprun::launcher {
namespace {

constexpr int kMostEntries = 1000;
// A thousand agents that start here at once would else ask about one another a million times.
constexpr int kMostOthers = 32;

// Eight digits, which never change while a process lives; "" where it cannot be told.
std::string ReadHome() {
  const std::string boot = ReadProcFile("/proc/sys/kernel/random/boot_id");
  char name[64];
  const ssize_t size = readlink("/proc/self/ns/pid", name, sizeof(name));
  if (boot.empty() || size <= 0) return "";
  Fnv1a hash;
  hash.Add(boot.data(), boot.size());
  hash.Add(name, static_cast<size_t>(size));
  return absl::StrCat(absl::Hex(hash.value() & 0xffffffffU, absl::kZeroPad8));
}

// The pid in a tag of this boot and pid namespace; 0: it is none.
pid_t OwnerHere(std::string_view tag) {
  const size_t dash = tag.find('-');
  if (dash == std::string_view::npos) return 0;
  pid_t pid = 0;
  std::from_chars(tag.data() + dash + 1, tag.data() + tag.size(), pid);
  return pid > 0 && OwnerTag(pid) == tag ? pid : 0;
}

}  // namespace

std::string ReadProcFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string OwnerTag(pid_t pid) {
  static const std::string home = ReadHome();
  return home.empty() ? "" : absl::StrCat(home, "-", pid);
}

bool IsOwnerGone(std::string_view tag) {
  const pid_t owner = OwnerHere(tag);
  return owner > 0 && kill(owner, 0) != 0 && errno == ESRCH;
}

std::vector<std::string> AbandonedIn(
    const std::string& parent, const std::function<std::string_view(std::string_view)>& tag_of) {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(parent.c_str()), closedir);
  if (directory == nullptr) return found;
  int others = 0;
  for (int count = 0; count < kMostEntries; ++count) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view tag = tag_of(entry->d_name);
    if (!IsOwnerGone(tag)) {
      if (OwnerHere(tag) > 0 && ++others > kMostOthers) break;
      continue;
    }
    struct stat about {};
    if (fstatat(dirfd(directory.get()), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(about.st_mode) && about.st_uid == geteuid()) {
      found.push_back(parent + "/" + entry->d_name);
    }
  }
  return found;
}

}  // namespace ddprun::launcher
