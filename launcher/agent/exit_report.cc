#include "launcher/agent/exit_report.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::FailureReport;

constexpr size_t kMaxTailLines = 50;
constexpr size_t kMaxLineLength = 2000;
constexpr size_t kMaxWidth = 60;  // of the rules, as in torchrun

// UTC: the nodes of a job may stand in several time zones.
std::string FormatTime(int64_t unix_time_ms) {
  using std::chrono::floor;
  if (unix_time_ms <= 0) return "<N/A>";
  const std::chrono::sys_time<std::chrono::milliseconds> time{
      std::chrono::milliseconds(unix_time_ms)};
  const auto day = floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  char text[64];
  std::snprintf(
      text, sizeof(text), "%04d-%02u-%02u_%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text;
}

// torchrun writes a signal as its negative number.
std::string ExitCodeText(const FailureReport& failure) {
  return std::to_string(failure.signal != 0 ? -failure.signal : failure.exit_code);
}

std::vector<std::string> Fields(const FailureReport& failure, const std::string& error_file) {
  const std::string pid = failure.pid != 0 ? std::to_string(failure.pid) : "not started";
  return {
      "  time      : " + FormatTime(failure.unix_time_ms),
      "  host      : " + EscapeControl(failure.host) +
          " (node_rank: " + std::to_string(failure.node_rank) + ")",
      "  rank      : " + std::to_string(failure.rank) +
          " (local_rank: " + std::to_string(failure.local_rank) + ")",
      "  exitcode  : " + ExitCodeText(failure) + " (pid: " + pid + ")",
      "  error_file: " + (error_file.empty() ? "<N/A>" : EscapeControl(error_file)),
      "  traceback : " + EscapeControl(failure.message) +
          (failure.dumped_core ? " (core dumped)" : ""),
  };
}

std::vector<std::string_view> LastLines(std::string_view text) {
  std::vector<std::string_view> lines;
  if (text.empty()) return lines;
  if (text.back() == '\n') text.remove_suffix(1);
  while (lines.size() < kMaxTailLines) {
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos) {
      lines.push_back(text);
      break;
    }
    lines.push_back(text.substr(newline + 1));
    text = text.substr(0, newline);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

std::string EscapedLine(std::string_view line) {
  // A terminal's line ends in \r\n.
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.size() <= kMaxLineLength) return EscapeControl(line);
  return EscapeControl(line.substr(0, kMaxLineLength)) + "... [line cut]";
}

std::string RenderTail(const FailureReport& failure) {
  const std::string rank = std::to_string(failure.rank);
  const std::vector<std::string_view> lines = LastLines(failure.stderr_tail);
  if (lines.empty()) return "Rank " + rank + " wrote nothing to stderr.\n";
  std::string out =
      lines.size() == 1 ? "Last line" : "Last " + std::to_string(lines.size()) + " lines";
  out += " of rank " + rank + "'s stderr:\n";
  for (const std::string_view line : lines) out += "  " + EscapedLine(line) + "\n";
  return out;
}

std::string RenderBlock(const ExitReportInput& input, const FailureReport& failure) {
  const std::string title = EscapeControl(input.title) + " FAILED";
  const std::vector<std::string> fields = Fields(failure, input.error_file);
  size_t width = title.size();
  for (const std::string& field : fields) width = std::max(width, field.size());
  width = std::min(width, kMaxWidth);
  const std::string thick(width, '=');
  const std::string thin(width, '-');
  std::string out = "\n" + thick + "\n" + title + "\n" + thin + "\n";
  // What fails after the first is a consequence and is not reported by the rendezvous.
  out += "Failures:\n  <NO_OTHER_FAILURES>\n" + thin + "\n";
  out += "Root Cause (first observed failure):\n[0]:\n";
  for (const std::string& field : fields) out += field + "\n";
  out += thick + "\n";
  return out;
}

}  // namespace

std::string RenderExitReport(const ExitReportInput& input) {
  const rendezvous::Verdict& verdict = input.verdict;
  const std::string code = std::to_string(verdict.exit_code);
  if (!verdict.first_failure) {
    if (verdict.exit_code == 0) return "";
    return "ddprun: exit code " + code + ": " + EscapeControl(verdict.reason) + "\n";
  }
  const FailureReport& failure = *verdict.first_failure;
  std::string out = RenderBlock(input, failure) + RenderTail(failure);
  // Codes of workers and of ddprun overlap: this line says whose it is.
  const bool is_workers = verdict.exit_code == failure.exit_code;
  out += "ddprun: exit code " + code + ": ";
  if (is_workers) {
    out += "that of rank " + std::to_string(failure.rank) + " on " + EscapeControl(failure.host) +
           ", " + EscapeControl(failure.message) + "\n";
  } else {
    out += "ddprun's own, " + EscapeControl(verdict.reason) + "\n";
  }
  return out;
}

}  // namespace ddprun::launcher
