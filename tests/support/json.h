// JSON that a test reads back.
#ifndef DDPRUN_TESTS_SUPPORT_JSON_H_
#define DDPRUN_TESTS_SUPPORT_JSON_H_

#include <optional>
#include <string>

#include <boost/property_tree/ptree.hpp>

namespace ddprun::testing {

// Elements of an array are children without a name; numbers are read as get<int>("rank").
using Json = boost::property_tree::ptree;

// Nothing if `text` is not JSON, from its first to its last byte.
std::optional<Json> ParseJson(const std::string& text);
// A copy of element `index` of the array `name`. REQUIRES: it is there.
Json ElementOf(const Json& json, const std::string& name, size_t index);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_JSON_H_
