#include "tools/reference_program/pages.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/reference_program/samples.h"
#include "tools/reference_program/schema.h"
#include "tools/reference_program/tables.h"

namespace ddprun::reference {
namespace {

constexpr char kBegin[] = "<!-- generated: ";
constexpr char kEnd[] = "<!-- end -->";

// Each event has members of its own: the name says which.
absl::StatusOr<Json> SchemaOfDocument(const Document& document) {
  if (document.name != "event") return SchemaOf(document.samples);
  std::vector<std::pair<std::string, std::vector<Json>>> events;
  for (const Json& sample : document.samples) {
    const auto name = sample.at("event").get<std::string>();
    const auto found = std::find_if(events.begin(), events.end(),
                                    [&](const auto& event) { return event.first == name; });
    if (found == events.end()) {
      events.push_back({name, {sample}});
    } else {
      found->second.push_back(sample);
    }
  }
  Json any = Json::array();
  for (const auto& [name, samples] : events) {
    absl::StatusOr<Json> schema = SchemaOf(samples, name);
    if (!schema.ok()) return schema.status();
    (*schema)["properties"]["event"] = {{"const", name}};
    any.push_back(*std::move(schema));
  }
  return Json{{"anyOf", std::move(any)}};
}

std::string SchemaPath(const Document& document) {
  return absl::StrCat("docs/reference/schemas/", document.name, ".schema.json");
}

absl::StatusOr<std::string> SchemaText(const Document& document) {
  const absl::StatusOr<Json> schema = SchemaOfDocument(document);
  if (!schema.ok()) return schema.status();
  Json all = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", document.title}};
  all.update(*schema);
  return all.dump(1) + "\n";
}

}  // namespace

std::vector<std::string> GeneratedFiles() {
  std::vector<std::string> paths;
  for (const Block& block : Blocks()) {
    if (paths.empty() || paths.back() != block.page) paths.push_back(block.page);
  }
  for (const Document& document : Documents()) paths.push_back(SchemaPath(document));
  return paths;
}

absl::StatusOr<std::string> UpToDate(const std::string& path, const std::string& text) {
  for (const Document& document : Documents()) {
    if (path == SchemaPath(document)) return SchemaText(document);
  }
  std::string out;
  size_t at = 0, used = 0;
  const std::vector<Block> blocks = Blocks();
  for (size_t begin = 0; (begin = text.find(kBegin, at)) != std::string::npos;) {
    const size_t name_at = begin + sizeof(kBegin) - 1;
    const size_t name_end = text.find(" -->", name_at), end = text.find(kEnd, name_at);
    if (end == std::string::npos || name_end > end) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": '", text.substr(begin, 40),
                                                     "': expected ' -->' and then '", kEnd, "'"));
    }
    const std::string name = text.substr(name_at, name_end - name_at);
    const auto block = std::find_if(blocks.begin(), blocks.end(), [&](const Block& each) {
      return each.page == path && each.name == name;
    });
    if (block == blocks.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": no table is called '", name, "': take the mark away"));
    }
    ++used;
    absl::StrAppend(&out, text.substr(at, name_end - at), " -->\n\n", block->text, "\n");
    at = end;
  }
  const auto expected = static_cast<size_t>(std::count_if(
      blocks.begin(), blocks.end(), [&](const Block& each) { return each.page == path; }));
  if (used == expected) return out + text.substr(at);
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", used, " marks '", kBegin, "...', expected ", expected, ", one for each table"));
}

}  // namespace ddprun::reference
