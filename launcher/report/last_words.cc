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

void ReadErrorFileInto(LastWords& words) {
  const DeadWorker& worker = words.worker;
  if (worker.error_file.empty() || worker.end.pid == 0) return;
  const absl::StatusOr<std::string> text = ReadErrorFile(worker.error_file);
  if (absl::IsNotFound(text.status())) return;
  words.error_file = worker.error_file;
  absl::StatusOr<ErrorFileContent> content =
      text.ok() ? ParseErrorText(*text) : absl::StatusOr<ErrorFileContent>(text.status());
  if (content.ok()) {
    words.error = std::move(content->error);
    words.error->message = WithoutEscapeSequences(words.error->message);
    words.error->traceback = WithoutEscapeSequences(words.error->traceback);
    words.left_peer = content->left_peer;
    if (!words.left_peer) return;
    // A note of our own library for us: nobody would remove it.
    unlink(worker.error_file.c_str());
    words.error_file.clear();
  } else {
    words.warning =
        absl::StrCat("warning: the error file of rank ", worker.rank, ", ",
                     EscapeControl(worker.error_file), ", ", content.status().message());
  }
}

// Of a worker for whose texts there is no room.
LastWords LookAt(const DeadWorker& worker) {
  LastWords words{.worker = worker};
  ReadErrorFileInto(words);
  return {.worker = worker,
          .is_failure = worker.is_failure,
          .is_left_out = !worker.is_failure && (words.error || !words.error_file.empty()),
          .left_peer = words.left_peer};
}

LastWords ReadOne(const DeadWorker& worker, const TailReader& tail, Duration tail_timeout) {
  LastWords words{.worker = worker, .is_failure = worker.is_failure};
  ReadErrorFileInto(words);
  words.is_failure = worker.is_failure || words.error;
  if (!words.is_failure) return words;
  words.stderr_tail = WithoutEscapeSequences(tail(worker.end.local_rank, kTailLines, tail_timeout));
  return words;
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

std::vector<LastWords> ReadLastWords(const std::vector<DeadWorker>& workers, size_t room,
                                     const TailReader& tail) {
  std::vector<LastWords> all;
  Duration left = kTailsTimeout;
  for (const DeadWorker& worker : workers) {
    if (room == 0) {
      all.push_back(LookAt(worker));
      continue;
    }
    const TimePoint begin = SteadyNow();
    all.push_back(ReadOne(worker, tail, std::clamp(left, Duration::zero(), kTailTimeout)));
    left -= SteadyNow() - begin;
    if (all.back().is_failure) --room;
  }
  return all;
}

}  // namespace ddprun::launcher
