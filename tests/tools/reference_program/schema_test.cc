#include "tools/reference_program/schema.h"

#include <doctest/doctest.h>

#include "tests/support/contains.h"

namespace ddprun::reference {
namespace {

TEST_CASE("schema: members that a sample lacks are not required and others are not allowed") {
  const auto schema = SchemaOf({Json{{"a", 1}, {"b", "x"}}, Json{{"a", nullptr}}});
  REQUIRE(schema.ok());
  CHECK((*schema)["type"] == "object");
  CHECK((*schema)["properties"]["a"]["type"] == Json{"integer", "null"});
  CHECK((*schema)["properties"]["b"]["type"] == "string");
  CHECK((*schema)["required"] == Json{"a"});
  CHECK((*schema)["additionalProperties"] == false);
}

TEST_CASE("schema: a whole number is a number if another sample has a fraction") {
  CHECK((*SchemaOf({1, 0.5}))["type"] == "number");
  CHECK((*SchemaOf({1, 2}))["type"] == "integer");
  CHECK((*SchemaOf({Json{true}, Json::array()}))["items"]["type"] == "boolean");
}

TEST_CASE("schema: what no sample has a value or an item for is named") {
  const auto of_null = SchemaOf({Json{{"a", {{"b", nullptr}}}}});
  CHECK(of_null.status().message() == Contains("$.a.b: null in all samples"));
  const auto of_list = SchemaOf({Json{{"a", Json::array()}}});
  CHECK(of_list.status().message() == Contains("$.a: no sample has an item"));
}

}  // namespace
}  // namespace ddprun::reference
