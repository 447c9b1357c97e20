#include "launcher/status/judge_words.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/agent/worker_end.h"

namespace ddprun::launcher {
namespace {

constexpr double kLongestSeconds = 1e9;
// A sentence names so many runs of ranks, or nodes.
constexpr size_t kMaxNamed = 8;

std::string TwoUnits(int64_t amount, int64_t parts, const char* unit, const char* part) {
  const int64_t rest = amount % parts;
  if (rest == 0) return absl::StrCat(amount / parts, " ", unit);
  return absl::StrCat(amount / parts, " ", unit, " ", rest, " ", part);
}

}  // namespace

double SecondsOf(Duration duration) { return std::chrono::duration<double>(duration).count(); }

bool IsTime(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

double SaneSeconds(double seconds) {
  return IsTime(seconds) ? std::min(seconds, kLongestSeconds) : 0;
}

std::string NumberText(uint64_t number) {
  std::string out = std::to_string(number);
  for (size_t at = out.size(); at > 3;) out.insert(at -= 3, ",");
  return out;
}

std::string NumberText(int64_t number) {
  if (number >= 0) return NumberText(static_cast<uint64_t>(number));
  return "-" + NumberText(uint64_t{0} - static_cast<uint64_t>(number));
}

std::string RateText(double per_s) {
  if (per_s >= 99.95) return NumberText(static_cast<uint64_t>(std::min(per_s + 0.5, 1e18)));
  return absl::StrFormat("%.*f", per_s >= 9.995 ? 1 : 2, per_s);
}

std::string SpanText(double seconds) {
  const auto whole = static_cast<int64_t>(SaneSeconds(seconds));
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return TwoUnits(whole, 60, "min", "s");
  if (whole < 86400) return TwoUnits(whole / 60, 60, "h", "min");
  return TwoUnits(whole / 3600, 24, "d", "h");
}

std::string StepTimeText(double seconds) {
  const double sane = SaneSeconds(seconds);
  if (sane >= 0.9995) return absl::StrFormat("%.*f s", sane >= 9.995 ? 1 : 2, sane);
  return absl::StrFormat("%.*f ms", sane >= 0.01 ? 0 : 2, sane * 1000);
}

std::string SomeRanksText(const std::vector<int>& ranks) {
  size_t runs = 0;
  size_t named = 0;
  for (; named < ranks.size(); ++named) {
    const bool goes_on = named > 0 && ranks[named] == ranks[named - 1] + 1;
    if (!goes_on && ++runs > kMaxNamed) break;
  }
  if (named == ranks.size()) return RanksText(ranks);
  return absl::StrCat(RanksText({ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(named)}),
                      " and ", ranks.size() - named, " more");
}

std::string SomeNamesText(const std::vector<std::string>& names) {
  const size_t named = std::min(names.size(), kMaxNamed);
  std::string out =
      absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(named), ", ");
  if (named < names.size()) absl::StrAppend(&out, " and ", names.size() - named, " more");
  return out;
}

absl::string_view ByCount(size_t count, absl::string_view one, absl::string_view many) {
  return count == 1 ? one : many;
}

}  // namespace ddprun::launcher
