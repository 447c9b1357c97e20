#include "launcher/status/memory_cgroup.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

// Paths are at most 4096 long, and so are cgroups within cgroups 2048 deep: nobody has more than a
// few.
constexpr size_t kDeepest = 64;

std::optional<int64_t> ToNumber(absl::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool HasOption(absl::string_view options, absl::string_view option) {
  const std::vector<absl::string_view> all = absl::StrSplit(options, ',');
  return std::find(all.begin(), all.end(), option) != all.end();
}

struct OwnPath {
  bool is_v2 = false;
  std::string path;
};

// "4:memory:/a/b" where v1 has the controller, else "0::/a/b".
std::optional<OwnPath> FindOwnPath(const std::string& cgroups) {
  std::optional<OwnPath> own;
  for (const absl::string_view line : absl::StrSplit(cgroups, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || !absl::StartsWith(fields[2], "/")) continue;
    if (HasOption(fields[1], "memory")) return OwnPath{false, std::string(fields[2])};
    if (fields[0] == "0" && fields[1].empty()) own = OwnPath{true, std::string(fields[2])};
  }
  return own;
}

// The mount point and what of it lies above the process's own; none where this mount does not show
// it.
std::optional<std::vector<std::string>> Directories(absl::string_view line, const OwnPath& own) {
  // "31 23 0:28 <root> <mount point> <options> ... - <type> <source> <options>"
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(line, absl::MaxSplits(" - ", 1));
  const std::vector<absl::string_view> kind = absl::StrSplit(halves.second, ' ');
  if (kind.empty()) return std::nullopt;  // of a line without " - " nothing is split
  const bool is_it =
      own.is_v2 ? kind[0] == "cgroup2" : kind[0] == "cgroup" && HasOption(kind.back(), "memory");
  const std::vector<absl::string_view> fields = absl::StrSplit(halves.first, ' ');
  std::string root, top;
  // Blanks and backslashes are three octal digits.
  if (!is_it || fields.size() < 5 || !absl::CUnescape(fields[3], &root) ||
      !absl::CUnescape(fields[4], &top)) {
    return std::nullopt;
  }
  if (root == "/") root.clear();
  if (!absl::StartsWith(own.path + "/", root + "/")) return std::nullopt;
  std::string rest = own.path.substr(root.size());
  while (!rest.empty() && rest.back() == '/') rest.pop_back();
  std::vector<std::string> directories;
  while (!rest.empty() && directories.size() + 1 < kDeepest) {
    directories.push_back(top + rest);
    rest.resize(rest.rfind('/'));
  }
  directories.push_back(top);
  return directories;
}

}  // namespace

std::optional<MemoryCgroup> FindMemoryCgroup(const std::string& mountinfo,
                                             const std::string& cgroups) {
  const std::optional<OwnPath> own = FindOwnPath(cgroups);
  // "/..": outside of what this cgroup namespace shows.
  if (!own || absl::StartsWith(own->path, "/..")) return std::nullopt;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    if (std::optional<std::vector<std::string>> directories = Directories(line, *own)) {
      return MemoryCgroup{own->is_v2, std::move(*directories)};
    }
  }
  return std::nullopt;
}

std::optional<int64_t> ParseCgroupBytes(std::string_view text) {
  const std::optional<int64_t> value =
      ToNumber(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  // v1's "no limit" is the greatest number of pages, in bytes: just below 2^63.
  if (!value || *value >= (int64_t{1} << 62)) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseKeyedNumber(std::string_view text, std::string_view key) {
  const absl::string_view wanted(key.data(), key.size());
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    if (!absl::ConsumePrefix(&line, wanted)) continue;
    const bool is_meminfo = absl::ConsumePrefix(&line, ":") && absl::ConsumeSuffix(&line, " kB");
    if (!absl::StartsWith(line, " ")) continue;  // a longer key
    const std::optional<int64_t> value = ToNumber(absl::StripAsciiWhitespace(line));
    if (!value || (is_meminfo && *value >= (int64_t{1} << 50))) return std::nullopt;
    return is_meminfo ? *value * 1024 : *value;
  }
  return std::nullopt;
}

}  // namespace ddprun::launcher
