#include "tools/reference_program/schema.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::reference {
namespace {

const char* TypeOf(const Json& value) {
  if (value.is_number_float()) return "number";
  if (value.is_number()) return "integer";
  return value.type_name();  // as JSON schema calls them
}

// In the order in which they are first seen; an integer is a number, too.
std::vector<std::string> TypesOf(const std::vector<Json>& samples) {
  std::vector<std::string> types;
  for (const Json& sample : samples) {
    if (std::count(types.begin(), types.end(), TypeOf(sample)) == 0) {
      types.emplace_back(TypeOf(sample));
    }
  }
  if (std::count(types.begin(), types.end(), "number") > 0) std::erase(types, "integer");
  return types;
}

absl::Status AddMembers(const std::vector<Json>& samples, const std::string& path, Json& schema) {
  size_t objects = 0;
  std::vector<std::string> names;
  std::map<std::string, std::vector<Json>> values;
  for (const Json& sample : samples) {
    if (!sample.is_object()) continue;
    ++objects;
    for (const auto& [name, value] : sample.items()) {
      if (!values.contains(name)) names.push_back(name);
      values[name].push_back(value);
    }
  }
  Json members = Json::object(), required = Json::array();
  for (const std::string& name : names) {
    absl::StatusOr<Json> member = SchemaOf(values[name], absl::StrCat(path, ".", name));
    if (!member.ok()) return member.status();
    members[name] = *std::move(member);
    if (values[name].size() == objects) required.push_back(name);
  }
  schema["properties"] = std::move(members);
  schema["required"] = std::move(required);
  schema["additionalProperties"] = false;
  return absl::OkStatus();
}

absl::Status AddItems(const std::vector<Json>& samples, const std::string& path, Json& schema) {
  std::vector<Json> items;
  for (const Json& sample : samples) {
    if (sample.is_array()) items.insert(items.end(), sample.begin(), sample.end());
  }
  if (items.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no sample has an item: add one to samples.cc"));
  }
  absl::StatusOr<Json> item = SchemaOf(items, path + "[]");
  if (item.ok()) schema["items"] = *std::move(item);
  return item.status();
}

}  // namespace

absl::StatusOr<Json> SchemaOf(const std::vector<Json>& samples, const std::string& path) {
  const std::vector<std::string> types = TypesOf(samples);
  if (types == std::vector<std::string>{"null"}) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": null in all samples: give it a value in samples.cc"));
  }
  Json schema = {{"type", types.size() == 1 ? Json(types[0]) : Json(types)}};
  absl::Status status;
  if (std::count(types.begin(), types.end(), "object") > 0) {
    status.Update(AddMembers(samples, path, schema));
  }
  if (std::count(types.begin(), types.end(), "array") > 0) {
    status.Update(AddItems(samples, path, schema));
  }
  if (!status.ok()) return status;
  return schema;
}

}  // namespace ddprun::reference
