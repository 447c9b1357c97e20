// What messages call an option whose value came from a variable: the user looks for what was set.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

using Texts = std::vector<std::string>;

absl::StatusOr<ParseResult> Parse(const Texts& variables, const Texts& options = {}) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& option : options) argv.push_back(option.c_str());
  argv.push_back("p");
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(),
                          {.variables = variables, .machine = {.cpu_count = 6}});
}

// All that is said of a job that is taken, a line each.
std::string Warnings(const Texts& variables, const Texts& options = {}) {
  absl::StatusOr<ParseResult> result = Parse(variables, options);
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  LaunchConfig& config = std::get<LaunchConfig>(*result);
  for (const std::string& warning : OutputWarnings(config)) config.warnings.push_back(warning);
  return absl::StrJoin(config.warnings, "\n");
}

std::string ErrorOf(const Texts& variables, const Texts& options = {}) {
  const absl::StatusOr<ParseResult> result = Parse(variables, options);
  return result.ok() ? "accepted" : std::string(result.status().message());
}

bool Begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

// A value that no option takes, where there is one: 'bad value' is none of a number, a host, a
// choice, and a name takes no line feed.
TEST_CASE("option source: whatever is wrong with a variable's value names the variable") {
  const Texts takes_any_text = {"log_dir",
                                "event_file",
                                "log_line_prefix_template",
                                "report_file",
                                "termination_message_file",
                                "duplicate_stdout_filters",
                                "duplicate_stderr_filters",
                                "signals_to_handle",
                                "token_file",
                                "tls_cert",
                                "tls_key",
                                "tls_ca",
                                "health_check",
                                "on_bad_node"};
  int seen = 0;
  for (const OptionRow& row : OptionTable()) {
    const bool takes_it =
        std::find(takes_any_text.begin(), takes_any_text.end(), row.name) != takes_any_text.end();
    if (!row.has_variable || takes_it) continue;
    CAPTURE(row.name);
    for (const std::string& variable : VariablesOf(row)) {
      // master_addr and master_port are read by the static backend alone.
      const std::string error = ErrorOf({variable + "=bad\nvalue", "PET_NNODES=2"});
      CHECK(Begins(error, variable + " 'bad\\nvalue': "));
      ++seen;
    }
  }
  CHECK(seen > 30);
  CHECK(Begins(ErrorOf({"PET_DUPLICATE_STDOUT_FILTERS=a,"}), "PET_DUPLICATE_STDOUT_FILTERS 'a,'"));
  CHECK(Begins(ErrorOf({"PET_DUPLICATE_STDERR_FILTERS=,"}), "PET_DUPLICATE_STDERR_FILTERS ','"));
}

TEST_CASE("option source: values that contradict each other are called what they were set by") {
  CHECK(Begins(ErrorOf({"PET_STANDALONE=1", "PET_NNODES=2"}),
               "PET_STANDALONE with PET_NNODES '2': expected --nnodes=1"));
  CHECK(Begins(ErrorOf({"PET_NNODES=2"}, {"--standalone"}), "--standalone with PET_NNODES '2'"));
  CHECK(Begins(ErrorOf({"PET_NNODES=2:3"}),
               "PET_NNODES '2:3': expected a fixed number, or --rdzv-endpoint"));
  CHECK(Begins(ErrorOf({"PET_NODE_RANK=5"}, {"--nnodes=2"}),
               "PET_NODE_RANK '5' with --nnodes '2': expected a rank from 0 to 1"));
  CHECK(Begins(ErrorOf({"PET_MODULE=1", "PET_NO_PYTHON=1"}), "PET_NO_PYTHON with PET_MODULE"));
}

TEST_CASE("option source: every PET_ variable that is none of torchrun's is warned of") {
  CHECK(Warnings({"PET_NPROC_PER_NODES=4", "PET_ROLE=x", "PETER=1"}) ==
        "unknown variable 'PET_NPROC_PER_NODES' is ignored; did you mean PET_NPROC_PER_NODE?");
  CHECK(Warnings({"PET_nproc_per_node=4"}) ==
        "unknown variable 'PET_nproc_per_node' is ignored; did you mean PET_NPROC_PER_NODE?");
  CHECK(Warnings({"PET_SHOP=1", "PET_=1"}) ==
        "unknown variable 'PET_SHOP' is ignored\nunknown variable 'PET_' is ignored");
  // torchrun has no variable for them either.
  CHECK(Warnings({"PET_NUMA_BINDING=abc", "PET_LOGS_SPECS=mine"}) ==
        "variable 'PET_NUMA_BINDING' is ignored; the option has none: use --numa-binding\n"
        "unknown variable 'PET_LOGS_SPECS' is ignored");
}

TEST_CASE("option source: warnings name the variable that gave the value") {
  CHECK(Warnings({"PET_NODE_RANK=1", "PET_STANDALONE=1"}) ==
        "PET_NODE_RANK '1' is not used: PET_STANDALONE is a job of one node");
  CHECK(Warnings({}, {"--standalone", "--rdzv-endpoint=foo:1"}) ==
        "--rdzv-endpoint 'foo:1' is not used: --standalone is a job of one node");
  CHECK(Warnings({"PET_MASTER_PORT=7"}, {"--rdzv-backend=c10d"}) ==
        "PET_MASTER_PORT '7' is not used: only the static backend reads it");
  CHECK(Warnings({"PET_RDZV_CONF=jion_timeout=5"}) ==
        "PET_RDZV_CONF: unknown key 'jion_timeout' is ignored; did you mean join_timeout?");
  CHECK(Warnings({"PET_SIGNALS_TO_HANDLE=USR1,SIGKILL"}) ==
        "PET_SIGNALS_TO_HANDLE: unknown signal 'USR1' is ignored; did you mean SIGUSR1?\n"
        "PET_SIGNALS_TO_HANDLE: SIGKILL is ignored: ddprun cannot stop the job on it");
  CHECK(Warnings({"PET_REDIRECTS=5:1", "PET_TEE=6:1", "PET_LOCAL_RANKS_FILTER=7"}) ==
        "PET_REDIRECTS: no worker here has local rank 5; the only one is 0\n"
        "PET_TEE: no worker here has local rank 6; the only one is 0\n"
        "PET_LOCAL_RANKS_FILTER: no worker here has local rank 7; the only one is 0");
  CHECK(Warnings({"PET_DUPLICATE_STDOUT_FILTERS=x", "PET_TEE=2"}) ==
        "PET_DUPLICATE_STDOUT_FILTERS copies nothing: only lines that PET_TEE shows on the "
        "console are copied, and it shows no stdout");
  CHECK(Warnings({"PET_DUPLICATE_STDERR_FILTERS=x", "PET_LOG_DIR=/dev/null"}) ==
        "PET_DUPLICATE_STDERR_FILTERS copies nothing: with PET_LOG_DIR=/dev/null there is no "
        "file to copy to");
}

TEST_CASE("option source: an option that wins over its variable is named itself") {
  CHECK(Warnings({"PET_RDZV_CONF=join_timeout=5"}, {"--rdzv-conf=jion_timeout=5"}) ==
        "--rdzv-conf: unknown key 'jion_timeout' is ignored; did you mean join_timeout?");
  CHECK(Begins(ErrorOf({"PET_NNODES=2"}, {"--nnodes=x"}), "--nnodes 'x'"));
  CHECK(LaunchConfig().SourceOf("tee") == "--tee");
}

}  // namespace
}  // namespace ddprun::launcher
