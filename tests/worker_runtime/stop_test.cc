// The C face of ShouldStop(), between real processes.
#include "ddp/stop.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"
#include "ddp/store.h"
#include "tests/support/contains.h"
#include "tests/support/rank_processes.h"
#include "tests/support/stop_file.h"
#include "tests/support/temp_dir.h"

namespace ddp::testing {
namespace {

using ddprun::testing::HasHeardStop;
using ddprun::testing::MakeStopFile;
using ddprun::testing::RankProcesses;
using ddprun::testing::RequestStop;
using ddprun::testing::TempDir;

constexpr int kRanks = 3;

int Wrong(const std::string& what) {
  RankProcesses::Say(what);
  return 1;
}

RankProcesses::Options With(const std::string& file) {
  RankProcesses::Options options;
  options.world_size = kRanks;
  options.env = {{"DDPRUN_STOP_FILE", file}};
  return options;
}

void CheckAll(RankProcesses& ranks, const std::string& said) {
  for (int rank = 0; rank < kRanks; ++rank) {
    CAPTURE(rank);
    CHECK(ranks.Hear(rank) == said);
    CHECK(ranks.Await(rank) == 0);
  }
}

// The first call that is not 0, and what it was.
std::string Poll(int asker, int at) {
  for (int call = 0;; ++call) {
    if (call == at && std::getenv("RANK") == std::to_string(asker)) {
      RequestStop(std::getenv("DDPRUN_STOP_FILE"));
    }
    const int answer = ddp_should_stop();
    if (answer != 0) return absl::StrCat("call ", call, ": ", answer, " ", ddp_last_error());
  }
}

TEST_CASE("stop: all ranks get 1 at the same call, and may end at once") {
  TempDir dir;
  for (int at = 0; at < 10; ++at) {
    const std::string file = MakeStopFile(dir.File(absl::StrCat("stop", at)));
    RankProcesses ranks(With(file), [at](int) {
      const std::string heard = Poll(1, at);
      if (ddp_stop_requested() != 1) return Wrong("this node's own flag is not set");
      if (ddp_should_stop() != 1) return Wrong("it does not stay 1");
      RankProcesses::Say(heard);
      return 0;
    });
    CheckAll(ranks, absl::StrCat("call ", at, ": 1 "));
    CHECK(HasHeardStop(file));
  }
}

TEST_CASE("stop: this node's flag asks nobody and tells nobody") {
  TempDir dir;
  const std::string file = MakeStopFile(dir.File("stop"));
  RankProcesses::Options options = With(file);
  RankProcesses ranks(options, [](int rank) {
    if (rank != 0) return 0;
    if (ddp_stop_requested() != 0) return Wrong("set before anybody asked");
    RequestStop(std::getenv("DDPRUN_STOP_FILE"));
    RankProcesses::Say(absl::StrCat(ddp_stop_requested()));
    return 0;
  });
  CHECK(ranks.Hear(0) == "1");
  CHECK(ranks.Await(0) == 0);
  CHECK(!HasHeardStop(file));
}

TEST_CASE("stop: it stands beside the program's own group, under the launcher and under torchrun") {
  TempDir dir;
  for (const bool has_round : {true, false}) {
    const std::string file = MakeStopFile(dir.File(has_round ? "round" : "echo"));
    RankProcesses::Options options = With(file);
    if (!has_round) options.env.insert({{"DDPRUN_ROUND", ""}, {"DDPRUN_EPOCH", ""}});
    RankProcesses ranks(options, [](int rank) {
      auto group = ProcessGroup::FromEnv({});
      if (!group.ok()) return Wrong(group.status().ToString());
      for (int step = 0; step < 20; ++step) {
        if (rank == 2 && step == 7) RequestStop(std::getenv("DDPRUN_STOP_FILE"));
        const int answer = ddp_should_stop();
        int32_t sum = rank;
        const absl::Status status =
            (*group)->communicator().AllReduce(&sum, 1, DType::kInt32, ReduceOp::kSum)->Wait();
        if (!status.ok()) return Wrong(status.ToString());
        if (sum != 3) return Wrong("a wrong sum");
        if (answer != (step >= 7 ? 1 : 0)) return Wrong(absl::StrCat(answer, " at step ", step));
      }
      RankProcesses::Say("well");
      return (*group)->Shutdown().ok() ? 0 : 1;
    });
    CheckAll(ranks, "well");
  }
}

TEST_CASE("stop: its keys in the store are no other group's") {
  for (const bool has_round : {true, false}) {
    RankProcesses::Options options = With("");
    if (!has_round) options.env.insert({{"DDPRUN_ROUND", ""}, {"DDPRUN_EPOCH", ""}});
    RankProcesses ranks(options, [has_round](int) {
      if (ddp_should_stop() != 0) return Wrong(ddp_last_error());
      auto store =
          Store::Connect("127.0.0.1", static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT"))),
                         std::chrono::seconds(30));
      if (!store.ok()) return Wrong(store.status().ToString());
      const std::string key = has_round ? "ddp/7.1/group/1/plan" : "ddp/session";
      if ((*store)->Check({key}).value_or(true)) return Wrong(key + " is there");
      if (!(*store)->Check({"stop/" + key}).value_or(false)) return Wrong(key + " is not there");
      RankProcesses::Say("well");
      return ddp_should_stop();  // nobody ends before all have looked
    });
    CheckAll(ranks, "well");
  }
}

TEST_CASE("stop: after a close all ranks may ask anew") {
  RankProcesses ranks(With(""), [](int) {
    ddp_should_stop_close();
    for (int i = 0; i < 3; ++i) {
      if (ddp_should_stop() != 0) return Wrong(ddp_last_error());
      ddp_should_stop_close();
    }
    ddp_should_stop_close();
    RankProcesses::Say("well");
    return 0;
  });
  CheckAll(ranks, "well");
}

TEST_CASE("stop: a rank that ends by exit() leaves, one that is killed dies; both are named") {
  for (const bool is_killed : {false, true}) {
    RankProcesses ranks(With(""), [is_killed](int rank) {
      if (ddp_should_stop() != 0) return Wrong(ddp_last_error());
      RankProcesses::Say("ready");
      if (rank == 1 && is_killed) pause();
      if (rank == 1) std::exit(0);
      const int answer = ddp_should_stop();
      RankProcesses::Say(absl::StrCat(answer, " ", ddp_last_error()));
      if (ddp_should_stop() != -1) return Wrong("it does not stay -1");
      return ddp_last_error() == std::string() ? 1 : 0;
    });
    for (int rank = 0; rank < kRanks; ++rank) CHECK(ranks.Hear(rank) == "ready");
    if (is_killed) ranks.Signal(1, SIGKILL);
    for (const int rank : {0, 2}) {
      const std::string said = ranks.Hear(rank);
      CAPTURE(said);
      CHECK(said.find("-1 ") == 0);
      CHECK(said == Contains("rank 1"));
      CHECK(said == Contains(is_killed ? "died" : "has left the group"));
      CHECK(ranks.Await(rank) == 0);
    }
    CHECK(ranks.Await(1) == (is_killed ? 128 + SIGKILL : 0));
  }
}

TEST_CASE(
    "stop: a forked child is refused, and its end does not take the parent out of the group") {
  RankProcesses ranks(With(""), [](int) {
    // Runs after the library's own handler, as it is registered before. The sanitizers' handler
    // would take what threads hold that only the parent has for lost.
    static bool is_refused = false;
    std::atexit([] { _exit(is_refused ? 0 : 1); });
    if (ddp_should_stop() != 0) return Wrong(ddp_last_error());
    const pid_t child = fork();
    if (child == 0) {
      const bool is_error = ddp_should_stop() == -1;
      const std::string why = ddp_last_error();
      is_refused = is_error && why.find("was forked from process") != std::string::npos;
      std::exit(1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) return Wrong("the child was not refused");
    if (ddp_should_stop() != 0) return Wrong(ddp_last_error());
    RankProcesses::Say("well");
    return 0;
  });
  CheckAll(ranks, "well");
}

TEST_CASE("stop: an environment that is wrong is -1 with the variable's name") {
  RankProcesses::Options options = With("");
  options.env["MASTER_PORT"] = "http";
  RankProcesses ranks(options, [](int) {
    const int answer = ddp_should_stop();
    RankProcesses::Say(absl::StrCat(answer, " ", ddp_last_error()));
    return 0;
  });
  CheckAll(ranks, "-1 MASTER_PORT=\"http\": expected a whole number from 1 to 65535");
}

TEST_CASE("stop: without a launcher there is one rank, which nobody asks") {
  RankProcesses::Options options = With("");
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    options.env[name] = "";
  }
  RankProcesses ranks(options, [](int) {
    RankProcesses::Say(absl::StrCat(ddp_should_stop(), ddp_stop_requested()));
    return 0;
  });
  CheckAll(ranks, "00");
}

}  // namespace
}  // namespace ddp::testing
