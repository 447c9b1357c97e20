#include "tools/gpu_check_program/report.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun::gpu_check {
namespace {

// Programs under test may print anything; what is no ASCII becomes a question mark.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", std::string(1, static_cast<char>(c)));
    } else if (c < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      out += c < 0x7f ? static_cast<char>(c) : '?';
    }
  }
  return out + '"';
}

// JSON has no infinity.
std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}

std::string ToJson(const Row& row) {
  std::string values;
  for (const auto& [name, value] : row.result.values) {
    absl::StrAppend(&values, values.empty() ? "" : ", ", Quoted(name), ": ", Number(value));
  }
  return absl::StrCat(
      "    {\"name\": ", Quoted(row.name), ", \"verdict\": ", Quoted(Name(row.result.verdict)),
      ", \"seconds\": ", Number(row.seconds), ",\n     \"text\": ", Quoted(row.result.text),
      ",\n     \"values\": {", values, "},\n     \"log\": ", Quoted(row.result.log), "}");
}

}  // namespace

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kMissed:
      return "missed";
    case Verdict::kNotRun:
      return "not run";
    case Verdict::kFailed:
      return "FAILED";
  }
  return "?";
}

std::string Line(const Row& row) {
  return absl::StrFormat("%-20s %-8s %s", row.name, Name(row.result.verdict), row.result.text);
}

std::string ToJson(const std::map<std::string, std::string>& machine, const std::vector<Row>& rows,
                   int exit_code) {
  std::string facts, list;
  for (const auto& [name, text] : machine) {
    absl::StrAppend(&facts, facts.empty() ? "" : ", ", Quoted(name), ": ", Quoted(text));
  }
  for (const Row& row : rows) absl::StrAppend(&list, list.empty() ? "" : ",\n", ToJson(row));
  return absl::StrCat("{\n  \"exit_code\": ", exit_code, ",\n  \"machine\": {", facts,
                      "},\n  \"rows\": [\n", list, "\n  ]\n}\n");
}

}  // namespace ddprun::gpu_check
