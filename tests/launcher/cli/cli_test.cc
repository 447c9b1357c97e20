#include "launcher/cli/cli.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "launcher/cli/variable_table.h"
#include "rendezvous/base/release.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

Environment Plain(std::vector<std::string> variables = {}) {
  return {.variables = std::move(variables), .machine = {.cpu_count = 6, .fresh_run_id = "f00d"}};
}

absl::StatusOr<ParseResult> Parse(const std::vector<std::string>& words,
                                  const Environment& environment = Plain()) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), environment);
}

LaunchConfig Config(const std::vector<std::string>& words,
                    const Environment& environment = Plain()) {
  const absl::StatusOr<ParseResult> result = Parse(words, environment);
  INFO("status: ", result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(std::holds_alternative<LaunchConfig>(*result));
  return std::get<LaunchConfig>(*result);
}

std::string ErrorOf(const std::vector<std::string>& words,
                    const Environment& environment = Plain()) {
  const absl::StatusOr<ParseResult> result = Parse(words, environment);
  if (result.ok()) return "accepted";
  CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

std::string TextOf(const std::vector<std::string>& words) {
  const absl::StatusOr<ParseResult> result = Parse(words);
  REQUIRE(result.ok());
  REQUIRE(std::holds_alternative<PrintText>(*result));
  return std::get<PrintText>(*result).text;
}

TEST_CASE("cli: a program alone is one standalone worker") {
  const LaunchConfig config = Config({"./train", "--epochs", "3"});

  CHECK(config.rendezvous == RendezvousKind::kStandalone);
  CHECK(config.nodes.max == 1);
  CHECK(config.workers_per_node == 1);
  CHECK(config.max_restarts == 0);
  CHECK(config.shutdown_timeout == std::chrono::seconds(30));
  CHECK(config.run_id == "f00d");
  CHECK(config.role == "default");
  CHECK(config.program == "./train");
  CHECK(config.args == std::vector<std::string>{"--epochs", "3"});
  CHECK(config.warnings.empty());
}

TEST_CASE("cli: dashes and underscores, both ways of giving a value, the last one wins") {
  const std::vector<std::vector<std::string>> spellings = {
      {"--nproc_per_node=3", "p"},
      {"--nproc-per-node=3", "p"},
      {"--nproc_per_node", "3", "p"},
      {"--nproc-per-node", "3", "p"},
      {"--nproc-per_node=3", "p"},
      {"--nproc=3", "p"},
      {"--nproc_per_node=9", "--nproc-per-node", "3", "p"}};
  for (const auto& words : spellings) {
    CAPTURE(words[0]);
    CHECK(Config(words).workers_per_node == 3);
  }
}

TEST_CASE("cli: short options take their value attached, with '=' or as the next word") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-r", "2", "p"}, {"-r2", "p"}, {"-r=2", "p"}}) {
    CHECK(Config(words).redirects.For(0) == Streams{.out = false, .err = true});
  }
  CHECK(Config({"-t", "3", "p"}).tee.For(7) == Streams{.out = true, .err = true});
}

TEST_CASE("cli: everything after the program is the program's, verbatim") {
  const std::vector<std::string> theirs = {"--nnodes=0", "-r",  "--",         "--help",
                                           "",           "a b", "\xff\n\x01", "--unknown"};
  std::vector<std::string> words = {"--nnodes=1", "./train"};
  words.insert(words.end(), theirs.begin(), theirs.end());
  CHECK(Config(words).args == theirs);
}

TEST_CASE("cli: '--' ends the options") {
  const LaunchConfig config = Config({"--nproc-per-node=2", "--", "--odd", "--", "x"});
  CHECK(config.program == "--odd");
  CHECK(config.args == std::vector<std::string>{"--", "x"});
}

TEST_CASE("cli: one '--' right behind the program is dropped, unless one stood before it") {
  using Words = std::vector<std::string>;
  CHECK(Config({"p", "--", "--lr", "1"}).args == Words{"--lr", "1"});
  CHECK(Config({"p", "--", "--", "--lr", "--"}).args == Words{"--", "--lr", "--"});
  CHECK(Config({"p", "--"}).args.empty());
  CHECK(Config({"-m", "p", "--", "-m"}).args == Words{"-m"});
  CHECK(Config({"p", "x", "--", "y"}).args == Words{"x", "--", "y"});
  CHECK(Config({"--", "p", "--", "--lr"}).args == Words{"--", "--lr"});
  CHECK(Config({"--", "--", "p"}).program == "--");
  CHECK(Config({"--", "--", "p"}).args == Words{"p"});
}

TEST_CASE("cli: values that look like something else to a parser stay what they are") {
  CHECK(Config({"--rdzv-endpoint=[::1]:29500", "p"}).endpoint ==
        Endpoint{.host = "::1", .port = 29500});
  CHECK(Config({"--rdzv-endpoint", "[fe80::1%eth0]:1", "p"}).endpoint.host == "fe80::1%eth0");
  CHECK(Config({"--role=--tee", "p"}).role == "--tee");
  CHECK(Config({"--role", "-t", "p"}).role == "-t");
  CHECK(Config({"--role", "{}", "p"}).role == "{}");
  CHECK(Config({"--log-dir=a=b", "p"}).log_dir == "a=b");
  CHECK(Config({"--rdzv-endpoint=", "--role=", "p"}).role == "default");
  CHECK(Config({"-"}).program == "-");
}

TEST_CASE("cli: a PET_ variable stands in for an option and the command line wins") {
  const Environment environment =
      Plain({"PET_NPROC_PER_NODE=4", "PET_NNODES=2", "PET_RDZV_ENDPOINT=host:1", "PET_NO_PYTHON=1",
             "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7"});
  const LaunchConfig config = Config({"--nnodes=3", "p"}, environment);
  CHECK(config.workers_per_node == 4);
  CHECK(config.nodes.max == 3);
  CHECK(config.rendezvous == RendezvousKind::kC10d);
  CHECK(config.run_as == RunAs::kItself);
  CHECK(config.shutdown_timeout == std::chrono::seconds(7));
  CHECK(ErrorOf({"p"}, Plain({"PET_NNODES=0x10"})).find("PET_NNODES '0x10'") == 0);
  CHECK(ErrorOf({"p"}, Plain({"PET_NNODES="})).find("PET_NNODES ''") == 0);
}

TEST_CASE("cli: DDPRUN_ variables give our own options, before PET_ and after the command line") {
  const auto timeout = [](const std::vector<std::string>& words,
                          const std::vector<std::string>& variables) {
    return Config(words, Plain(variables)).hang_timeout / std::chrono::seconds(1);
  };
  CHECK(timeout({"p"}, {"DDPRUN_HANG_TIMEOUT=7"}) == 7);
  CHECK(timeout({"p"}, {"PET_HANG_TIMEOUT=8", "DDPRUN_HANG_TIMEOUT=7"}) == 7);
  CHECK(timeout({"--hang-timeout=9", "p"}, {"DDPRUN_HANG_TIMEOUT=7"}) == 9);
  CHECK(ErrorOf({"p"}, Plain({"DDPRUN_HANG_TIMEOUT=x"})).find("DDPRUN_HANG_TIMEOUT 'x'") == 0);
  CHECK(Config({"p"}, Plain({"DDPRUN_NPROC_PER_NODE=4"})).workers_per_node == 1);
}

TEST_CASE("cli: what reaches the console and how, by option and by variable") {
  const Environment environment =
      Plain({"PET_LOCAL_RANKS_FILTER=0,12", "PET_DUPLICATE_STDOUT_FILTERS=a,,b,c",
             "PET_DUPLICATE_STDERR_FILTERS=oops", "PET_LOG_LINE_PREFIX_TEMPLATE=${rank}: "});
  const LaunchConfig by_variable = Config({"p"}, environment);
  CHECK(by_variable.console_ranks == std::set<int>{0, 12});
  CHECK(by_variable.stdout_filters == std::vector<std::string>{"a,b", "c"});
  CHECK(by_variable.stderr_filters == std::vector<std::string>{"oops"});
  CHECK(by_variable.log_line_prefix_template == "${rank}: ");
  const LaunchConfig by_option =
      Config({"--local-ranks-filter=1", "--duplicate-stdout-filters", "x",
              "--duplicate-stderr-filters=", "--log-line-prefix-template=>", "p"},
             environment);
  CHECK(by_option.console_ranks == std::set<int>{1});
  CHECK(by_option.stdout_filters == std::vector<std::string>{"x"});
  CHECK(by_option.stderr_filters.empty());
  CHECK(by_option.log_line_prefix_template == ">");
}

TEST_CASE("cli: where workers run; torchrun has no variable for --numa_binding") {
  CHECK(Config({"--numa-binding", "core-complex", "p"}).numa_binding == NumaBinding::kCoreComplex);
  CHECK(Config({"--virtual-local-rank", "p"}).virtual_local_rank);
  const LaunchConfig config =
      Config({"p"}, Plain({"PET_VIRTUAL_LOCAL_RANK=1", "PET_NUMA_BINDING=node"}));
  CHECK(config.virtual_local_rank);
  CHECK_FALSE(config.numa_binding);
}

TEST_CASE("cli: --help and --version end the reading, whatever is wrong elsewhere") {
  CHECK(TextOf({"--nproc-per-node=0", "--help", "--unknown"}) == TextOf({"--help"}));
  CHECK(TextOf({"-h"}) == TextOf({"--help"}));
  CHECK(TextOf({"--version"}) == std::string("ddprun ") + kVersion + " (protocol " +
                                     std::to_string(ThisRelease().protocol) + ")\n");
}

TEST_CASE("cli: how the program is run; --run_path wins, a module cannot be executed itself") {
  struct Row {
    std::vector<std::string> words;
    RunAs run_as;
  };
  const std::vector<Row> rows = {
      {{"p"}, RunAs::kByName},
      {{"-m", "p"}, RunAs::kModule},
      {{"--module", "p"}, RunAs::kModule},
      {{"--no-python", "p"}, RunAs::kItself},
      {{"--run-path", "p"}, RunAs::kRunPath},
      {{"--run-path", "--no-python", "p"}, RunAs::kRunPath},
      {{"--run-path", "--no-python", "-m", "p"}, RunAs::kRunPath},
  };
  for (const Row& row : rows) {
    CAPTURE(row.words[0]);
    CHECK(Config(row.words).run_as == row.run_as);
  }
  CHECK(Config({"p"}, Plain({"PET_MODULE=1"})).run_as == RunAs::kModule);
  CHECK(Config({"-m", "pkg.train", "-m", "x"}).program == "pkg.train");
  CHECK(Config({"-m", "pkg.train", "-m", "x"}).args == std::vector<std::string>{"-m", "x"});
  CHECK(ErrorOf({"-m", "--no-python", "p"}).find("--no-python with --module: expected one") == 0);
  CHECK(ErrorOf({"-m", "p"}, Plain({"PET_NO_PYTHON=1"})).find("PET_NO_PYTHON with --module") == 0);
}

TEST_CASE("cli: signals, events and the start method are taken as torchrun takes them") {
  const LaunchConfig plain = Config({"p"});
  CHECK(plain.signals_to_handle == "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  CHECK(plain.more_stop_signals.empty());
  CHECK(plain.event_log_handler == "null");
  const LaunchConfig config = Config({"--signals-to-handle=SIGUSR1,SIGFOO", "--start-method=fork",
                                      "--event-log-handler", "console", "p"});
  CHECK(config.signals_to_handle == "SIGUSR1,SIGFOO");
  CHECK(config.more_stop_signals.size() == 1);
  CHECK(config.event_log_handler == "console");
  CHECK(config.warnings.size() == 1);
  CHECK(Config({"p"}, Plain({"PET_SIGNALS_TO_HANDLE=SIGUSR2"})).more_stop_signals.size() == 1);
}

TEST_CASE("cli: --shutdown_timeout comes from the option, PET_, torch's variable, else it is 30") {
  const std::string torch = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7";
  CHECK(Config({"p"}).shutdown_timeout == std::chrono::seconds(30));
  CHECK(Config({"p"}, Plain({torch})).shutdown_timeout == std::chrono::seconds(7));
  CHECK(Config({"p"}, Plain({torch, "PET_SHUTDOWN_TIMEOUT=8"})).shutdown_timeout ==
        std::chrono::seconds(8));
  CHECK(Config({"--shutdown-timeout=9", "p"}, Plain({torch, "PET_SHUTDOWN_TIMEOUT=8"}))
            .shutdown_timeout == std::chrono::seconds(9));
  CHECK(ErrorOf({"p"}, Plain({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-1"}))
            .find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT '-1': expected seconds") == 0);
}

TEST_CASE("cli: --standalone leaves out what is said of a rendezvous, a node's rank as well") {
  const Environment kubernetes = Plain(
      {"PET_NODE_RANK=3", "PET_MASTER_ADDR=x", "PET_MASTER_PORT=1", "PET_RDZV_ENDPOINT=h:99999"});
  const LaunchConfig config = Config({"--standalone", "p"}, kubernetes);
  CHECK(config.rendezvous == RendezvousKind::kStandalone);
  CHECK_FALSE(config.node_rank.has_value());
  REQUIRE(config.warnings.size() == 2);
  CHECK(config.warnings[0] ==
        "PET_RDZV_ENDPOINT 'h:99999' is not used: --standalone is a job of one node");
  CHECK(config.warnings[1] == "PET_NODE_RANK '3' is not used: --standalone is a job of one node");
}

TEST_CASE("cli: a command is one as the first word only") {
  const auto parsed = Parse({"token", "new"});
  REQUIRE(parsed.ok());
  CHECK(std::holds_alternative<NewTokenOptions>(*parsed));
  CHECK(Config({"--", "token"}).program == "token");
  CHECK(Config({"--standalone", "token"}).program == "token");
  CHECK(Config({"./token"}).program == "./token");
}

TEST_CASE("cli: files by which a node proves itself come one way or the other") {
  CHECK(Config({"--token-file=t", "p"}).trust.token == "t");
  CHECK(Config({"p"}, Plain({"PET_TOKEN_FILE=t"})).trust.token == "t");
  const LaunchConfig own = Config({"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "p"});
  CHECK(own.trust.cert == "c");
  CHECK(own.trust.key == "k");
  CHECK(own.trust.ca == "a");
  CHECK(ErrorOf({"--tls-cert=c", "--tls-key=k", "p"}).find("--tls-ca is missing") == 0);
  CHECK(ErrorOf({"--tls-ca=a", "p"}).find("--tls-cert is missing") == 0);
  CHECK(ErrorOf({"--token-file=", "p"}).find("--token-file") == 0);
  CHECK(ErrorOf({"--token-file=t", "--tls-cert=c", "--tls-key=k", "--tls-ca=a", "p"}) ==
        Contains("expected one of them"));
}

TEST_CASE("cli: leftovers of another launcher and misspelt variables are warned of") {
  const LaunchConfig config =
      Config({"p"}, Plain({"RANK=3", "DDPRUN_STDER=inherit", "DDPRUN_TEST_X=1", "DDPRUN_STDERR=",
                           "DDPRUN_SOMETHING_ELSE=1", "DDPRUN_SYSTEM=1", "DDPRUN_BOGUS=1"}));
  REQUIRE(config.warnings.size() == 2);
  CHECK(config.warnings[0].find("RANK=3") == 0);
  CHECK(config.warnings[1] == Contains("did you mean DDPRUN_STDERR?"));
  const LaunchConfig all =
      Config({"p"}, Plain({"LOCAL_WORLD_SIZE=4", "LOCAL_RANK=3", "WORLD_SIZE=2", "RANK=\x1b[2J"}));
  REQUIRE(all.warnings.size() == 1);
  CHECK(all.warnings[0] ==
        "RANK=\\x1b[2J WORLD_SIZE=2 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 in the environment: workers "
        "get their own values");
  // Scripts that are right export these, for --rdzv-endpoint.
  CHECK(Config({"p"}, Plain({"MASTER_ADDR=h", "MASTER_PORT=29500"})).warnings.empty());
}

TEST_CASE("cli: a variable of ours that an option has, and we have not, is warned of") {
  const auto warning = [](const std::string& name) {
    const LaunchConfig config = Config({"p"}, Plain({"DDPRUN_" + name + "=t"}));
    REQUIRE_MESSAGE(config.warnings.size() == 1, name);
    return config.warnings.front();
  };
  CHECK(warning("TOKENFILE") ==
        "unknown variable 'DDPRUN_TOKENFILE' is ignored; did you mean DDPRUN_TOKEN_FILE?");
  CHECK(warning("HANG_TIMOUT") ==
        "unknown variable 'DDPRUN_HANG_TIMOUT' is ignored; did you mean DDPRUN_HANG_TIMEOUT?");
  CHECK(warning("NNODES") ==
        "unknown variable 'DDPRUN_NNODES' is ignored; use --nnodes or "
        "PET_NNODES");
}

TEST_CASE("cli: no variable of ours is called unknown, and each is found where it is misspelt") {
  std::vector<std::string> given;
  for (const VariableGroup& group : VariableTable()) {
    for (const VariableRow& row : group.rows) {
      const std::string name = row.name;
      if (!name.starts_with("DDPRUN_")) continue;
      given.push_back(name + "=");
      const LaunchConfig config = Config({"p"}, Plain({name + "X=1"}));
      REQUIRE_MESSAGE(config.warnings.size() == 1, name);
      CHECK(config.warnings[0] ==
            "unknown variable '" + name + "X' is ignored; did you mean " + name + "?");
    }
  }
  REQUIRE(given.size() > 20);
  // But for the cluster, which is one value and no other.
  std::erase(given, "DDPRUN_CLUSTER=");
  const LaunchConfig config = Config({"p"}, Plain(given));
  CHECK_MESSAGE(config.warnings.empty(), config.warnings.front());
}

}  // namespace
}  // namespace ddprun::launcher
