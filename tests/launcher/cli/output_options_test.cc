#include "launcher/cli/option_values.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using Texts = std::vector<std::string>;

TEST_CASE("output options: local ranks by comma, of any number of digits") {
  CHECK(ParseLocalRanks("")->empty());
  CHECK(*ParseLocalRanks("0") == std::set<int>{0});
  CHECK(*ParseLocalRanks("12,0, 3 ,12") == std::set<int>{0, 3, 12});
  CHECK(*ParseLocalRanks("4095") == std::set<int>{4095});
}

TEST_CASE("output options: what is no list of local ranks is refused, saying what is") {
  for (const std::string text : {"a", "0,", ",0", "0,,1", "-1", "0;1", "1.0", "4096",
                                 "99999999999999999999", "0 1", " ", "0x1", "+1"}) {
    CAPTURE(text);
    const auto ranks = ParseLocalRanks(text);
    REQUIRE_FALSE(ranks.ok());
    CHECK(ranks.status().message() ==
          "expected local ranks from 0 to 4095 separated by commas, as in 0,1,12");
  }
}

TEST_CASE("output options: filters by comma, two commas are one in a text") {
  CHECK(ParseLineFilters("")->empty());
  CHECK(*ParseLineFilters("apple") == Texts{"apple"});
  CHECK(*ParseLineFilters("apple,two words") == Texts{"apple", "two words"});
  CHECK(*ParseLineFilters("a,,b") == Texts{"a,b"});
  CHECK(*ParseLineFilters(",,") == Texts{","});
  CHECK(*ParseLineFilters("a,,,b") == Texts{"a,", "b"});  // from the left, as torchrun has it
  CHECK(*ParseLineFilters(",,,,") == Texts{",,"});
}

TEST_CASE("output options: an empty filter beside others is refused") {
  for (const std::string text : {",", "a,", ",a", ",,,", "a,b,"}) {
    CAPTURE(text);
    const auto filters = ParseLineFilters(text);
    REQUIRE_FALSE(filters.ok());
    CHECK(filters.status().message() == Contains(",, for a comma"));
  }
}

LaunchConfig Workers(int count) {
  LaunchConfig config;
  config.workers_per_node = count;
  return config;
}

TEST_CASE("output options: nothing is said of what can happen") {
  LaunchConfig config = Workers(16);
  CHECK(OutputWarnings(config).empty());
  config.redirects.by_local_rank[15] = {.out = true};
  config.tee.by_local_rank[12] = {.out = true, .err = true};
  config.console_ranks = {0, 12};
  config.stdout_filters = config.stderr_filters = {"x"};
  const Texts warnings = OutputWarnings(config);
  CHECK(warnings == Texts{});
}

TEST_CASE("output options: a name that the line prefix does not know is told") {
  const auto warnings = [](const std::string& text) {
    LaunchConfig config;
    config.log_line_prefix_template = text;
    return OutputWarnings(config);
  };
  CHECK(warnings("[${role_name}${rank}/$local_rank@${hostname}] $$ ").empty());
  CHECK(warnings("${rnk}: ") ==
        Texts{"--log-line-prefix-template: '${rnk}' stays as it is: none of ${role_name}, ${rank}, "
              "${local_rank}, ${hostname}"});
}

TEST_CASE("output options: local ranks that are not on this node are named, a few of them") {
  LaunchConfig config = Workers(2);
  config.redirects.by_local_rank = {{0, {}}, {2, {}}, {12, {}}};
  for (int rank = 0; rank < 20; ++rank) config.tee.by_local_rank[rank] = {};
  config.console_ranks = {7};
  CHECK(OutputWarnings(config) ==
        Texts{"--redirects: no worker here has local rank 2, 12; they are 0 to 1",
              "--tee: no worker here has local rank 2, 3, 4, 5, 6, 7, 8, 9, ...; they are 0 to 1",
              "--local-ranks-filter: no worker here has local rank 7; they are 0 to 1"});
  config = Workers(1);
  config.console_ranks = {1};
  CHECK(OutputWarnings(config) ==
        Texts{"--local-ranks-filter: no worker here has local rank 1; the only one is 0"});
}

TEST_CASE("output options: filters that no line reaches are warned of") {
  LaunchConfig config = Workers(2);
  config.stdout_filters = {"x"};
  config.tee.everyone = {.out = false, .err = true};
  const std::string why = " copies nothing: only lines that --tee shows on the console are copied";
  CHECK(OutputWarnings(config) ==
        Texts{"--duplicate-stdout-filters" + why + ", and it shows no stdout"});
  config.tee.everyone.out = true;
  CHECK(OutputWarnings(config).empty());
  config.tee.everyone = {};
  config.tee.by_local_rank[1] = {.out = true};
  config.console_ranks = {0};
  config.stderr_filters = {"y"};
  CHECK(OutputWarnings(config) ==
        Texts{"--duplicate-stdout-filters" + why + ", and it shows no stdout",
              "--duplicate-stderr-filters" + why + ", and it shows no stderr"});
  config.log_dir = "/dev/null";
  config.stderr_filters.clear();
  CHECK(OutputWarnings(config) ==
        Texts{"--duplicate-stdout-filters copies nothing: with --log-dir=/dev/null there is no "
              "file to copy to"});
}

}  // namespace
}  // namespace ddprun::launcher
