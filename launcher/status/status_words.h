// Numbers and others' texts as a terminal shows them. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_STATUS_WORDS_H_
#define DDPRUN_LAUNCHER_STATUS_STATUS_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

// "18,240".
std::string GroupedDigits(int64_t number);
// "1 rank", "1,008 ranks".
std::string CountedNoun(size_t count, const char* noun);
// "0.4 ms", "350 ms", "3.2 s", "42 s", "3 min 5 s", "3 h 12 min", "2 d 3 h".
std::string TimeText(double seconds);
// "512 MiB", "1.2 GiB".
std::string MemoryText(int64_t bytes);
// "93 %" of a share from 0 to 1.
std::string PercentText(double share);

// On one line and harmless on a terminal, as EscapeControl; tabs become spaces, and characters that
// have no width or turn the direction of writing are left out, so that columns can be counted. Of
// more than 4 KiB, only these.
std::string ShownText(std::string_view text);
// How many columns of a terminal `text` takes: two for a wide character (CJK, emoji). No less than
// it takes, if it is a ShownText.
int ColumnsOf(std::string_view text);
// The start of `text` that takes at most `columns`, with "..." at its end where it is cut.
std::string CutToColumns(std::string_view text, int columns);
// `text` on lines of at most `columns`, parted at spaces, those after the first indented by two;
// at most `max_lines`, the last cut.  REQUIRES: max_lines > 0.
std::vector<std::string> WrappedLines(std::string_view text, int columns, int max_lines);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_STATUS_WORDS_H_
