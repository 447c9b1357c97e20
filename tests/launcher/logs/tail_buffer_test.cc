#include "launcher/logs/tail_buffer.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::launcher {
namespace {

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

}  // namespace
}  // namespace ddprun::launcher
