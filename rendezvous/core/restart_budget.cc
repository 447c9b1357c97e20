#include "rendezvous/core/restart_budget.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/fnv1a.h"

namespace ddprun::rendezvous {
namespace {

bool IsDigit(std::string_view text, size_t at) {
  return at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]));
}

// Where the number that begins at `at` ends: "0x7f00", "1,309", "31.2".
size_t EndOfNumber(std::string_view text, size_t at) {
  const bool is_hex = text[at] == '0' && at + 1 < text.size() && text[at + 1] == 'x';
  if (is_hex) at += 2;
  while (at < text.size()) {
    const bool is_inside = (text[at] == '.' || text[at] == ',') && IsDigit(text, at + 1);
    const bool is_figure =
        is_hex && absl::ascii_isxdigit(static_cast<unsigned char>(text[at])) != 0;
    if (!IsDigit(text, at) && !is_figure && (is_hex || !is_inside)) break;
    ++at;
  }
  return at;
}

std::string_view FirstLine(std::string_view text) { return text.substr(0, text.find('\n')); }

// The last one in which something stands.
std::string_view LastLine(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  return text.substr(text.rfind('\n') + 1);
}

const std::optional<int>& LimitOf(const RestartLimits& limits, bool is_preemption) {
  return is_preemption ? limits.max_preemptions : limits.max_node_losses;
}

bool GiveBackWhenDue(const RestartLimits& limits, int restart_count, RestartsSpent& spent) {
  if (limits.budget_period == Duration{0} || spent.progress < limits.budget_period) return false;
  spent.given_back = std::max(spent.given_back, restart_count);
  spent.node_losses = spent.preemptions = 0;
  return true;
}

}  // namespace

std::string WithoutNumbers(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool is_number = IsDigit(text, at);
    out += is_number ? '#' : text[at];
    at = is_number ? EndOfNumber(text, at) : at + 1;
  }
  return out;
}

uint64_t FingerprintOf(const FailureReport& report) {
  const bool has_said = report.error && !report.error->message.empty();
  const std::string error =
      has_said ? std::string(FirstLine(report.error->message))
               : absl::StrCat(report.message, "\n", std::string(LastLine(report.stderr_tail)));
  const std::string text = absl::StrCat(
      report.exit_code, " ", report.signal, " ", report.is_hang ? 1 : 0, " ",
      report.step ? std::to_string(*report.step) : "none", "\n", WithoutNumbers(error));
  Fnv1a fingerprint;
  fingerprint.Add(text.data(), text.size());
  return fingerprint.value();
}

void CountFailure(const RestartLimits& limits, const FailureReport& report, int restart_count,
                  RestartsSpent& spent) {
  spent.progress += report.progress;
  const bool is_given_back = GiveBackWhenDue(limits, restart_count, spent);
  // With steps the same one may well take that long to come to. Without them so long a time says
  // that the job got somewhere.
  const bool has_got_on = is_given_back && !report.step;
  const uint64_t fingerprint = FingerprintOf(report);
  const bool is_same = spent.same_failures > 0 && spent.fingerprint == fingerprint && !has_got_on;
  spent.same_failures = is_same ? spent.same_failures + 1 : 1;
  spent.fingerprint = fingerprint;
  spent.failures_in_row = spent.progress >= kLongProgress ? 1 : spent.failures_in_row + 1;
  spent.progress = {};
}

void CountLoss(const RestartLimits& limits, bool is_preemption, std::chrono::milliseconds progress,
               int restart_count, RestartsSpent& spent) {
  spent.progress += progress;
  if (!LimitOf(limits, is_preemption)) return;
  GiveBackWhenDue(limits, restart_count, spent);
  if (spent.progress >= kLongProgress) spent.failures_in_row = 0;
  ++(is_preemption ? spent.preemptions : spent.node_losses);
  spent.progress = {};
}

Duration WaitBeforeRestart(const RestartLimits& limits, const RestartsSpent& spent) {
  const Duration longest = std::max(limits.backoff, kLongestBackoff);
  Duration wait = spent.failures_in_row < 2 ? Duration{0} : limits.backoff;
  for (int row = 2; row < spent.failures_in_row && wait < longest; ++row) wait *= 2;
  return std::min(wait, longest);
}

std::string WhyNoLossMore(const RestartLimits& limits, bool is_preemption,
                          const RestartsSpent& spent) {
  const std::optional<int>& limit = LimitOf(limits, is_preemption);
  if (!limit || (is_preemption ? spent.preemptions : spent.node_losses) <= *limit) return "";
  const char* what = is_preemption ? "preemption" : "node loss";
  const char* option = is_preemption ? "--max-preemptions=" : "--max-node-losses=";
  const std::string left = *limit == 0 ? absl::StrCat("no ", what, " is allowed")
                                       : absl::StrCat("no ", what, " is left of ", *limit);
  return absl::StrCat(left, " (", option, *limit, "); allow more",
                      limits.budget_period == Duration{0}
                          ? ", or have them given back after progress (--restart-budget-period)"
                          : "");
}

std::string WhyNoRestart(const RestartLimits& limits, const RestartsSpent& spent,
                         const FailureReport& report) {
  if (limits.max_same_failure == 0 || spent.same_failures < limits.max_same_failure) return "";
  return absl::StrCat("the same failure ", spent.same_failures, " times in succession",
                      report.step ? absl::StrCat(", each after step ", *report.step) : "",
                      ": another restart would most likely end so, too (--max-same-failures=",
                      limits.max_same_failure - 1, ")");
}

}  // namespace ddprun::rendezvous
