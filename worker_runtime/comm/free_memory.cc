#include "worker_runtime/comm/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ddp::internal {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// Files of the kernel; "" where there is none.
std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "max", a missing file and a number that is none are no limit.
uint64_t ReadNumber(const std::string& path) {
  uint64_t value = 0;
  return absl::SimpleAtoi(Read(path), &value) ? value : kUnknown;
}

// The first number of the line that begins with `name`.
uint64_t Field(absl::string_view text, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(name.size()), ' ', absl::SkipEmpty());
    uint64_t value = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &value)) return value;
  }
  return kUnknown;
}

// What the two versions call the same things.
struct Controller {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* reclaimable[3];  // of memory.stat, with the groups below
};
constexpr Controller kV2 = {"/sys/fs/cgroup",
                            "memory.max",
                            "memory.current",
                            {"inactive_file ", "active_file ", "slab_reclaimable "}};
constexpr Controller kV1 = {"/sys/fs/cgroup/memory",
                            "memory.limit_in_bytes",
                            "memory.usage_in_bytes",
                            {"total_inactive_file ", "total_active_file ", nullptr}};

uint64_t LeftIn(const std::string& folder, const Controller& names) {
  const uint64_t limit = ReadNumber(absl::StrCat(folder, "/", names.limit));
  const uint64_t usage = ReadNumber(absl::StrCat(folder, "/", names.usage));
  if (limit == kUnknown || usage == kUnknown) return kUnknown;
  const std::string stat = Read(absl::StrCat(folder, "/memory.stat"));
  uint64_t used = usage;
  for (const char* name : names.reclaimable) {
    const uint64_t part = name == nullptr ? 0 : Field(stat, name);
    if (part != kUnknown) used -= std::min(used, part);
  }
  return limit - std::min(limit, used);
}

// All groups from `path` up to the root of the mount. A container may see its own group as the
// mount's root and be told a path that is not below it: then only the root is found.
void LowerBy(const std::string& root, std::string path, const Controller& names,
             FreeMemory& result) {
  while (true) {
    const uint64_t left = LeftIn(absl::StrCat(root, names.mount, path), names);
    if (left < result.bytes) {
      result = {.bytes = left, .where = absl::StrCat("in the cgroup ", path.empty() ? "/" : path)};
    }
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

FreeMemory AskFreeMemory(const std::string& root) {
  FreeMemory result;
  const uint64_t kib = Field(Read(root + "/proc/meminfo"), "MemAvailable:");
  if (kib <= kUnknown / 1024) result = {.bytes = kib * 1024, .where = "on this machine"};
  const std::string groups = Read(root + "/proc/self/cgroup");
  for (const absl::string_view line : absl::StrSplit(groups, '\n', absl::SkipEmpty())) {
    // "7:memory:/job7", "0::/job7"
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    const bool is_v1 =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (is_v1 || parts[1].empty()) LowerBy(root, path, is_v1 ? kV1 : kV2, result);
  }
  return result;
}

absl::Status CheckFreeMemory(uint64_t bytes, const std::string& what) {
  const FreeMemory free = AskFreeMemory();
  if (bytes <= free.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(what, ": it needs ", bytes, " bytes, and ",
                                                   free.bytes, " are free ", free.where));
}

}  // namespace ddp::internal
