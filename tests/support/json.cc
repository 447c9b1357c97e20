#include "tests/support/json.h"

#include <iterator>
#include <sstream>

#include <boost/property_tree/json_parser.hpp>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

std::optional<Json> ParseJson(const std::string& text) {
  std::istringstream stream(text);
  Json json;
  try {
    boost::property_tree::read_json(stream, json);
  } catch (const boost::property_tree::json_parser_error&) {
    return std::nullopt;
  }
  return json;
}

Json ElementOf(const Json& json, const std::string& name, size_t index) {
  const auto array = json.get_child_optional(name);
  DDP_CHECK(array.has_value() && index < array->size());
  return std::next(array->begin(), static_cast<std::ptrdiff_t>(index))->second;
}

}  // namespace ddprun::testing
