// A stream of bytes as lines, within bounded memory: each of them, one that is late, or the last
// ones. [pure]
#ifndef DDPRUN_LAUNCHER_LOGS_LINES_H_
#define DDPRUN_LAUNCHER_LOGS_LINES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// A line ends at '\n', at '\r' (a progress bar would else be invisible until it is full) or at
// both; an empty line that ends at '\r' alone is none. Which lines come out depends on the bytes
// only, not on how they were divided into chunks.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = 64 * 1024;
  // A line whose end is later than this is shown unfinished: a prompt, the dots of a progress. A
  // person sees no delay yet, and a line that is written in two calls stays in one piece.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);

  // One line without its end. A line longer than kMaxLine comes in pieces of that length, all but
  // the last with is_cut. The text lives until the callback returns.
  struct Line {
    std::string_view text;
    bool is_cut = false;
    size_t shown = 0;  // bytes of it that MarkShown has counted
  };

  // Calls `take(Line)` for every line that `bytes` completes.
  template <typename Take>
  void Push(std::string_view bytes, Take&& take) {
    while (!bytes.empty()) {
      Line line;
      if (!Next(bytes, line)) continue;
      take(line);
      partial_.clear();
    }
  }
  // The stream is over: calls `take` for a last line without an end, if there is one.
  template <typename Take>
  void Finish(Take&& take) {
    if (!partial_.empty()) take(Line{.text = partial_, .shown = std::exchange(shown_, 0)});
    partial_.clear();
  }

  // When Unfinished() is to be shown. To be asked after each Push and each MarkShown;
  // TimePoint::max(): nothing is to be shown.
  TimePoint ShowAt(TimePoint now);
  // What of the unfinished line is not yet shown, in whole characters.
  std::string_view Unfinished() const;
  // So many bytes of Unfinished() were shown; none: it waits for another kPatience.
  void MarkShown(size_t bytes);

 private:
  // Consumes a part of `bytes`; true when that completed a line.
  bool Next(std::string_view& bytes, Line& line);

  std::string partial_;  // the line so far, at most kMaxLine bytes
  size_t shown_ = 0;     // of it
  TimePoint show_at_ = TimePoint::max();
  bool was_return_ = false;
};

// The last bytes of a stream.
class TailBuffer {
 public:
  static constexpr size_t kMaxBytes = 64 * 1024;

  void Append(std::string_view bytes);
  // At most `max_lines` last lines, out of the last kMaxBytes; a line that was cut off at its
  // beginning is among them. An unfinished last line counts.
  std::string LastLines(size_t max_lines) const;
  // Bytes appended so far.
  uint64_t total() const { return total_; }
  // What was appended from byte `offset` on, as far as it is kept.
  std::string From(uint64_t offset) const;

 private:
  uint64_t total_ = 0;
  std::string bytes_;  // up to 2 * kMaxBytes: moving them once per kMaxBytes is cheap
};

// The lines of all ranks that hold one of the texts of --duplicate_stdout_filters or
// --duplicate_stderr_filters. They come whole and with their prefix.
class LineFilter {
 public:
  // `texts`: what a line must hold one of, byte for byte. An empty one is in every line.
  explicit LineFilter(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Takes the line if it matches; prefix and suffix do not count for that.
  void Take(std::string_view prefix, std::string_view text, std::string_view suffix);
  // What was taken since the last call.
  std::string Release() { return std::exchange(taken_, {}); }

 private:
  std::vector<std::string> texts_;
  std::string taken_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LINES_H_
