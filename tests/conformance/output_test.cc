// Where what workers write goes: the console, files, both.
#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"

namespace ddprun::testing {
namespace {

const std::vector<std::string> kSpeaker = {"{toy}", "print:seen: out {rank}",
                                           "err:seen: err {rank}"};

Scenario Speaking(const std::string& workers, std::vector<std::string> options) {
  options.insert(options.end(), {"--nproc_per_node=" + workers, "--no_python", "--rdzv_id=job1",
                                 "--master_addr=localhost", "--master_port={port}"});
  return {.options = options, .command = kSpeaker};
}

TEST_CASE("conformance: without options workers write to the console") {
  Scenario scenario = Speaking("2", {});
  scenario.name = "console";
  Compare(scenario);
}

TEST_CASE("conformance: both streams to files") {
  Scenario scenario = Speaking("2", {"--log_dir={dir}/logs", "--redirects=3"});
  scenario.name = "redirect";
  Compare(scenario);
}

TEST_CASE("conformance: one stream of some workers to files") {
  Scenario scenario = Speaking("3", {"--log_dir={dir}/logs", "-r", "0:1,1:2"});
  scenario.name = "redirect_map";
  Compare(scenario);
}

TEST_CASE("conformance: to files and to the console, with a prefix") {
  Scenario scenario = Speaking("2", {"--log_dir={dir}/logs", "-t", "3", "--role=trainer"});
  scenario.name = "tee";
  Compare(scenario);
}

TEST_CASE("conformance: one to files, one to both") {
  Scenario scenario = Speaking("2", {"--log_dir={dir}/logs", "-r", "0:3,1:1", "-t", "1:3"});
  scenario.name = "tee_map";
  Compare(scenario);
}

TEST_CASE("conformance: no folder for logs is named") {
  Scenario scenario = Speaking("2", {"-r", "3"});
  scenario.name = "no_log_dir";
  Compare(scenario);
}

TEST_CASE("conformance: the folder for logs is a file") {
  Scenario scenario = Speaking("1", {"--log_dir={programs}/env.py", "-r", "3"});
  scenario.name = "log_dir_is_file";
  scenario.has_codes = true;
  Compare(scenario);
}

TEST_CASE("conformance: a folder for each attempt") {
  Scenario scenario = Speaking("1", {"--log_dir={dir}/logs", "-r", "3", "--max_restarts=2"});
  scenario.name = "attempts";
  scenario.command.push_back("exit:1#0");
  scenario.command.push_back("exit:1#1");
  Compare(scenario);
}

TEST_CASE("conformance: what a failing program wrote is in its file") {
  Scenario scenario = Speaking("1", {"--log_dir={dir}/logs", "-r", "3"});
  scenario.name = "exit_138";
  scenario.command.push_back("exit:138");
  scenario.has_codes = true;
  Compare(scenario);
}

TEST_CASE("conformance: ${rank} and others in the prefix") {
  Scenario scenario = Speaking("2", {"--log_dir={dir}/logs", "-t", "3", "-r", "3"});
  scenario.name = "prefix";
  scenario.env = {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
                   "[${role_name} rank${rank} of ${local_rank}, ${other}]: "}};
  Compare(scenario);
}

}  // namespace
}  // namespace ddprun::testing
