// Options of a job that is watched, and the commands that ask it.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "tests/launcher/cli/parse.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using What = AskOptions::What;
using std::chrono::seconds;

AskOptions AskOf(const Words& words) {
  const auto result = Parse(words);
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  REQUIRE(std::holds_alternative<AskOptions>(*result));
  return std::get<AskOptions>(*result);
}

TEST_CASE("watch options: without them hangs are reported after 30 s, and no page is served") {
  const LaunchConfig config = Config({"p"});
  CHECK(config.hang_timeout == seconds(30));
  CHECK(config.on_hang == OnHang::kReport);
  CHECK(!config.dashboard);
  CHECK(!config.metrics);
  CHECK(config.event_file == "");
}

TEST_CASE("watch options: how long a hang lasts, and what is done about it") {
  CHECK(Config({"--hang-timeout=5", "p"}).hang_timeout == seconds(5));
  CHECK(Config({"--hang-timeout", "0", "p"}).hang_timeout == Duration{0});
  CHECK(Config({"--on-hang=dump", "p"}).on_hang == OnHang::kDump);
  CHECK(Config({"--on-hang=restart", "p"}).on_hang == OnHang::kRestart);
  CHECK(Config({"p"}, {"PET_ON_HANG=dump"}).on_hang == OnHang::kDump);
  CHECK(ErrorOf({"--on-hang=panic", "p"}) == "--on-hang 'panic': expected report, dump or restart");
  CHECK(ErrorOf({"--hang-timeout=-1", "p"}).find("--hang-timeout '-1': ") == 0);
  CHECK(ErrorOf({"--hang-timeout=0", "--on-hang=dump", "p"}) == Contains("no hang is looked for"));
}

TEST_CASE("watch options: a page's place stands behind the sign; the next word is the program") {
  CHECK(Config({"--dashboard", "p"}).dashboard == Endpoint{"127.0.0.1", 0});
  CHECK(Config({"--dashboard=", "p"}).dashboard == Endpoint{"127.0.0.1", 0});
  CHECK(Config({"--dashboard=8080", "p"}).dashboard == Endpoint{"127.0.0.1", 8080});
  CHECK(Config({"--metrics=0.0.0.0:9400", "p"}).metrics == Endpoint{"0.0.0.0", 9400});
  CHECK(Config({"--metrics=[::1]:9400", "p"}).metrics == Endpoint{"::1", 9400});
  CHECK(Config({"--metrics=:9400", "p"}).metrics->port == 9400);
  const LaunchConfig program = Config({"--dashboard", "./8080", "9"});
  CHECK(program.dashboard == Endpoint{"127.0.0.1", 0});
  CHECK(program.program == "./8080");
  CHECK(Config({"--dash", "--metr", "p"}).metrics == Endpoint{"127.0.0.1", 0});
  CHECK(Config({"p"}, {"PET_DASHBOARD=8080"}).dashboard == Endpoint{"127.0.0.1", 8080});
  CHECK(Config({"--metrics=:9400", "p"}).metrics->host == "");
  CHECK(Config({"--metrics=127.0.0.1:0", "p"}).metrics == Endpoint{"127.0.0.1", 0});
  for (const std::string bad :
       {"x", "70000", "127.0.0.1", "host:", "-1", "80 80", "1:2:3", ":", ":x"}) {
    CAPTURE(bad);
    CHECK(ErrorOf({"--dashboard=" + bad, "p"}) ==
          "--dashboard '" + bad +
              "': expected PORT (on loopback), HOST:PORT, or :PORT (on all "
              "interfaces), with a port from 0, a free one, to 65535");
  }
}

TEST_CASE("watch options: an event file is any path but none") {
  CHECK(Config({"--event-file", "a b", "p"}).event_file == "a b");
  CHECK(ErrorOf({"--event-file=", "p"}) == "--event-file '': expected a path");
}

TEST_CASE("ask options: the job stands anywhere among the options, or is left out") {
  CHECK(AskOf({"status"}).job == "");
  CHECK(AskOf({"status", "job-1"}).job == "job-1");
  CHECK(AskOf({"status", "--json", "job-1"}).is_json);
  CHECK(AskOf({"status", "--json", "job-1"}).job == "job-1");
  CHECK(AskOf({"status", "job-1", "--json"}).is_json);
  CHECK(AskOf({"logs", "--rank", "3", "job-1", "-f"}).job == "job-1");
  CHECK(AskOf({"logs", "job-1", "--rank=3"}).rank == 3);
  CHECK(AskOf({"logs", "-f", "--rank=3", "job-1"}).follows);
  CHECK(AskOf({"dump", "--ranks", "0,12", "--dir", "x", "7"}).job == "7");
  CHECK(AskOf({"dump", "--ranks", "12,0"}).ranks == std::vector<int>{0, 12});
  CHECK(AskOf({"dump", "--dir=x"}).directory == "x");
  CHECK(AskOf({"stop", "job-1"}).stop_how == rendezvous::StopHow::kGracefully);
  CHECK(AskOf({"stop", "--graceful", "job-1"}).stop_how == rendezvous::StopHow::kAfterStep);
  CHECK(AskOf({"stop", "--graceful", "job-1"}).warnings.empty());
  const AskOptions old = AskOf({"stop", "--after-step", "job-1"});
  CHECK(old.stop_how == rendezvous::StopHow::kAfterStep);
  CHECK(old.job == "job-1");
  CHECK(old.warnings == Words{"--after-step is an old name: instead of stop --after-step write "
                              "stop --graceful (deprecated since ddprun 0.1.0)"});
  CHECK(AskOf({"stop", "--now", "job-1"}).stop_how == rendezvous::StopHow::kNow);
  // A beginning of an option has its value behind it, too.
  CHECK(AskOf({"status", "--coord", "h:29400"}).job == "");
  CHECK(AskOf({"status", "--coord", "h:29400"}).coordinator == Endpoint{"h", 29400});
  CHECK(AskOf({"dump", "--di", "x", "y"}).job == "y");
}

TEST_CASE("ask options: each command is its own question") {
  CHECK(AskOf({"status"}).what == What::kStatus);
  CHECK(AskOf({"top"}).what == What::kTop);
  CHECK(AskOf({"list"}).what == What::kList);
  CHECK(AskOf({"stop"}).what == What::kStop);
  CHECK(AskOf({"logs", "--rank=0"}).what == What::kLogs);
  CHECK(AskOf({"dump"}).what == What::kDump);
}

TEST_CASE("ask options: what is wrong is said with what is right") {
  CHECK(ErrorOf({"status", "a", "b"}).find("status: unexpected argument 'b'") == 0);
  CHECK(ErrorOf({"list", "a"}).find("list: unexpected argument 'a'") == 0);
  CHECK(ErrorOf({"stop", "--json"}).find("stop: unknown option '--json'") == 0);
  CHECK(ErrorOf({"status", "--job", "X"}) ==
        Contains("unknown option '--job'; the job is an argument: ddprun status JOB"));
  CHECK(ErrorOf({"stop", "--now", "--graceful"}) ==
        "stop: --graceful lets the workers save and --now kills them: give one of them");
  CHECK(ErrorOf({"stop", "--now", "--after-step"}) == Contains("--after-step lets"));
  CHECK(ErrorOf({"logs"}) ==
        "logs: which rank's output? Expected --rank=N, as in ddprun logs --rank=0");
  CHECK(ErrorOf({"logs", "--rank=x"}).find("logs: --rank 'x': ") == 0);
  CHECK(ErrorOf({"logs", "--rank=-1"}).find("logs: --rank '-1': ") == 0);
  CHECK(ErrorOf({"logs", "--rank"}).find("logs: '--rank' needs a value") == 0);
  for (const std::string bad : {"", "x", "1,", "-1", "3-", "1-2-3", "1;2", "0,99999999999"}) {
    CAPTURE(bad);
    CHECK(ErrorOf({"dump", "--ranks=" + bad}) == Contains("expected ranks by comma, as in 0-7,12"));
  }
  CHECK(ErrorOf({"dump", "--ranks=1,b-3"}) == Contains("'b-3' is no rank"));
  CHECK(ErrorOf({"dump", "--ranks=0-512"}) == Contains("more than 512 ranks"));
  CHECK(ErrorOf({"dump", "--ranks=3-1"}) == Contains("'3-1' goes backwards; expected 1-3"));
  CHECK(AskOf({"dump", "--ranks=0-400,0-400"}).ranks.size() == 401);
  CHECK(AskOf({"dump", "--ranks=7,0-2,1"}).ranks == std::vector<int>{0, 1, 2, 7});
  CHECK(ErrorOf({"dump", "--dir="}) == "dump: --dir '': expected a path");
  for (const std::string bad : {"h", "h:0", ":29400", "h:x", ""}) {
    CAPTURE(bad);
    CHECK(ErrorOf({"status", "--coordinator=" + bad}) ==
          "status: --coordinator '" + bad + "': expected HOST:PORT");
  }
}

}  // namespace
}  // namespace ddprun::launcher
