#include "launcher/placement/cpu_set.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

std::optional<int> CpuNumber(absl::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < 0 || value >= kMaxCpus) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<CpuSet> ParseCpuList(std::string_view text) {
  CpuSet cpus;
  const absl::string_view list =
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size()));
  if (list.empty()) return cpus;
  for (const absl::string_view range : absl::StrSplit(list, ',')) {
    const size_t dash = range.find('-');
    const std::optional<int> first = CpuNumber(range.substr(0, dash));
    const std::optional<int> last =
        dash == absl::string_view::npos ? first : CpuNumber(range.substr(dash + 1));
    if (!first || !last || *first > *last) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(text), " is no list of CPUs such as 0-3,8"));
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpus.end(), cpu);
  }
  return cpus;
}

std::string FormatCpuList(const CpuSet& cpus) {
  std::string text;
  for (auto cpu = cpus.begin(); cpu != cpus.end();) {
    const int first = *cpu;
    int last = first;
    while (++cpu != cpus.end() && *cpu == last + 1) last = *cpu;
    absl::StrAppend(&text, text.empty() ? "" : ",", first);
    if (last > first) absl::StrAppend(&text, "-", last);
  }
  return text;
}

CpuSet Intersection(const CpuSet& a, const CpuSet& b) {
  CpuSet both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

}  // namespace ddprun::launcher
