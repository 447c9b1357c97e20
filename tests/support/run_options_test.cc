#include "tests/support/run_options.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

namespace ddprun::testing {
namespace {

using Variables = std::map<std::string, std::string>;

Environment From(Variables variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

RunOptions Read(Variables variables) {
  RunOptions options;
  std::string error;
  CHECK(ReadRunOptions(From(std::move(variables)), &options, &error));
  CHECK(error == "");
  return options;
}

std::string Error(Variables variables) {
  RunOptions options;
  std::string error;
  CHECK_FALSE(ReadRunOptions(From(std::move(variables)), &options, &error));
  return error;
}

TEST_CASE("run_options: an empty environment asks for nothing") {
  const RunOptions options = Read({});
  CHECK(options.file_limit.count() == 120);
  CHECK_FALSE(options.is_streaming);
  CHECK(options.shards == 1);
  CHECK(options.shard == 0);
  CHECK(options.filter == "");
  CHECK(options.xml_file == "");
}

TEST_CASE("run_options: the limit is the product of two numbers") {
  CHECK(Read({{"DDPRUN_TEST_FILE_LIMIT_S", "7.5"}}).file_limit.count() == 7.5);
  CHECK(Read({{"DDPRUN_TEST_TIME_FACTOR", "4"}}).file_limit.count() == 480);
  // Our longest limit with our greatest factor.
  CHECK(Read({{"DDPRUN_TEST_FILE_LIMIT_S", "900"}, {"DDPRUN_TEST_TIME_FACTOR", "100"}})
            .file_limit.count() == 90'000);
  CHECK(Read({{"DDPRUN_TEST_FILE_LIMIT_S", "3"}, {"DDPRUN_TEST_TIME_FACTOR", "2"}})
            .file_limit.count() == 6);
}

TEST_CASE("run_options: what is no positive number is refused by name") {
  for (const char* name : {"DDPRUN_TEST_FILE_LIMIT_S", "DDPRUN_TEST_TIME_FACTOR"}) {
    for (const char* value : {"0", "-1", "inf", "nan", "2s", "two", " "}) {
      CHECK(Error({{name, value}}) ==
            std::string(name) + "=\"" + value + "\": not a positive number");
    }
  }
  CHECK(Error({{"DDPRUN_TEST_FILE_LIMIT_S", "1e300"}, {"DDPRUN_TEST_TIME_FACTOR", "1e300"}}) ==
        "DDPRUN_TEST_FILE_LIMIT_S times DDPRUN_TEST_TIME_FACTOR: more than 1000000 s");
}

TEST_CASE("run_options: Bazel's variables") {
  const RunOptions options = Read({{"TEST_TOTAL_SHARDS", "3"},
                                   {"TEST_SHARD_INDEX", "2"},
                                   {"TEST_SHARD_STATUS_FILE", "/status"},
                                   {"TESTBRIDGE_TEST_ONLY", "agent: *"},
                                   {"XML_OUTPUT_FILE", "/test.xml"},
                                   {"DDPRUN_TEST_STREAM", "1"}});
  CHECK(options.shards == 3);
  CHECK(options.shard == 2);
  CHECK(options.shard_status_file == "/status");
  CHECK(options.filter == "agent: *");
  CHECK(options.xml_file == "/test.xml");
  CHECK(options.is_streaming);
  CHECK(Read({{"TEST_TOTAL_SHARDS", "0"}, {"TEST_SHARD_INDEX", "0"}}).shards == 1);
}

TEST_CASE("run_options: a shard that is none of them is refused") {
  CHECK(Error({{"TEST_TOTAL_SHARDS", "2"}, {"TEST_SHARD_INDEX", "2"}}) ==
        "TEST_SHARD_INDEX=\"2\": not a number below 2");
  CHECK(Error({{"TEST_SHARD_INDEX", "-1"}}) == "TEST_SHARD_INDEX=\"-1\": not a number below 1");
  CHECK(Error({{"TEST_TOTAL_SHARDS", "2x"}}).find("TEST_TOTAL_SHARDS=\"2x\"") == 0);
}

}  // namespace
}  // namespace ddprun::testing
