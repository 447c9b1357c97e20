#include "launcher/report/exit_report.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/agent/worker_end.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::FailureReport;

constexpr int kMaxTailLines = 50;
constexpr size_t kMaxLineLength = 2000;
constexpr size_t kMaxWidth = 60;  // of the rules, as in torchrun
// Error files hold up to 32 KiB of traceback and tails up to 64 KiB, for every one of the failures
// and before escaping: together that would be more than a console takes.
constexpr size_t kMaxRootBytes = 64 * 1024;
constexpr size_t kMaxOtherBytes = 4 * 1024;
constexpr size_t kMaxOthersBytes = 64 * 1024;  // all of their entries
constexpr size_t kMaxTailBytes = 64 * 1024;

std::string EscapedLine(std::string_view line) {
  // A terminal's line ends in \r\n.
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.size() <= kMaxLineLength) return EscapeControl(line);
  return EscapeControl(line.substr(0, kMaxLineLength)) + "... [line cut]";
}

// Each line escaped, with a line feed at its end; "" for no text.
std::string EscapedLines(absl::string_view text) {
  while (absl::ConsumeSuffix(&text, "\n")) {
  }
  std::string out;
  if (text.empty()) return out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    out += EscapedLine(std::string(line)) + "\n";
  }
  return out;
}

// `text` without its middle where it is longer: a traceback's ends say most. Cut between lines
// where there are some, else between characters.
std::string WithoutMiddle(const std::string& text, size_t max) {
  if (text.size() <= max) return text;
  size_t head = text.rfind('\n', max / 4);
  if (head == std::string::npos) head = CharacterStart(text, max / 4);
  const size_t earliest = text.size() - max * 3 / 4 + 64;  // room for the mark
  size_t tail = text.find('\n', earliest);
  if (tail == std::string::npos) tail = CharacterStart(text, earliest);
  return text.substr(0, head) + "\n  ... " + std::to_string(tail - head) + " bytes left out ..." +
         (text[tail] == '\n' ? "" : "\n  ") + text.substr(tail);
}

// Further lines are indented, as in torchrun.
std::string Indented(absl::string_view text) {
  while (absl::ConsumeSuffix(&text, "\n")) {
  }
  return absl::StrJoin(
      absl::StrSplit(text, '\n'), "\n  ",
      [](std::string* out, absl::string_view line) { *out += EscapedLine(std::string(line)); });
}

std::string TracebackOf(const FailureReport& failure) {
  if (failure.error && !failure.error->traceback.empty()) return Indented(failure.error->traceback);
  if (failure.error && !failure.error->message.empty()) return Indented(failure.error->message);
  return EscapeControl(failure.message) + (failure.dumped_core ? " (core dumped)" : "");
}

std::string TimeOf(const FailureReport& failure) {
  const bool is_said = failure.error && failure.error->unix_time_s > 0;
  const std::string text = is_said ? UtcTextOfSecond(failure.error->unix_time_s, '_')
                                   : UtcText(failure.unix_time_ms, '_');
  return text.empty() ? "<N/A>" : text;
}

// `traceback`: what stands in that field.
std::vector<std::string> Fields(const FailureReport& failure, const std::string& traceback) {
  const std::string pid = failure.pid != 0 ? std::to_string(failure.pid) : "not started";
  const std::string signal = failure.signal != 0 ? " (" + SignalName(failure.signal) + ")" : "";
  const std::string code =
      failure.is_hang ? "<N/A>" : std::to_string(TorchrunCode(failure.exit_code, failure.signal));
  const std::string& file = failure.error_file;
  return {
      "  time      : " + TimeOf(failure),
      "  host      : " + EscapeControl(failure.host) +
          " (node_rank: " + std::to_string(failure.node_rank) + ")",
      "  rank      : " + std::to_string(failure.rank) +
          " (local_rank: " + std::to_string(failure.local_rank) + ")",
      "  exitcode  : " + code + " (pid: " + pid + ")" + signal,
      "  error_file: " + (file.empty() ? "<N/A>" : EscapeControl(file)),
      "  traceback : " + traceback,
  };
}

using Lines = std::vector<std::string>;

Lines LinesOf(absl::string_view text) {
  while (absl::ConsumeSuffix(&text, "\n")) {
  }
  Lines lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  return lines;
}

// Where in `lines` the traceback begins whose last line is lines[end - 1]; `end`: it does not end
// there. Python prints frames outside of @record besides, and its beginning may not be kept.
size_t BeginOfTraceback(const Lines& traceback, const Lines& lines, size_t end) {
  size_t begin = end;
  for (size_t left = traceback.size(); left > 0 && begin > 0; --begin) {
    const std::string& line = lines[begin - 1];
    if (line == traceback[left - 1]) {
      --left;
    } else if (!line.starts_with(' ')) {
      return end;
    }
  }
  return begin;
}

// Takes the traceback out of the lines, if it is there.
bool DropTraceback(const FailureReport& failure, Lines& lines) {
  if (!failure.error || failure.error->traceback.empty()) return false;
  const Lines traceback = LinesOf(failure.error->traceback);
  for (size_t end = lines.size(); end > 0; --end) {
    if (lines[end - 1] != traceback.back()) continue;
    const size_t begin = BeginOfTraceback(traceback, lines, end);
    if (begin == end) continue;
    lines.erase(lines.begin() + static_cast<ptrdiff_t>(begin),
                lines.begin() + static_cast<ptrdiff_t>(end));
    return true;
  }
  return false;
}

// The last of what is kept of its stderr.
Lines TailOf(const FailureReport& failure) {
  Lines lines = absl::StrSplit(absl::StripSuffix(failure.stderr_tail, "\n"), '\n');
  if (std::ssize(lines) > kMaxTailLines) lines.erase(lines.begin(), lines.end() - kMaxTailLines);
  return lines;
}

// Python has written the traceback to stderr as well, which stands above: the exception is enough.
std::string EndOfTraceback(const FailureReport& failure) {
  const Lines message = LinesOf(failure.error->message);
  const std::string exception = message.empty() ? "" : message.front();
  return "it stands above, in the rank's stderr: " + Indented(exception);
}

bool HasWrittenTraceback(const FailureReport& failure) {
  Lines lines = TailOf(failure);
  return DropTraceback(failure, lines);
}

std::string RenderTail(const FailureReport& failure) {
  if (failure.is_hang) return "";  // it has not ended: nobody has read what it wrote
  const std::string rank = std::to_string(failure.rank);
  if (failure.stderr_tail.empty()) return "Rank " + rank + " wrote nothing to stderr.\n";
  Lines lines = TailOf(failure);
  const bool is_dropped = DropTraceback(failure, lines);  // it stands in the block
  if (lines.empty()) return "";
  std::string out =
      lines.size() == 1 ? "Last line" : "Last " + std::to_string(lines.size()) + " lines";
  out += " of rank " + rank + "'s stderr" + (is_dropped ? " beside that traceback:\n" : ":\n");
  std::string said;
  for (const std::string& line : lines) said += "  " + EscapedLine(line) + "\n";
  return out + WithoutMiddle(said, kMaxTailBytes);
}

// What a user can do about an end of a known kind; empty: it is of none.
std::string RenderHint(const FailureReport& failure) {
  // C++ ends a program so whose thread still runs when its object goes.
  constexpr absl::string_view kTerminate = "terminate called without an active exception";
  if (failure.signal != SIGABRT || LinesOf(failure.stderr_tail).back() != kTerminate) return "";
  return "Hint: a program ends so when its Gloo group still works at exit. Call "
         "torch.distributed.destroy_process_group() before the end. If it does that already, "
         "PyTorch aborts now and then anyway; the backend ddp does not.\n";
}

// Of workers that say the same of their end the first to exit has the others stopped: their exit
// status is then our doing.
bool FailedAlike(const FailureReport& a, const FailureReport& b) {
  if (a.error && b.error) {
    return a.error->message == b.error->message && a.error->traceback == b.error->traceback;
  }
  return !a.error && !b.error && a.exit_code == b.exit_code && a.signal == b.signal &&
         a.message == b.message;
}

// Workers that failed alike: the first of them in full, of the others the ranks.
struct Alike {
  const FailureReport* first;
  std::vector<int> others;
};

// The root cause's group comes first, then the others by rank.
std::vector<Alike> GroupAlike(const FailureReport& root,
                              const std::vector<const FailureReport*>& others) {
  std::vector<Alike> groups = {{&root, {}}};
  for (const FailureReport* failure : others) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const Alike& alike) {
      return FailedAlike(*alike.first, *failure);
    });
    if (group != groups.end()) {
      group->others.push_back(failure->rank);
    } else {
      groups.push_back({failure, {}});
    }
  }
  return groups;
}

std::string RenderBlock(const ExitReportInput& input, const FailureReport& root) {
  std::vector<const FailureReport*> others;
  for (const FailureReport& failure : input.local_failures) {
    if (!rendezvous::IsSameWorker(failure, root)) others.push_back(&failure);
  }
  std::sort(others.begin(), others.end(),
            [](const auto* a, const auto* b) { return a->rank < b->rank; });
  const std::vector<Alike> groups = GroupAlike(root, others);
  const std::string title = EscapedLine(input.title) + " FAILED";
  size_t width = title.size();
  std::vector<std::string> entries;  // without "[i]:"
  std::vector<int> left_out;
  size_t others_bytes = 0;
  for (const Alike& group : groups) {
    const bool is_root = entries.empty();
    // Among other ranks' tracebacks it would have to be looked for.
    const bool stands_above = others.empty() && input.is_stderr_shown &&
                              input.report_node.empty() && HasWrittenTraceback(*group.first);
    const size_t most = is_root ? kMaxRootBytes : kMaxOtherBytes;
    const std::vector<std::string> fields =
        Fields(*group.first, stands_above ? EndOfTraceback(*group.first)
                                          : WithoutMiddle(TracebackOf(*group.first), most));
    const std::string entry = absl::StrJoin(fields, "\n") + "\n";
    if (!is_root) others_bytes += entry.size();
    if (others_bytes > kMaxOthersBytes) {  // and so are all that follow
      left_out.push_back(group.first->rank);
      left_out.insert(left_out.end(), group.others.begin(), group.others.end());
      continue;
    }
    for (const std::string& field : fields) width = std::max(width, field.size());
    entries.push_back(entry);
  }
  width = std::min(width, kMaxWidth);
  const std::string thick(width, '=');
  const std::string thin(width, '-');
  std::string out = "\n" + thick + "\n" + title + "\n" + thin + "\nFailures:\n";
  if (others.empty()) out += "  <NO_OTHER_FAILURES>\n";
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += "[" + std::to_string(i) + "]:\n" + entries[i];
    if (groups[i].others.empty()) continue;
    out += "  " + RanksText(groups[i].others) + ": the same as [" + std::to_string(i) + "]\n";
  }
  std::sort(left_out.begin(), left_out.end());
  if (!left_out.empty()) {
    out += "  " + RanksText(left_out) + ": failed, too; there is no room for more here\n";
  }
  out += thin + "\nRoot Cause (first observed failure):\n[0]:\n" + entries[0] + thick + "\n";
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
  const bool is_here = input.report_node.empty();
  std::string out =
      is_here ? RenderBlock(input, failure) + RenderTail(failure) + RenderHint(failure) : "";
  // Codes of workers and of ddprun overlap: this line says whose it is.
  out += "ddprun: exit code " + code + ": ";
  if (rendezvous::IsOfWorker(verdict)) {
    // The code is in the line already.
    std::string cause = ", " + rendezvous::CauseText(failure);
    const std::string same = ", exit code " + code;
    if (cause.compare(0, same.size(), same) == 0) cause.erase(0, same.size());
    out += "that of rank " + std::to_string(failure.rank) + " on " + EscapeControl(failure.host) +
           EscapeControl(cause) +
           (verdict.early_exit.empty() ? "" : "; " + EscapeControl(verdict.early_exit)) +
           (verdict.limit.empty() ? "" : "; " + EscapeControl(verdict.limit));
  } else {
    out += "ddprun's own, " + EscapeControl(verdict.reason);
  }
  if (!is_here) out += "; " + EscapeControl(input.report_node) + " prints the report";
  return out + "\n";
}

std::string RenderTerminationMessage(const TerminationInput& input) {
  if (input.exit_code == 0) return "";
  const std::string code = std::to_string(input.exit_code);
  if (!input.first_failure) {
    const std::string text = "exit code " + code + ": " + EscapeControl(input.reason) + "\n";
    return text.substr(0, CharacterStart(text, kMaxTerminationBytes));
  }
  const FailureReport& failure = *input.first_failure;
  std::string text = "rank " + std::to_string(failure.rank) + " on " + EscapeControl(failure.host) +
                     " (node_rank: " + std::to_string(failure.node_rank) +
                     "): " + EscapeControl(failure.message);
  const std::string own =
      (failure.is_hang ? "ddprun's exit code " : "exit code ") + std::to_string(failure.exit_code);
  if (failure.message != own) text += ", " + own;
  // Not the worker's: this node was told to end, or could not go on.
  const bool is_own_code = input.exit_code != failure.exit_code;
  if (is_own_code) text += "\nddprun: exit code " + code + ": " + EscapeControl(input.reason);
  text += "\n";
  // A traceback's last lines stand in stderr, too; its message is what the worker says of it.
  if (failure.error) text += EscapedLines(failure.error->message);
  const std::string tail = EscapedLines(failure.stderr_tail);
  const std::string title = "its last lines:\n";
  if (!tail.empty() && text.size() + title.size() < kMaxTerminationBytes) {
    text += title;
    const size_t room = kMaxTerminationBytes - text.size();
    const size_t first = tail.size() - std::min(tail.size(), room);
    size_t start = first == 0 ? 0 : tail.find('\n', first - 1) + 1;
    if (start == tail.size()) start = CharacterStart(tail, first);  // the end of a long line
    text += tail.substr(start);
  }
  return text.substr(0, CharacterStart(text, kMaxTerminationBytes));
}

}  // namespace ddprun::launcher
