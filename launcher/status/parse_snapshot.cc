// JSON that a stranger may have written, to a snapshot.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"
#include "launcher/status/json_limits.h"
#include "launcher/status/phase_name.h"
#include "launcher/status/snapshot_fields.h"
#include "launcher/status/snapshot_json.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::json;

// A job nests seven deep; a later version may a little more.
constexpr int kMaxDepth = 16;
// A rank has about 25 values, 9 a group and, in smaller jobs, 3 a bucket. nlohmann's take up to
// some 80 bytes each.
constexpr size_t kMaxValues = 4'000'000;

// Before anything is allocated: nesting and number of values, by the punctuation outside strings.
absl::Status CheckShape(std::string_view text) {
  int depth = 0;
  size_t values = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\\') ++i;
      is_in_string = c != '"';
      continue;
    }
    is_in_string = c == '"';
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    values += c == '{' || c == '[' || c == ',' ? 1 : 0;
    if (depth > kMaxDepth) {
      return absl::ResourceExhaustedError(absl::StrCat("nested more than ", kMaxDepth, " deep"));
    }
  }
  if (values > kMaxValues) {
    return absl::ResourceExhaustedError(absl::StrCat(values, " values, at most ", kMaxValues));
  }
  return absl::OkStatus();
}

std::string Shown(const Json& value) {
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_structured()) return value.is_object() ? "an object" : "a list";
  return value.dump();
}

std::string PlainLines(const std::string& text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!out.empty()) out += '\n';
    out += EscapeControl(std::string_view(line.data(), line.size()));
    if (out.size() >= kMaxLinesBytes) break;
  }
  return out.substr(0, CharacterStart(out, kMaxLinesBytes));
}

// Reads one document; the first thing wrong ends it, all later calls do nothing.
class Reader {
 public:
  const absl::Status& status() const { return status_; }

  template <typename T>
  void Object(const Json& from, T& to);

  void Item(const Json& from, bool& to) {
    if (!from.is_boolean()) return Refuse(from, "true or false");
    to = from.get<bool>();
  }
  void Item(const Json& from, int& to) {
    to = static_cast<int>(Whole(from, kLeastInt, std::numeric_limits<int>::max()));
  }
  void Item(const Json& from, int64_t& to) { to = Whole(from, -kMaxWhole, kMaxWhole); }
  void Item(const Json& from, uint64_t& to) {
    to = static_cast<uint64_t>(Whole(from, 0, kMaxWhole));
  }
  void Item(const Json& from, double& to) {
    const double value = from.is_number() ? from.get<double>() : -1;
    if (!(value >= 0 && value <= kMaxNumber)) {
      return Refuse(from, absl::StrCat("a number from 0 to ", kMaxNumber));
    }
    to = value;
  }
  void Item(const Json& from, std::string& to) {
    if (!from.is_string()) return Refuse(from, "a text");
    const std::string& text = from.get_ref<const std::string&>();
    // Cut before, lest megabytes are escaped, and after, as escaping makes longer.
    to = EscapeControl(std::string_view(text).substr(0, CharacterStart(text, kMaxTextBytes)));
    to.resize(CharacterStart(to, kMaxTextBytes));
  }
  void Item(const Json& from, ProgramPhase& to) {
    if (!from.is_string()) return Refuse(from, "a text");
    for (const ProgramPhase phase : {ProgramPhase::kStart, ProgramPhase::kTrain,
                                     ProgramPhase::kEvaluation, ProgramPhase::kCheckpoint}) {
      // One that only a later version knows stays unknown.
      if (from.get_ref<const std::string&>() == PhaseName(phase)) to = phase;
    }
  }
  template <typename T>
  void Item(const Json& from, std::optional<T>& to) {
    if (!from.is_null()) Item(from, to.emplace());
  }
  template <typename T>
  requires std::is_aggregate_v<T>
  void Item(const Json& from, T& to) { Object(from, to); }
  void Item(const Json& from, RankView& to) {
    if (++ranks_ > kMaxRanksOfJob) return TooMany("ranks in the job", ranks_, kMaxRanksOfJob);
    Object(from, to);
  }

  void HexItem(const Json& from, uint64_t& to) {
    if (from.is_string() && from.get_ref<const std::string&>().size() <= 16 &&
        absl::SimpleHexAtoi(from.get_ref<const std::string&>(), &to)) {
      return;
    }
    Refuse(from, "a text of up to 16 hexadecimal digits");
  }
  void LinesItem(const Json& from, std::string& to) {
    if (!from.is_string()) return Refuse(from, "a text");
    to = PlainLines(from.get_ref<const std::string&>());
  }
  template <typename T>
  void ListItem(const Json& from, std::vector<T>& to, size_t max) {
    if (!from.is_array()) return Refuse(from, "a list");
    if (from.size() > max) return TooMany("items", from.size(), max);
    to.reserve(from.size());
    for (const Json& item : from) {
      const size_t before = path_.size();
      absl::StrAppend(&path_, "[", to.size(), "]");
      Item(item, to.emplace_back());
      if (!status_.ok()) return;
      path_.resize(before);
    }
  }

  // Calls `read` with the member; null and a member that is missing are the default value.
  template <typename Read>
  void Member(const Json& object, const char* name, const Read& read) {
    if (!status_.ok()) return;
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return;
    const size_t before = path_.size();
    absl::StrAppend(&path_, path_.empty() ? "" : ".", name);
    read(*found);
    if (status_.ok()) path_.resize(before);
  }

 private:
  int64_t Whole(const Json& from, int64_t least, int64_t most) {
    // is_number_integer() is true of unsigned ones, too, and get<int64_t>() would wrap them.
    const bool fits = from.is_number_unsigned()
                          ? from.get<uint64_t>() <= static_cast<uint64_t>(most)
                          : from.is_number_integer() && from.get<int64_t>() >= least &&
                                from.get<int64_t>() <= most;
    if (fits) return from.get<int64_t>();
    Refuse(from, absl::StrCat("a whole number from ", least, " to ", most));
    return 0;
  }
  void Refuse(const Json& value, absl::string_view expected) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(path_, path_.empty() ? "" : ": ", Shown(value), ", expected ", expected));
  }
  void TooMany(const char* what, size_t count, size_t max) {
    if (!status_.ok()) return;
    status_ = absl::ResourceExhaustedError(
        absl::StrCat(path_, ": ", count, " ", what, ", at most ", max));
  }

  absl::Status status_;
  std::string path_;  // "nodes[1].ranks[3].step_s"
  size_t ranks_ = 0;
};

template <typename T>
struct MemberReader {
  Reader& reader;
  const Json& from;
  T& to;

  template <typename Value>
  void operator()(const char* name, Value T::*member) {
    reader.Member(from, name, [&](const Json& value) { reader.Item(value, to.*member); });
  }
  void Hex(const char* name, uint64_t T::*member) {
    reader.Member(from, name, [&](const Json& value) { reader.HexItem(value, to.*member); });
  }
  void Lines(const char* name, std::string T::*member) {
    reader.Member(from, name, [&](const Json& value) { reader.LinesItem(value, to.*member); });
  }
  template <typename Item>
  void List(const char* name, std::vector<Item> T::*member, size_t max) {
    reader.Member(from, name, [&](const Json& value) { reader.ListItem(value, to.*member, max); });
  }
};

template <typename T>
void Reader::Object(const Json& from, T& to) {
  if (!from.is_object()) return Refuse(from, "an object");
  MemberReader<T> members{*this, from, to};
  VisitMembers<T>(members);
}

template <typename T>
absl::StatusOr<T> Parse(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(text.size(), " bytes, at most ", max_bytes));
  }
  if (absl::Status shape = CheckShape(text); !shape.ok()) return shape;
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return absl::InvalidArgumentError("no valid JSON");
  Reader reader;
  int version = 0;
  if (document.is_object()) {
    reader.Member(document, "version", [&](const Json& value) { reader.Item(value, version); });
  }
  T out;
  reader.Object(document, out);
  if (!reader.status().ok()) return reader.status();
  if (version != kSchemaVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("version ", version, " of the schema, expected ", kSchemaVersion));
  }
  return out;
}

absl::Status Named(const char* what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace

absl::StatusOr<NodeView> ParseNodeJson(std::string_view text) {
  absl::StatusOr<NodeView> node = Parse<NodeView>(text, kMaxNodeJsonBytes);
  if (!node.ok()) return Named("status of a node", node.status());
  return node;
}

absl::StatusOr<JobView> ParseJobJson(std::string_view text) {
  absl::StatusOr<JobView> job = Parse<JobView>(text, kMaxJobJsonBytes);
  if (!job.ok()) return Named("status of a job", job.status());
  return job;
}

}  // namespace ddprun::launcher
