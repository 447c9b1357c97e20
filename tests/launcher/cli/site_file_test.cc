// The file with a site's defaults: what it may say, and what wins over it.
#include "launcher/cli/site_file.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

SiteFile Site(const std::string& text) { return {.path = "/etc/ddprun.env", .text = text}; }

absl::StatusOr<ParseResult> Parse(const Words& words, Environment environment) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  environment.machine = {.cpu_count = 6};
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), environment);
}

LaunchConfig Config(const Words& words, const std::string& site, const Words& variables = {}) {
  const auto result = Parse(words, {.variables = variables, .site = Site(site)});
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  return std::get<LaunchConfig>(*result);
}

std::string ErrorOf(const std::string& site, const Words& words = {"p"}) {
  const auto result = Parse(words, {.site = Site(site)});
  if (result.ok()) return "accepted";
  CHECK(absl::IsInvalidArgument(result.status()));
  return std::string(result.status().message());
}

TEST_CASE("site file: its lines are variables of options, with comments and blank lines between") {
  const LaunchConfig config = Config({"p"},
                                     "# of this cluster\n\n  DDPRUN_HANG_TIMEOUT=60\r\n"
                                     "PET_LOG_DIR=/logs = all\n\t# PET_NNODES=2\n");
  CHECK(config.hang_timeout == std::chrono::seconds(60));
  CHECK(config.log_dir == "/logs = all");
  CHECK(config.nodes.max == 1);
  CHECK(config.site_line == "defaults of /etc/ddprun.env: --hang-timeout=60 --log-dir=/logs = all");
  CHECK(Config({"p"}, "").site_line.empty());
}

TEST_CASE("site file: the command line and each variable of the environment win over it") {
  const std::string site = "DDPRUN_HANG_TIMEOUT=60\nPET_SHUTDOWN_TIMEOUT=5\n";
  CHECK(Config({"--hang-timeout=1", "p"}, site).hang_timeout == std::chrono::seconds(1));
  CHECK(Config({"p"}, site, {"PET_HANG_TIMEOUT=2"}).hang_timeout == std::chrono::seconds(2));
  CHECK(Config({"p"}, site, {"DDPRUN_HANG_TIMEOUT=3"}).hang_timeout == std::chrono::seconds(3));
  CHECK(Config({"p"}, site).shutdown_timeout == std::chrono::seconds(5));
  CHECK(Config({"p"}, site, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=6"}).shutdown_timeout ==
        std::chrono::seconds(6));
  CHECK(Config({"--hang-timeout=1", "p"}, "DDPRUN_HANG_TIMEOUT=60\n").site_line.empty());
  // Within it, as in the environment.
  CHECK(Config({"p"}, "PET_ON_HANG=dump\nDDPRUN_ON_HANG=restart\n").on_hang == OnHang::kRestart);
}

TEST_CASE("site file: what a scheduler says wins over it") {
  const Words sky = {"SKYPILOT_NODE_IPS=10.0.0.5", "SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=1",
                     "SKYPILOT_NUM_GPUS_PER_NODE=2", "SKYPILOT_TASK_ID=a"};
  CHECK(Config({"p"}, "PET_NPROC_PER_NODE=1\n", sky).workers_per_node == 2);
  CHECK(Config({"p"}, "PET_NPROC_PER_NODE=3\n").workers_per_node == 3);
}

TEST_CASE("site file: an old name in it causes the warning of old names") {
  const LaunchConfig config = Config({"--max-restarts=3", "p"}, "PET_MAX_SAME_FAILURE=2\n");
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0] == Contains("--max-same-failures"));
}

TEST_CASE("site file: what is wrong names file and line, and what is right") {
  const std::string place = "/etc/ddprun.env:2: ";
  CHECK(ErrorOf("\nNCCL_DEBUG=INFO\n") ==
        place +
            "'NCCL_DEBUG' is no option's variable; expected PET_<OPTION>, or DDPRUN_<OPTION> "
            "for an option that torchrun lacks: set other variables in the job's environment");
  CHECK(ErrorOf("\nDDPRUN_HANG_TIMOUT=1") ==
        place + "'DDPRUN_HANG_TIMOUT' is no option's variable; did you mean DDPRUN_HANG_TIMEOUT?");
  CHECK(ErrorOf("\nDDPRUN_TOKEN=1") == Contains("; expected PET_<OPTION>, or DDPRUN_<OPTION>"));
  for (const std::string name : {"DDPRUN_TOKEN", "DDPRUN_NNODES", "PET_HELP", "export PET_ROLE"}) {
    CHECK(ErrorOf("\n" + name + "=1").find(place + "'" + name + "' is no option's variable") == 0);
  }
  CHECK(ErrorOf("\nPET_ROLE\n") == place + "'PET_ROLE': expected NAME=VALUE, or a comment after #");
  CHECK(ErrorOf(std::string("\nPET_ROLE=\0x", 12)) == Contains(place));
  CHECK(ErrorOf("PET_ROLE=a\nPET_ROLE=b\n") ==
        place + "PET_ROLE has a value already, PET_ROLE (/etc/ddprun.env:1): remove one");
  CHECK(ErrorOf("\nDDPRUN_HANG_TIMEOUT=x").find("DDPRUN_HANG_TIMEOUT (/etc/ddprun.env:2) 'x': ") ==
        0);
  CHECK(ErrorOf("\nNCCL_DEBUG=INFO\n", {"check"}).find("check: " + place) == 0);
}

TEST_CASE("site file: one that cannot be read ends a job, but no command that asks one") {
  const Environment environment{.site = {.path = "/x", .text = "", .trouble = "cannot be read"}};
  CHECK(Parse({"p"}, environment).status().message() == "cannot be read");
  for (const Words& words : {Words{"status"}, Words{"--help"}, Words{"doctor"}}) {
    CHECK(Parse(words, environment).ok());
  }
}

TEST_CASE("site file: a default yields to what it does not go together with") {
  const std::string own = "PET_TLS_CERT=c\nPET_TLS_KEY=k\nPET_TLS_CA=a\n";
  CHECK(Config({"p"}, own).trust.cert == "c");
  const LaunchConfig token = Config({"--token-file=t", "p"}, own);
  CHECK(token.trust.token == "t");
  CHECK(token.trust.cert.empty());
  const auto secret = Parse({"p"}, {.token = "secret", .site = Site(own)});
  REQUIRE(secret.ok());
  CHECK(std::get<LaunchConfig>(*secret).trust.cert.empty());
  CHECK(Config({"--hang-timeout=0", "p"}, "DDPRUN_ON_HANG=dump").on_hang == OnHang::kDump);
  CHECK_FALSE(Config({"p"}, "DDPRUN_REQUEUE_CODE=99").requeue_code);
  CHECK(Config({"--preempt-signal=USR1", "p"}, "DDPRUN_REQUEUE_CODE=99").requeue_code == 99);
  // Nor is a job warned of what its site says for others.
  CHECK(Config({"p"}, "DDPRUN_MAX_NODE_LOSSES=3\nDDPRUN_RESTART_BACKOFF=5\n").warnings.empty());
  CHECK(Config({"--standalone", "p"}, "PET_RDZV_ENDPOINT=h:1\n").warnings.empty());
}

}  // namespace
}  // namespace ddprun::launcher
