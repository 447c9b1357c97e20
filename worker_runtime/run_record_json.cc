#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ddp/run_record.h"
#include "rendezvous/base/plain_text.h"

namespace ddp {
namespace {

std::string Text(absl::string_view text) {
  std::string out = "\"";
  for (const char c : ddprun::EscapeControl(std::string(text))) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string TextOrNull(absl::string_view text) { return text.empty() ? "null" : Text(text); }

std::string Object(const RunRecord::Pairs& pairs) {
  return absl::StrCat("{",
                      absl::StrJoin(pairs, ", ",
                                    [](std::string* out, const auto& pair) {
                                      absl::StrAppend(out, Text(pair.first), ": ",
                                                      TextOrNull(pair.second));
                                    }),
                      "}");
}

std::string Array(const std::vector<std::string>& texts) {
  return absl::StrCat("[",
                      absl::StrJoin(texts, ", ",
                                    [](std::string* out, const std::string& text) {
                                      absl::StrAppend(out, Text(text));
                                    }),
                      "]");
}

std::string Files(const std::vector<DataFile>& files) {
  const auto one = [](std::string* out, const DataFile& file) {
    absl::StrAppend(out, "{\"path\": ", Text(file.path), ", \"bytes\": ", file.bytes,
                    ", \"xxh3\": ", TextOrNull(file.xxh3), "}");
  };
  return absl::StrCat("[", absl::StrJoin(files, ", ", one), "]");
}

const char* Name(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::kRunning:
      return "running";
    case RunOutcome::kOk:
      return "ok";
    case RunOutcome::kStopped:
      return "stopped";
    case RunOutcome::kFailed:
      return "failed";
  }
  return "";
}

}  // namespace

std::string ToJson(const RunRecord& record) {
  const std::pair<const char*, std::string> lines[] = {
      {"outcome", Text(Name(record.outcome))},
      {"error", TextOrNull(record.error)},
      {"started_at", TextOrNull(record.started_at)},
      {"ended_at", TextOrNull(record.ended_at)},
      {"versions", Object(record.versions)},
      {"host", TextOrNull(record.host)},
      {"cpu", TextOrNull(record.cpu)},
      {"cpus", absl::StrCat(record.cpus)},
      {"device", TextOrNull(record.device)},
      {"backend", TextOrNull(record.backend)},
      {"why", TextOrNull(record.why)},
      {"world_size", absl::StrCat(record.world_size)},
      {"local_world_size", absl::StrCat(record.local_world_size)},
      {"restart_count", absl::StrCat(record.restart_count)},
      {"data", Files(record.data)},
      {"arguments", Array(record.arguments)},
      {"environment", Object(record.environment)},
  };
  const auto line = [](std::string* out, const auto& name_and_value) {
    absl::StrAppend(out, "  \"", name_and_value.first, "\": ", name_and_value.second);
  };
  return absl::StrCat("{\n", absl::StrJoin(lines, ",\n", line), "\n}\n");
}

}  // namespace ddp
