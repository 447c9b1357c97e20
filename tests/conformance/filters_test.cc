// Which workers' lines reach the console, and which are gathered in one file.
#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"

namespace ddprun::testing {
namespace {

Scenario Speaking(std::vector<std::string> options) {
  options.insert(options.end(), {"--nproc_per_node=3", "--no_python", "--rdzv_id=job1",
                                 "--master_addr=localhost", "--master_port={port}"});
  return {.options = options,
          .command = {"{toy}", "print:seen: one {rank}", "print:seen: two, {rank}",
                      "err:seen: err {rank}"}};
}

TEST_CASE("conformance: the console is for some workers") {
  Scenario scenario = Speaking({"--local_ranks_filter=0,2"});
  scenario.name = "ranks_filter";
  Compare(scenario);
}

TEST_CASE("conformance: the console is for some workers of those that write to files too") {
  Scenario scenario =
      Speaking({"--local-ranks-filter", "1", "-t", "0:3,1:3", "--log_dir={dir}/logs"});
  scenario.name = "ranks_filter_tee";
  Compare(scenario);
}

TEST_CASE("conformance: lines with certain texts are gathered") {
  Scenario scenario =
      Speaking({"-t", "3", "--log_dir={dir}/logs", "--duplicate_stdout_filters=two,, 1,one 0",
                "--duplicate-stderr-filters=err"});
  scenario.name = "duplicate_filters";
  Compare(scenario);
}

TEST_CASE("conformance: without tee nothing is gathered") {
  Scenario scenario =
      Speaking({"-r", "3", "--log_dir={dir}/logs", "--duplicate_stdout_filters=one"});
  scenario.name = "duplicate_filters_redirect";
  Compare(scenario);
}

}  // namespace
}  // namespace ddprun::testing
