#include "launcher/status/status_words.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("status words: numbers have a comma after each three digits") {
  CHECK(GroupedDigits(0) == "0");
  CHECK(GroupedDigits(999) == "999");
  CHECK(GroupedDigits(18240) == "18,240");
  CHECK(GroupedDigits(-1234567) == "-1,234,567");
  CHECK(GroupedDigits(std::numeric_limits<int64_t>::min()) == "-9,223,372,036,854,775,808");
  CHECK(CountedNoun(1, "rank") == "1 rank");
  CHECK(CountedNoun(1008, "rank") == "1,008 ranks");
}

TEST_CASE("status words: a time has two digits that matter, and never 60 of a unit") {
  CHECK(TimeText(0) == "0 s");
  CHECK(TimeText(-1) == "0 s");
  CHECK(TimeText(std::numeric_limits<double>::quiet_NaN()) == "0 s");
  CHECK(TimeText(0.0004) == "0.4 ms");
  CHECK(TimeText(0.0099) == "9.9 ms");
  CHECK(TimeText(0.35) == "350 ms");
  CHECK(TimeText(0.9996) == "1 s");
  CHECK(TimeText(3.2) == "3.2 s");
  CHECK(TimeText(9.96) == "10 s");
  CHECK(TimeText(42.6) == "42 s");
  CHECK(TimeText(59.99) == "1 min");
  CHECK(TimeText(185) == "3 min 5 s");
  CHECK(TimeText(3599) == "59 min");
  CHECK(TimeText(11520) == "3 h 12 min");
  CHECK(TimeText(183600) == "2 d 3 h");
  CHECK(TimeText(1e300) == "11,574,074,074 d");
}

TEST_CASE("status words: memory is in the unit that reads best") {
  CHECK(MemoryText(-1) == "0 B");
  CHECK(MemoryText(512) == "512 B");
  CHECK(MemoryText(1023 * 1024 + 900) == "1 MiB");
  CHECK(MemoryText(int64_t{512} << 20) == "512 MiB");
  CHECK(MemoryText(1288490189) == "1.2 GiB");
  CHECK(MemoryText(int64_t{310} << 30) == "310 GiB");
  CHECK(MemoryText(std::numeric_limits<int64_t>::max()) == "8192 PiB");
  CHECK(PercentText(0.934) == "93 %");
}

TEST_CASE("status words: what is shown moves no cursor and turns no text around") {
  CHECK(ShownText("a\tb\x1b[2J\r\n") == "a b\\x1b[2J\\r\\n");
  CHECK(ShownText("a\xe2\x80\xae"
                  "b\xe2\x80\x8b"
                  "c\xef\xbb\xbf") == "abc");
  CHECK(ShownText("é 漢 \xff") == "é 漢 \\xff");
}

TEST_CASE("status words: a cut text never parts a character nor takes too much room") {
  CHECK(ColumnsOf("é漢🚀") == 5);
  CHECK(CutToColumns("abcdef", 6) == "abcdef");
  CHECK(CutToColumns("abcdefg", 6) == "abc...");
  CHECK(CutToColumns("漢漢漢漢", 7) == "漢漢...");
  CHECK(CutToColumns("漢漢漢漢", 6) == "漢...");
  CHECK(CutToColumns("abcd", 3) == "abc");
  CHECK(CutToColumns("abcd", 0).empty());
  CHECK(CutToColumns("abcd", -5).empty());
}

TEST_CASE("status words: a long text is wrapped at spaces, and cut at its last line") {
  CHECK(WrappedLines("", 20, 3) == Lines{""});
  CHECK(WrappedLines("one two three four five six", 14, 3) ==
        Lines{"one two three", "  four five", "  six"});
  CHECK(WrappedLines("one two three four five six", 14, 2) ==
        Lines{"one two three", "  four five..."});
  CHECK(WrappedLines("abcdefghij", 4, 9) == Lines{"abcd", "efgh", "ij"});
  CHECK(WrappedLines("abcdef", 1, 2).size() == 2);
}

}  // namespace
}  // namespace ddprun::launcher
