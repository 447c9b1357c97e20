// Cuts a stream of bytes into lines, within bounded memory. [pure]
#ifndef DDPRUN_LAUNCHER_LOGS_LINE_SPLITTER_H_
#define DDPRUN_LAUNCHER_LOGS_LINE_SPLITTER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::launcher {

// A line ends at '\n', at '\r' (a progress bar would else be invisible until it is full) or at
// both; an empty line that ends at '\r' alone is none. Which lines come out depends on the bytes
// only, not on how they were divided into chunks.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = 64 * 1024;

  // One line without its end. A line longer than kMaxLine comes in pieces of that length, all but
  // the last with is_cut. The text lives until the callback returns.
  struct Line {
    std::string_view text;
    bool is_cut = false;
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
    if (!partial_.empty()) take(Line{.text = partial_});
    partial_.clear();
  }

 private:
  // Consumes a part of `bytes`; true when that completed a line.
  bool Next(std::string_view& bytes, Line& line);

  std::string partial_;  // the line so far, at most kMaxLine bytes
  bool was_return_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LINE_SPLITTER_H_
