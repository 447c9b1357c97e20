#include "tests/support/junit.h"

#include <doctest/doctest.h>

#include <string>

using namespace std::string_literals;

namespace ddprun::testing {
namespace {

TEST_CASE("junit: text of XML 1.0 stays, its marks are escaped") {
  CHECK(EscapeXml("a <b> & \"c\" 'd'") == "a &#60;b&#62; &#38; &#34;c&#34; 'd'");
  CHECK(EscapeXml("]]>") == "]]&#62;");
  // As themselves an attribute would read them as spaces.
  CHECK(EscapeXml("1\n2\t3\r") == "1&#10;2&#9;3&#13;");
  CHECK(EscapeXml("\u00e9 \u20ac \U0001f600") == "\u00e9 \u20ac \U0001f600");
  CHECK(EscapeXml("") == "");
}

TEST_CASE("junit: what XML 1.0 cannot hold becomes its code") {
  CHECK(EscapeXml("\0\x1b\x1f\x7f"s) == "\\x00\\x1b\\x1f\x7f");
  // A byte that starts nothing, one that continues nothing, sequences that are cut.
  CHECK(EscapeXml("\xff|\x80|\xc3|\xe2\x82|\xf0\x9f\x98") ==
        "\\xff|\\x80|\\xc3|\\xe2\\x82|\\xf0\\x9f\\x98");
  // Longer than it need be, a surrogate, beyond the last code, not a character.
  CHECK(EscapeXml("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(EscapeXml("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
  CHECK(EscapeXml("\xf0\x80\x80\xaf") == "\\xf0\\x80\\x80\\xaf");
  CHECK(EscapeXml("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(EscapeXml("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(EscapeXml("\xef\xbf\xbf") == "\\xef\\xbf\\xbf");
  CHECK(EscapeXml("\xef\xbf\xbd") == "\xef\xbf\xbd");
}

constexpr char kAllStates[] = R"X(<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5" failures="1" errors="2" skipped="1" time="1.500">
<testsuite name="tests/a_test.cc" tests="5" failures="1" errors="2" skipped="1" time="1.500">
<testcase classname="tests/a_test.cc" name="passes" time="0.250"></testcase>
<testcase classname="tests/a_test.cc" name="is skipped" time="0.000"><skipped message="no &#34;torch&#34;"></skipped></testcase>
<testcase classname="tests/a_test.cc" name="fails" time="1.000"><failure message="a.cc:3: CHECK( a )">a.cc:3: CHECK( a )&#10;more&#10;</failure></testcase>
<testcase classname="tests/a_test.cc" name="runs" time="0.000"><error message="ended by SIGSEGV">x</error></testcase>
<testcase classname="tests/a_test.cc" name="waits" time="0.000"><error message="was not run">ended by SIGSEGV</error></testcase>
</testsuite>
</testsuites>
)X";

TEST_CASE("junit: each state of a case has its element") {
  const FileResult file{
      .file = "tests/a_test.cc",
      .cases = {{.name = "passes", .state = CaseState::kPassed, .seconds = 0.25},
                {.name = "is skipped", .state = CaseState::kPassed, .skip_reason = "no \"torch\""},
                {.name = "fails",
                 .state = CaseState::kFailed,
                 .seconds = 1,
                 .failure = "a.cc:3: CHECK( a )\nmore\n"},
                {.name = "runs", .state = CaseState::kRunning, .failure = "x"},
                {.name = "waits"}},
      .seconds = 1.5,
      .bad_end = "ended by SIGSEGV"};
  CHECK(JUnitXml({file}) == kAllStates);
}

constexpr char kTwoFiles[] = R"X(<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="0" errors="1" skipped="0" time="3.000">
<testsuite name="a.cc" tests="1" failures="0" errors="0" skipped="0" time="1.000">
<testcase classname="a.cc" name="one" time="0.000"></testcase>
</testsuite>
<testsuite name="b.cc" tests="2" failures="0" errors="1" skipped="0" time="2.000">
<testcase classname="b.cc" name="two" time="0.000"></testcase>
<testcase classname="b.cc" name="(outside of the cases)" time="0.000"><error message="exited with status 23 after the last case"></error></testcase>
</testsuite>
</testsuites>
)X";

TEST_CASE("junit: a bad end after the last case is a case of its own; the files are added up") {
  const FileResult good{
      .file = "a.cc", .cases = {{.name = "one", .state = CaseState::kPassed}}, .seconds = 1};
  const FileResult bad{.file = "b.cc",
                       .cases = {{.name = "two", .state = CaseState::kPassed}},
                       .seconds = 2,
                       .bad_end = "exited with status 23 after the last case"};
  CHECK(JUnitXml({good, bad}) == kTwoFiles);
}

}  // namespace
}  // namespace ddprun::testing
