#include "tests/support/junit.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace ddprun::testing {
namespace {

struct Tally {
  int tests = 0;
  int failures = 0;
  int errors = 0;
  int skipped = 0;
  double seconds = 0;
};

Tally& operator+=(Tally& sum, const Tally& other) {
  sum.tests += other.tests;
  sum.failures += other.failures;
  sum.errors += other.errors;
  sum.skipped += other.skipped;
  sum.seconds += other.seconds;
  return sum;
}

// Length of the UTF-8 sequence that `text` starts with, if it is a character of XML 1.0; else 0.
size_t XmlCharacter(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<unsigned char>(text[i]); };
  const uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r';
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  uint32_t code = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < smallest[length] || code > 0x10FFFF || is_surrogate) return 0;
  return code == 0xFFFE || code == 0xFFFF ? 0 : length;
}

std::string Seconds(double seconds) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return text;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string Element(const char* name, const std::string& message, const std::string& text) {
  return std::string("<") + name + " message=\"" + EscapeXml(message) + "\">" + EscapeXml(text) +
         "</" + name + ">";
}

std::string TestCase(const FileResult& file, const CaseResult& result, const std::string& inside) {
  return "<testcase classname=\"" + EscapeXml(file.file) + "\" name=\"" + EscapeXml(result.name) +
         "\" time=\"" + Seconds(result.seconds) + "\">" + inside + "</testcase>\n";
}

std::string CaseXml(const FileResult& file, const CaseResult& result, Tally* tally) {
  ++tally->tests;
  switch (result.state) {
    case CaseState::kPassed:
      if (!result.skip_reason) return TestCase(file, result, "");
      ++tally->skipped;
      return TestCase(file, result, Element("skipped", *result.skip_reason, ""));
    case CaseState::kFailed:
      ++tally->failures;
      return TestCase(file, result, Element("failure", FirstLine(result.failure), result.failure));
    case CaseState::kRunning:
      ++tally->errors;
      return TestCase(file, result, Element("error", file.bad_end, result.failure));
    case CaseState::kNotRun:
      ++tally->errors;
      return TestCase(file, result, Element("error", "was not run", file.bad_end));
  }
  return "";
}

std::string Attributes(const Tally& tally) {
  return " tests=\"" + std::to_string(tally.tests) + "\" failures=\"" +
         std::to_string(tally.failures) + "\" errors=\"" + std::to_string(tally.errors) +
         "\" skipped=\"" + std::to_string(tally.skipped) + "\" time=\"" + Seconds(tally.seconds) +
         "\">\n";
}

}  // namespace

std::string JUnitXml(const std::vector<FileResult>& results) {
  Tally sum;
  std::string suites;
  for (const FileResult& file : results) {
    Tally tally{.seconds = file.seconds};
    std::string cases;
    for (const CaseResult& result : file.cases) cases += CaseXml(file, result, &tally);
    if (HasBadEndOutsideCases(file)) {
      ++tally.tests;
      ++tally.errors;
      cases +=
          TestCase(file, {.name = "(outside of the cases)"}, Element("error", file.bad_end, ""));
    }
    suites += "<testsuite name=\"" + EscapeXml(file.file) + "\"" + Attributes(tally) + cases +
              "</testsuite>\n";
    sum += tally;
  }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites" + Attributes(sum) + suites +
         "</testsuites>\n";
}

std::string EscapeXml(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t length = XmlCharacter(text);
    const char c = text[0];
    if (length == 0) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      escaped += code;
    } else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\n' || c == '\t' ||
               c == '\r') {
      escaped += "&#" + std::to_string(static_cast<int>(c)) + ";";
    } else {
      escaped += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return escaped;
}

}  // namespace ddprun::testing
