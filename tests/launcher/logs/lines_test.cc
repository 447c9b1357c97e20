#include "launcher/logs/lines.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

// Lines as text, a cut piece with '>' behind it.
std::vector<std::string> Split(const std::vector<std::string_view>& chunks) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto take = [&](const LineSplitter::Line& line) {
    lines.push_back(std::string(line.text) + (line.is_cut ? ">" : ""));
  };
  for (const std::string_view chunk : chunks) splitter.Push(chunk, take);
  splitter.Finish(take);
  return lines;
}

using Lines = std::vector<std::string>;

TEST_CASE("line splitter: lines end at newline, carriage return, or both") {
  CHECK(Split({}) == Lines{});
  CHECK(Split({""}) == Lines{});
  CHECK(Split({"a\nb\n"}) == Lines{"a", "b"});
  CHECK(Split({"a\n\n\nb"}) == Lines{"a", "", "", "b"});
  CHECK(Split({"a\r\nb\r\n\r\n"}) == Lines{"a", "b"});
  CHECK(Split({"\r 10%\r 20%\r\ndone"}) == Lines{" 10%", " 20%", "done"});
  CHECK(Split({std::string_view("a\0b\xff\n", 5)}) == Lines{std::string("a\0b\xff", 4)});
}

TEST_CASE("line splitter: a line of just the limit is whole, a longer one comes in marked pieces") {
  const std::string full(LineSplitter::kMaxLine, 'x');
  CHECK(Split({full + "\n"}) == Lines{full});
  CHECK(Split({full}) == Lines{full});
  CHECK(Split({full, "\n", "y\n"}) == Lines{full, "y"});
  CHECK(Split({full + "yz\n"}) == Lines{full + ">", "yz"});
  CHECK(Split({full, "y", "z\nend"}) == Lines{full + ">", "yz", "end"});
  CHECK(Split({full + full + "\n"}) == Lines{full + ">", full});
}

TEST_CASE("line splitter: megabytes without a newline are passed on piece by piece") {
  LineSplitter splitter;
  size_t pieces = 0;
  size_t bytes = 0;
  const std::string chunk(10000, 'x');
  for (int i = 0; i < 400; ++i) {
    splitter.Push(chunk, [&](const LineSplitter::Line& line) {
      CHECK(line.is_cut);
      CHECK(line.text.size() == LineSplitter::kMaxLine);
      ++pieces;
      bytes += line.text.size();
    });
  }
  splitter.Finish([&](const LineSplitter::Line& line) { bytes += line.text.size(); });
  CHECK(pieces == 4000000 / LineSplitter::kMaxLine);
  CHECK(bytes == 4000000);
}

TEST_CASE("line splitter: the lines do not depend on how the bytes were divided") {
  std::string text;
  uint32_t random = 12345;
  const auto next = [&random] { return random = random * 1664525 + 1013904223; };
  for (int i = 0; i < 3000; ++i) text += "ab\n\r"[next() >> 30];
  text += std::string(LineSplitter::kMaxLine + 1, 'z') + "\r\n";
  const Lines whole = Split({text});

  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::string_view> chunks;
    const size_t largest = trial % 2 == 0 ? 3 : 40000;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min(text.size() - at, size_t{next() >> 8} % largest + 1);
      chunks.push_back(std::string_view(text).substr(at, length));
      at += length;
    }
    CAPTURE(trial);
    REQUIRE(Split(chunks) == whole);
  }
}

constexpr TimePoint At(int ms) { return TimePoint(std::chrono::milliseconds(ms)); }

// A stream whose unfinished line is shown when it is due.
struct Shown {
  void Push(int ms, std::string_view bytes) {
    splitter.Push(bytes, [&](const LineSplitter::Line& line) {
      lines.push_back(std::to_string(line.shown) + " " + std::string(line.text));
    });
    show_at = splitter.ShowAt(At(ms));
  }
  std::string Show(int ms) {
    std::string text(splitter.Unfinished());
    splitter.MarkShown(text.size());
    show_at = splitter.ShowAt(At(ms));
    return text;
  }
  LineSplitter splitter;
  Lines lines;
  TimePoint show_at = TimePoint::max();
};

TEST_CASE("line splitter: lines that come whole are never due") {
  Shown stream;
  for (const char* bytes : {"a\n", "b\r", "\nc\n\n", ""}) {
    stream.Push(0, bytes);
    CHECK(stream.show_at == TimePoint::max());
  }
}

TEST_CASE("line splitter: an unfinished line is due once it stands, however it grows") {
  Shown stream;
  stream.Push(10, "whole\nna");
  CHECK(stream.show_at == At(60));
  stream.Push(40, "me? ");
  CHECK(stream.show_at == At(60));
  CHECK(stream.Show(60) == "name? ");
  CHECK(stream.show_at == TimePoint::max());
  stream.Push(900, ".");
  CHECK(stream.show_at == At(950));
  stream.Push(920, "\n");  // the end came first
  CHECK(stream.show_at == TimePoint::max());
  stream.Push(930, "next\n");
  CHECK(stream.lines == Lines{"0 whole", "6 name? .", "0 next"});
}

TEST_CASE("line splitter: what found no room is due again after another while") {
  Shown stream;
  stream.Push(0, "a");
  stream.splitter.MarkShown(0);
  CHECK(stream.splitter.ShowAt(At(50)) == At(100));
  CHECK(stream.Show(100) == "a");
}

TEST_CASE("line splitter: a character is shown whole") {
  Shown stream;
  const std::string euro = "\xe2\x82\xac", smile = "\xf0\x9f\x98\x80";
  stream.Push(0, "5 " + euro.substr(0, 2));
  CHECK(stream.Show(50) == "5 ");
  CHECK(stream.show_at == TimePoint::max());
  stream.Push(60, euro.substr(2) + smile.substr(0, 3));
  CHECK(stream.Show(110) == euro);
  stream.Push(120, smile.substr(3) + "\xe9");  // another encoding's may be a beginning
  CHECK(stream.Show(170) == smile);
  stream.Push(180, "t\x80\x80\x80\x80");  // no text: passed on
  CHECK(stream.Show(230) == "\xe9t\x80\x80\x80\x80");
}

TEST_CASE("line splitter: a piece of a long line counts what was shown of it") {
  Shown stream;
  const std::string full(LineSplitter::kMaxLine, 'x');
  stream.Push(0, full);
  CHECK(stream.Show(50) == full);
  stream.Push(60, "y");
  CHECK(stream.lines == Lines{std::to_string(full.size()) + " " + full});
  CHECK(stream.Show(110) == "y");
}

std::string Tail(const std::string& text, size_t lines) {
  TailBuffer tail;
  tail.Append(text);
  return tail.LastLines(lines);
}

TEST_CASE("tail buffer: the last lines, finished or not") {
  CHECK(Tail("", 3) == "");
  CHECK(Tail("a\nb\nc\n", 2) == "b\nc\n");
  CHECK(Tail("a\nb\nc", 2) == "b\nc");
  CHECK(Tail("a\nb\n", 9) == "a\nb\n");
  CHECK(Tail("\n\n\n", 2) == "\n\n");
  CHECK(Tail("\na", 2) == "\na");
  CHECK(Tail("a\nb", 1) == "b");
  CHECK(Tail("a\nb", 0) == "");
}

TEST_CASE("tail buffer: of a long stream the last 64 KiB are kept, however they came") {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "line " + std::to_string(i) + "\n";
  const std::string expected = text.substr(text.size() - TailBuffer::kMaxBytes);
  for (const size_t chunk : {size_t{1}, size_t{777}, size_t{65535}, size_t{65536}, text.size()}) {
    TailBuffer tail;
    for (size_t at = 0; at < text.size(); at += chunk) {
      tail.Append(std::string_view(text).substr(at, chunk));
    }
    CAPTURE(chunk);
    CHECK(tail.LastLines(1000000) == expected);
    CHECK(tail.LastLines(2) == "line 99998\nline 99999\n");
  }
}

// What is taken of these lines.
std::string Taken(std::vector<std::string> texts, const std::vector<std::string>& lines) {
  LineFilter filter(std::move(texts));
  for (const std::string& line : lines) filter.Take("apple ", line, " a,b");
  return filter.Release();
}

TEST_CASE("line filter: a line is taken when it holds any of the texts, with what is around it") {
  CHECK(Taken({"apple", "a,b"}, {"Apple", "apple", "appl", "an apple a day", "", "x a,b"}) ==
        "apple apple a,b\napple an apple a day a,b\napple x a,b a,b\n");
}

TEST_CASE("line filter: bytes are compared, whatever they are") {
  const std::string zero("a\0\xff", 3);
  CHECK(Taken({zero.substr(1), "\xc3\xa4"}, {zero, zero.substr(0, 2), "\xff\xc3\xa4"}) ==
        "apple " + zero + " a,b\napple \xff\xc3\xa4 a,b\n");
}

TEST_CASE("line filter: without texts no line matches, an empty text is in every line") {
  CHECK(Taken({}, {"x", ""}) == "");
  CHECK(Taken({""}, {"x", ""}) == "apple x a,b\napple  a,b\n");
}

}  // namespace
}  // namespace ddprun::launcher
