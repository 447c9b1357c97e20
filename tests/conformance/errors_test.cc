// Error files of PyTorch's @record, the report at the end, the file watchdog.
#include <regex>

#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

// The fields of the report's root cause. The time and the pid are of this run alone.
void ObserveReport(Run& run) {
  static const std::regex line("\n +(time|host|rank|exitcode|error_file|traceback) +: ([^\n]*)");
  static const std::regex pid("pid: [0-9]+|PID [0-9]+");
  const std::string err = run.node(0).err();
  const size_t root = err.find("Root Cause (first observed failure):");
  run.Observe("report.title", err.find(" FAILED\n---") == std::string::npos ? "none" : "FAILED");
  if (root == std::string::npos) return run.Observe("report.root", "none");
  const std::string text = err.substr(root, err.find("\n====", root) - root) + "\n";
  for (auto match = std::sregex_iterator(text.begin(), text.end(), line);
       match != std::sregex_iterator(); ++match) {
    std::string value = std::regex_replace((*match)[2].str(), pid, "{pid}");
    value.erase(value.find_last_not_of(' ') + 1);
    if ((*match)[1] == "time") continue;
    if ((*match)[1] == "error_file") value.erase(0, std::min(value.size(), value.find("/attempt")));
    run.Observe("report." + (*match)[1].str(), value);
  }
}

TEST_CASE("conformance: the report of an exit code") {
  Compare({.name = "report_exit",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "touch:up{rank}", "until:up0", "until:up1", "exit:7@1", "wait"},
           .after = ObserveReport});
}

TEST_CASE("conformance: the report of a signal") {
  Compare({.name = "report_signal",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "touch:up{rank}", "until:up0", "until:up1", "die:11@1", "wait"},
           .after = ObserveReport});
}

TEST_CASE("conformance: the report of a recorded exception, and its file for the parent") {
  Compare({.name = "report_record",
           .options = {"--standalone", "--nproc_per_node=2"},
           .command = {"{programs}/recorded.py", "no such thing"},
           .needs_torch = true,
           .env = {{"TORCHELASTIC_ERROR_FILE", "{dir}/tmp/parent.json"}},
           .after = [](Run& run) {
             ObserveReport(run);
             const auto error = ParseJson(ReadFile(run.File("tmp/parent.json")));
             run.Observe("parent.message",
                         error ? error->get<std::string>("message.message", "none") : "no file");
             run.Observe("parent.code",
                         error ? error->get<std::string>("message.errorCode", "none") : "no file");
           }});
}

TEST_CASE("conformance: an error file that is no JSON") {
  Compare({.name = "report_corrupt",
           .options = {"--standalone", "--nproc_per_node=1"},
           .command = {"{programs}/corrupt.py"}});
}

TEST_CASE("conformance: an expired timer of the file watchdog kills") {
  Compare({.name = "watchdog",
           .options = {"--standalone", "--nproc_per_node=1"},
           .command = {"{programs}/expires.py"},
           .env = {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}}});
}

TEST_CASE("conformance: a timer that is released in time kills nobody") {
  Compare({.name = "watchdog_released",
           .options = {"--standalone", "--nproc_per_node=1"},
           .command = {"{programs}/expires.py", "released"},
           .env = {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}}});
}

}  // namespace
}  // namespace ddprun::testing
