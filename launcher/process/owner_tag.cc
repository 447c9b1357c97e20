#include "launcher/process/owner_tag.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>

#include "rendezvous/base/fnv1a.h"

namespace ddprun::launcher {
namespace {

constexpr int kMostEntries = 1000;

// Eight digits; "" where it cannot be told.
std::string Home() {
  const std::string boot = ReadProcFile("/proc/sys/kernel/random/boot_id");
  char name[64];
  const ssize_t size = readlink("/proc/self/ns/pid", name, sizeof(name));
  if (boot.empty() || size <= 0) return "";
  Fnv1a hash;
  hash.Add(boot.data(), boot.size());
  hash.Add(name, static_cast<size_t>(size));
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", static_cast<unsigned>(hash.value() & 0xffffffffU));
  return text;
}

// In clock ticks since the boot: field 22 of stat, whose second may hold anything, in parentheses.
std::optional<uint64_t> StartOf(pid_t pid) {
  const std::string stat = ReadProcFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::stringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t start = 0;
  if (!(fields >> start)) return std::nullopt;
  return start;
}

std::string TagText(const std::string& home, pid_t pid, uint64_t start) {
  return home + "-" + std::to_string(pid) + "-" + std::to_string(start);
}

}  // namespace

std::string ReadProcFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string OwnerTag(pid_t pid) {
  const std::string home = Home();
  const std::optional<uint64_t> start = StartOf(pid);
  return home.empty() || !start ? "" : TagText(home, pid, *start);
}

bool IsOwnerGone(std::string_view tag) {
  char home[9];
  pid_t pid = 0;
  unsigned long long start = 0;
  const std::string text(tag);
  if (std::sscanf(text.c_str(), "%8[0-9a-f]-%d-%llu", home, &pid, &start) != 3 || pid <= 0 ||
      TagText(home, pid, start) != text || home != Home()) {
    return false;
  }
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::optional<uint64_t> start_now = StartOf(pid);
  return start_now && *start_now != start;
}

std::vector<std::string> AbandonedIn(
    const std::string& parent, const std::function<std::string_view(std::string_view)>& tag_of) {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(parent.c_str()), closedir);
  if (directory == nullptr) return found;
  for (int count = 0; count < kMostEntries; ++count) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    if (!IsOwnerGone(tag_of(entry->d_name))) continue;
    struct stat about {};
    if (fstatat(dirfd(directory.get()), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(about.st_mode) && about.st_uid == geteuid()) {
      found.push_back(parent + "/" + entry->d_name);
    }
  }
  return found;
}

}  // namespace ddprun::launcher
