#include "launcher/report/last_words.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/report/error_file.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// How much of a failing worker's stderr is kept.
constexpr size_t kTailLines = 50;
constexpr Duration kTailsTimeout = std::chrono::milliseconds(500);

bool IsBetween(char c, char first, char last) { return c >= first && c <= last; }

// Behind the escape sequence that begins at `at`; `at` where none does.
size_t EndOfSequence(const std::string& text, size_t at) {
  size_t end = at + 1;
  if (end >= text.size()) return at;
  if (text[end] == ']') {  // a title or a link: it ends with BEL or ESC and a backslash
    for (++end; end < text.size() && text[end] != '\n'; ++end) {
      if (text[end] == '\a') return end + 1;
      if (text[end] == '\x1b') return text.compare(end, 2, "\x1b\\") == 0 ? end + 2 : at;
    }
    return at;
  }
  const bool is_csi = text[end] == '[';
  if (!is_csi && !IsBetween(text[end], 0x20, 0x2f)) return at;
  if (is_csi) ++end;
  while (end < text.size() && IsBetween(text[end], 0x20, is_csi ? 0x3f : 0x2f)) ++end;
  return end < text.size() && IsBetween(text[end], is_csi ? 0x40 : 0x30, 0x7e) ? end + 1 : at;
}

void ReadErrorFileOf(LastWords& words) {
  rendezvous::FailureReport& report = words.report;
  const std::string path = std::exchange(report.error_file, "");
  if (path.empty() || report.pid == 0) return;
  const absl::StatusOr<std::string> text = ReadErrorFile(path);
  if (absl::IsNotFound(text.status())) return;
  const absl::StatusOr<ErrorFileContent> content =
      text.ok() ? ParseErrorText(*text) : absl::StatusOr<ErrorFileContent>(text.status());
  if (!content.ok()) {
    report.error_file = path;
    words.warning = absl::StrCat("warning: the error file of rank ", report.rank, ", ",
                                 EscapeControl(path), ", ", content.status().message());
    return;
  }
  report.error = content->error;
  report.error->message = WithoutEscapeSequences(content->error.message);
  report.error->traceback = WithoutEscapeSequences(content->error.traceback);
  report.left_peer = content->left_peer;
  if (report.left_peer) {
    unlink(path.c_str());  // a note of our own library for us: nobody would remove it
  } else {
    report.error_file = path;
  }
}

}  // namespace

std::string WithoutEscapeSequences(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = text[i] == '\x1b' ? EndOfSequence(text, i) : i;
    if (end > i) {
      i = end;
    } else {
      out += text[i++];
    }
  }
  return out;
}

std::vector<LastWords> ReadLastWords(std::vector<LastWords> dead, size_t room,
                                     const TailReader& tail) {
  Duration left = kTailsTimeout;
  for (LastWords& words : dead) {
    const TimePoint begin = SteadyNow();
    rendezvous::FailureReport& report = words.report;
    ReadErrorFileOf(words);
    if (room == 0) {
      words.is_left_out = !words.is_failure && (report.error || !report.error_file.empty());
      report.error.reset();
      report.error_file.clear();
      words.warning.clear();
      continue;
    }
    words.is_failure = words.is_failure || report.error;
    if (words.is_failure) {
      const Duration patience = std::clamp(left, Duration::zero(), kTailTimeout);
      report.stderr_tail = WithoutEscapeSequences(tail(report.local_rank, kTailLines, patience));
      --room;
    }
    left -= SteadyNow() - begin;
  }
  return dead;
}

}  // namespace ddprun::launcher
