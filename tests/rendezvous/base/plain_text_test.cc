#include "rendezvous/base/plain_text.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun {
namespace {

TEST_CASE("plain text: control characters and broken UTF-8 are escaped, all else stays") {
  CHECK(EscapeControl("a\tb \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "a\tb \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(EscapeControl(std::string_view("\0\n\r\x1b\x7f", 5)) == "\\x00\\n\\r\\x1b\\x7f");
  CHECK(EscapeControl("\xc2\x9b") == "\\xc2\\x9b");  // C1: CSI in one character
  CHECK(EscapeControl("\xff\xc3") == "\\xff\\xc3");  // no lead byte; cut short
  CHECK(EscapeControl("\xc0\x8a") == "\\xc0\\x8a");  // overlong newline
  CHECK(EscapeControl("\xe0\x80\x8a") == "\\xe0\\x80\\x8a");
  CHECK(EscapeControl("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // surrogate
  CHECK(EscapeControl("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

TEST_CASE("plain text: what was escaped once stays as it is") {
  const std::string once = EscapeControl("\x1b[31m \\ \n \xff");
  CHECK(EscapeControl(once) == once);
}

TEST_CASE("plain text: for readers without escapes the same bytes become U+FFFD, one each") {
  CHECK(ReplaceControl("a\tb \xc3\xa9") == "a\tb \xc3\xa9");
  CHECK(ReplaceControl("a\n\xff\xc3") == "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("plain text: a text is cut between characters") {
  const std::string text = "a\xc3\xa9\xf0\x9f\x98\x80z";  // 1, 2, 4 and 1 bytes
  CHECK(CharacterStart(text, 0) == 0);
  CHECK(CharacterStart(text, 1) == 1);
  CHECK(CharacterStart(text, 2) == 1);
  CHECK(CharacterStart(text, 3) == 3);
  CHECK(CharacterStart(text, 6) == 3);
  CHECK(CharacterStart(text, 7) == 7);
  CHECK(CharacterStart(text, 99) == 8);
  CHECK(CharacterStart("", 5) == 0);
  CHECK(CharacterStart("\x80\x80\x80\x80\x80\x80", 5) == 5);  // no text
}

}  // namespace
}  // namespace ddprun
