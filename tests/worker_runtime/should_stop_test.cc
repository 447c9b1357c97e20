// ProcessGroup::ShouldStop() between real processes, over every way that ranks talk.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"
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
using Variables = std::map<std::string, std::string>;

constexpr std::chrono::seconds kTimeout(30);
constexpr int kRanks = 4;

// How the ranks talk; two hosts have a stop file each.
struct Way {
  const char* name;
  Backend backend;
  int ranks_per_host;
};
constexpr Way kWays[] = {
    {"shm", Backend::kAuto, 4}, {"tcp", Backend::kTcp, 4}, {"shm and tcp", Backend::kAuto, 2}};

std::unique_ptr<ProcessGroup> Made(Backend backend) {
  auto group = ProcessGroup::FromEnv({backend, kTimeout});
  if (group.ok()) return std::move(*group);
  RankProcesses::Say(group.status().ToString());
  return nullptr;
}

// A job whose nodes have their stop files, as from agents.
class StopJob {
 public:
  StopJob(const Way& way, const RankProcesses::Body& body) {
    for (int host = 0; host * way.ranks_per_host < kRanks; ++host) {
      files_.push_back(MakeStopFile(dir_.File(absl::StrCat("stop", host))));
    }
    RankProcesses::Options options;
    options.world_size = kRanks;
    options.env_of_rank = [&](int rank) {
      const int host = rank / way.ranks_per_host;
      return Variables{{"DDPRUN_HOST_ID", absl::StrCat("host", host)},
                       {"DDPRUN_STOP_FILE", files_[static_cast<size_t>(host)]}};
    };
    ranks_ = std::make_unique<RankProcesses>(options, body);
  }

  RankProcesses& ranks() { return *ranks_; }
  const std::vector<std::string>& files() const { return files_; }

 private:
  TempDir dir_;
  std::vector<std::string> files_;
  std::unique_ptr<RankProcesses> ranks_;
};

// Asks until the answer is true; which call that was, or -1 after an error, which it says.
int FirstTrue(ProcessGroup& group, const std::function<void(int call)>& before) {
  for (int call = 0;; ++call) {
    before(call);
    const absl::StatusOr<bool> answer = group.ShouldStop();
    if (!answer.ok()) {
      RankProcesses::Say(answer.status().ToString());
      return -1;
    }
    if (*answer) return call;
  }
}

TEST_CASE("should stop: all ranks hear it at the same call, that of the rank whose flag is set") {
  std::minstd_rand random(3);
  for (const Way& way : kWays) {
    for (int asker = 0; asker < kRanks; ++asker) {
      const int at = std::uniform_int_distribution<int>(0, 50)(random);
      CAPTURE(way.name);
      CAPTURE(asker);
      StopJob job(way, [&](int rank) {
        auto group = Made(way.backend);
        if (group == nullptr) return 1;
        const int call = FirstTrue(*group, [&](int next) {
          if (rank == asker && next == at) RequestStop(std::getenv("DDPRUN_STOP_FILE"));
        });
        RankProcesses::Say(absl::StrCat(call));
        return group->Shutdown().ok() ? 0 : 1;
      });
      // All have looked for the call before this one when the asker is done with that.
      for (int rank = 0; rank < kRanks; ++rank) {
        CHECK(job.ranks().Hear(rank) == absl::StrCat(at));
        CHECK(job.ranks().Await(rank) == 0);
      }
      for (const std::string& file : job.files()) CHECK(HasHeardStop(file));
    }
  }
}

TEST_CASE("should stop: an agent may ask at any moment") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    StopJob job(way, [&](int) {
      auto group = Made(way.backend);
      if (group == nullptr) return 1;
      const int call = FirstTrue(*group, [](int next) {
        if (next == 20) RankProcesses::Say("asking");
      });
      RankProcesses::Say(absl::StrCat(call));
      return group->Shutdown().ok() ? 0 : 1;
    });
    for (int rank = 0; rank < kRanks; ++rank) CHECK(job.ranks().Hear(rank) == "asking");
    for (const std::string& file : job.files()) CHECK(!HasHeardStop(file));
    RequestStop(job.files().back());
    const std::string call = job.ranks().Hear(0);
    int number = 0;
    CHECK(absl::SimpleAtoi(call, &number));
    CHECK(number >= 20);
    for (int rank = 1; rank < kRanks; ++rank) CHECK(job.ranks().Hear(rank) == call);
    for (int rank = 0; rank < kRanks; ++rank) CHECK(job.ranks().Await(rank) == 0);
    for (const std::string& file : job.files()) CHECK(HasHeardStop(file));
  }
}

TEST_CASE("should stop: once true it stays true, also when the other ranks have gone") {
  StopJob job(kWays[0], [](int rank) {
    auto group = Made(Backend::kAuto);
    if (group == nullptr) return 1;
    if (rank == 1) RequestStop(std::getenv("DDPRUN_STOP_FILE"));
    // Nobody looks for the first call before the flag is set.
    if (!group->communicator().Barrier()->Wait().ok()) return 2;
    if (FirstTrue(*group, [](int) {}) != 0) return 3;
    if (rank != 0) {
      (void)group.release();  // ends without a word
      return 0;
    }
    RankProcesses::Say("true");
    // Asked again when the others have ended, which an operation would notice.
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (group->communicator().error().ok() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    RankProcesses::Say(group->ShouldStop().value_or(false) ? "true" : "no answer");
    return group->communicator().error().ok() ? 4 : 0;
  });
  CHECK(job.ranks().Hear(0) == "true");
  CHECK(job.ranks().Hear(0) == "true");
  for (int rank = 0; rank < kRanks; ++rank) CHECK(job.ranks().Await(rank) == 0);
}

TEST_CASE(
    "should stop: a rank that dies instead of asking is an error on the others, which names it") {
  for (const Way& way : kWays) {
    CAPTURE(way.name);
    StopJob job(way, [&](int rank) {
      auto group = Made(way.backend);
      if (group == nullptr) return 1;
      FirstTrue(*group, [&](int call) {
        if (call != 5) return;
        RankProcesses::Say("there");
        if (rank == 1) pause();
      });
      const absl::StatusOr<bool> again = group->ShouldStop();
      RankProcesses::Say(again.ok() ? "an answer" : "no answer");
      return 0;
    });
    for (int rank = 0; rank < kRanks; ++rank) CHECK(job.ranks().Hear(rank) == "there");
    job.ranks().Signal(1, SIGKILL);
    for (const int rank : {0, 2, 3}) {
      const std::string said = job.ranks().Hear(rank);
      CAPTURE(said);
      CHECK(said.find("UNAVAILABLE") == 0);
      CHECK(said == Contains("rank 1"));
      CHECK(job.ranks().Hear(rank) == "no answer");
      CHECK(job.ranks().Await(rank) == 0);
    }
  }
}

TEST_CASE("should stop: a group of one asks its own agent alone, without a store") {
  TempDir dir;
  const std::string file = MakeStopFile(dir.File("stop"));
  RankProcesses::Options options;
  options.world_size = 1;
  options.env = {{"DDPRUN_STOP_FILE", file}, {"MASTER_ADDR", ""}, {"MASTER_PORT", ""}};
  RankProcesses ranks(options, [](int) {
    auto group = Made(Backend::kAuto);
    if (group == nullptr) return 1;
    const int call = FirstTrue(*group, [](int next) {
      if (next == 3) RequestStop(std::getenv("DDPRUN_STOP_FILE"));
    });
    RankProcesses::Say(absl::StrCat(call));
    return 0;
  });
  CHECK(ranks.Hear(0) == "3");
  CHECK(ranks.Await(0) == 0);
  CHECK(HasHeardStop(file));
}

TEST_CASE("should stop: without an agent that can ask, or with a file that is none, it is false") {
  for (const std::string file : {"", "/nowhere/stop"}) {
    RankProcesses::Options options;
    options.env = {{"DDPRUN_STOP_FILE", file}};
    RankProcesses ranks(options, [](int) {
      auto group = Made(Backend::kAuto);
      if (group == nullptr) return 1;
      for (int call = 0; call < 10; ++call) {
        const absl::StatusOr<bool> answer = group->ShouldStop();
        if (!answer.ok() || *answer) return 2;
      }
      return group->Shutdown().ok() ? 0 : 3;
    });
    for (const int rank : {0, 1}) CHECK(ranks.Await(rank) == 0);
  }
}

}  // namespace
}  // namespace ddp::testing
