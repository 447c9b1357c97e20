// Groups within a group, and groups of processes that share nothing but a store.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"
#include "tests/support/contains.h"
#include "tests/support/expect.h"
#include "tests/support/files.h"
#include "tests/support/rank_processes.h"
#include "tests/support/store_server.h"
#include "tests/support/temp_dir.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankProcesses;
using Group = std::unique_ptr<ProcessGroup>;

constexpr std::chrono::seconds kTimeout(60);
constexpr size_t kCount = 70'000;  // more than the paths for small operations take

struct Layout {
  Backend backend = Backend::kAuto;
  int ranks_per_host = 4;
};
constexpr Layout kLayouts[] = {{}, {.backend = Backend::kTcp}, {.ranks_per_host = 2}};

RankProcesses::Options OptionsOf(const Layout& layout, int world_size = 4) {
  RankProcesses::Options options;
  options.world_size = world_size;
  options.env_of_rank = [layout](int rank) {
    return std::map<std::string, std::string>{
        {"DDPRUN_HOST_ID", absl::StrCat("host", rank / layout.ranks_per_host)}};
  };
  return options;
}

// Every rank says nothing and ends with 0.
void CheckRanks(const RankProcesses::Options& options, const RankProcesses::Body& body) {
  RankProcesses ranks(options, body);
  for (int rank = 0; rank < options.world_size; ++rank) {
    CAPTURE(rank);
    CHECK(ranks.Hear(rank) == "");
    CHECK(ranks.Await(rank) == 0);
  }
}

Group FromEnv(Backend backend = Backend::kAuto) {
  auto group = ProcessGroup::FromEnv({backend, kTimeout});
  if (group.ok()) return *std::move(group);
  RankProcesses::Say(group.status().ToString());
  return nullptr;
}

// What the ranks of `group` have in all where each has `value`.
int64_t SumOf(ProcessGroup& group, int64_t value) {
  std::vector<int64_t> data(kCount, value);
  const absl::Status status =
      group.communicator().AllReduce(data.data(), kCount, DType::kInt64, ReduceOp::kSum)->Wait();
  if (!status.ok()) return -1;
  return data == std::vector<int64_t>(kCount, data[0]) ? data[0] : -2;
}

// The even ranks' group and the odd ranks', of which one is null.
struct Halves {
  Group even, odd;
  ProcessGroup& mine() { return even != nullptr ? *even : *odd; }
};

int Halve(ProcessGroup& group, Halves* halves) {
  auto even = group.Subgroup({2, 0});
  auto odd = group.Subgroup({1, 3});
  EXPECT(even.ok() && odd.ok());
  *halves = {*std::move(even), *std::move(odd)};
  EXPECT((halves->even != nullptr) == (group.rank() % 2 == 0));
  EXPECT((halves->odd != nullptr) == (group.rank() % 2 == 1));
  return 0;
}

int WorkInBoth(Backend backend, int rank) {
  const Group all = FromEnv(backend);
  Halves halves;
  EXPECT(all != nullptr && Halve(*all, &halves) == 0);
  ProcessGroup& mine = halves.mine();
  EXPECT(mine.rank() == rank / 2 && mine.world_size() == 2 && mine.local_rank() == rank);
  // Several operations of both groups under way at a time, waited for from the last on.
  std::vector<std::vector<int64_t>> data;
  for (int i = 0; i < 8; ++i) data.emplace_back(kCount, rank + i);
  std::vector<std::unique_ptr<Work>> works;
  for (int i = 0; i < 8; ++i) {
    Communicator& communicator = (i % 2 == 0 ? mine : *all).communicator();
    int64_t* values = data[static_cast<size_t>(i)].data();
    works.push_back(communicator.AllReduce(values, kCount, DType::kInt64, ReduceOp::kSum));
  }
  for (size_t i = works.size(); i-- > 0;) EXPECT(works[i]->Wait().ok());
  for (int i = 0; i < 8; ++i) {
    const int64_t expected = i % 2 == 0 ? 2 * (rank % 2) + 2 + 2 * i : 6 + 4 * i;
    EXPECT(data[static_cast<size_t>(i)] == std::vector<int64_t>(kCount, expected));
  }
  // Keys of its own.
  if (mine.rank() == 0) EXPECT(mine.store()->Set("who", absl::StrCat(rank)).ok());
  EXPECT(mine.store()->Get("who", kTimeout).value_or("") == absl::StrCat(rank % 2));
  EXPECT(!all->store()->Check({"who"}).value_or(true));
  // It ends before the other, or after it.
  if (rank % 2 == 0) EXPECT(mine.Shutdown().ok());
  EXPECT(SumOf(*all, 1) == 4);
  EXPECT(all->Shutdown().ok());
  if (rank % 2 == 1) EXPECT(SumOf(mine, 1) == 2 && mine.Shutdown().ok());
  return 0;
}

TEST_CASE("subgroup: two halves work at once, and between each other with the whole") {
  for (const Layout& layout : kLayouts) {
    CheckRanks(OptionsOf(layout), [&](int rank) { return WorkInBoth(layout.backend, rank); });
  }
}

TEST_CASE("subgroup: of one, of all and of a subgroup, and the same ranks again") {
  CheckRanks(OptionsOf({}), [](int rank) {
    const Group all = FromEnv();
    EXPECT(all != nullptr);
    auto alone = all->Subgroup({1});
    EXPECT(alone.ok() && (*alone != nullptr) == (rank == 1));
    if (rank == 1) EXPECT(SumOf(**alone, 5) == 5 && (*alone)->store()->Set("a", "b").ok());
    auto three = all->Subgroup({3, 1, 2});
    EXPECT(three.ok() && (*three == nullptr) == (rank == 0));
    auto again = all->Subgroup({0, 1, 2, 3});
    EXPECT(again.ok() && SumOf(**again, rank) == 6);
    if (rank == 0) return 0;
    EXPECT((*three)->rank() == rank - 1 && SumOf(**three, rank) == 6);
    auto inner = (*three)->Subgroup({0, 2});  // ranks 1 and 3
    EXPECT(inner.ok() && (*inner == nullptr) == (rank == 2));
    if (*inner != nullptr) EXPECT(SumOf(**inner, rank) == 4);
    return 0;
  });
}

TEST_CASE("subgroup: without a launcher there is one rank to choose from") {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  const Group group = FromEnv();
  REQUIRE(group != nullptr);
  auto same = group->Subgroup({0});
  REQUIRE(same.ok());
  CHECK((*same)->store() == nullptr);
  CHECK(SumOf(**same, 3) == 3);
  CHECK((*same)->Shutdown().ok());
  CHECK(SumOf(*group, 3) == 3);
}

bool IsRefused(const absl::StatusOr<Group>& group, const std::string& words) {
  if (absl::IsInvalidArgument(group.status()) && group.status().message() == words) return true;
  RankProcesses::Say(group.status().ToString());
  return false;
}

TEST_CASE("subgroup: a wrong list is refused on its rank alone, another list on all") {
  CheckRanks(OptionsOf({}), [](int rank) {
    const Group all = FromEnv();
    EXPECT(all != nullptr);
    if (rank == 2) {
      EXPECT(IsRefused(all->Subgroup({}),
                       "subgroup of ranks {} in a group of 4 ranks: it has no "
                       "ranks"));
      EXPECT(IsRefused(all->Subgroup({4, 0}),
                       "subgroup of ranks {0, 4} in a group of 4 ranks: there is no rank 4"));
      EXPECT(IsRefused(all->Subgroup({0, -1}),
                       "subgroup of ranks {-1, 0} in a group of 4 ranks: there is no rank -1"));
      EXPECT(IsRefused(all->Subgroup({3, 1, 3}),
                       "subgroup of ranks {1, 3, 3} in a group of 4 ranks: rank 3 is named twice"));
    }
    const std::vector<int> ranks = rank == 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 2};
    EXPECT(IsRefused(all->Subgroup(ranks),
                     absl::StrCat("subgroup of ranks {0, ", ranks[1],
                                  "}: not all ranks of the group have asked for these")));
    auto good = all->Subgroup({0, 2});
    EXPECT(good.ok() && (*good == nullptr || SumOf(**good, 1) == 2));
    EXPECT(SumOf(*all, 1) == 4);
    return 0;
  });
}

TEST_CASE("subgroup: one that is aborted leaves the others as they are") {
  for (const Layout& layout : kLayouts) {
    CheckRanks(OptionsOf(layout), [&](int rank) {
      const Group all = FromEnv(layout.backend);
      Halves halves;
      EXPECT(all != nullptr && Halve(*all, &halves) == 0);
      if (rank == 0) halves.mine().communicator().Abort("enough of it");
      if (rank % 2 == 0) {
        EXPECT(absl::IsAborted(halves.mine().communicator().Barrier()->Wait()));
      } else {
        EXPECT(SumOf(halves.mine(), 1) == 2);
      }
      EXPECT(SumOf(*all, 1) == 4);
      auto anew = all->Subgroup({0, 2});
      EXPECT(anew.ok() && (*anew == nullptr || SumOf(**anew, 1) == 2));
      return 0;
    });
  }
}

TEST_CASE("subgroup: a rank that dies ends those that it is in, and the launcher hears which") {
  for (const Layout& layout : kLayouts) {
    const ddprun::testing::TempDir folder;
    RankProcesses::Options options = OptionsOf(layout);
    const auto hosts = options.env_of_rank;
    options.env_of_rank = [&](int rank) {
      auto env = hosts(rank);
      env["TORCHELASTIC_ERROR_FILE"] = folder.File(absl::StrCat("error.", rank));
      return env;
    };
    RankProcesses ranks(options, [&](int rank) {
      const Group all = FromEnv(layout.backend);
      Halves halves;
      EXPECT(all != nullptr && Halve(*all, &halves) == 0);
      RankProcesses::Say("ready");
      if (rank == 2) return pause();  // until it is killed
      if (rank == 0) {
        RankProcesses::Say(halves.mine().communicator().Barrier()->Wait().ToString());
      }
      EXPECT(absl::IsUnavailable(all->communicator().Barrier()->Wait()));
      if (rank != 0) EXPECT(SumOf(halves.mine(), 1) == 2);
      return 0;
    });
    for (int rank = 0; rank < 4; ++rank) REQUIRE(ranks.Hear(rank) == "ready");
    ranks.Signal(2, SIGKILL);
    const std::string said = ranks.Hear(0);
    CAPTURE(said);
    CHECK(said == Contains("UNAVAILABLE"));
    CHECK(said == Contains("rank 1"));  // of the subgroup
    CHECK(ranks.Await(0) == 0);
    const std::string note = ddprun::testing::ReadFile(folder.File("error.0"));
    CAPTURE(note);
    CHECK(note == Contains("\"left_peer\": 2}"));
    for (int rank : {1, 3}) CHECK(ranks.Await(rank) == 0);
  }
}

TEST_CASE("process group: a store, a rank and a size make a group, several at a time") {
  CheckRanks(OptionsOf({}, 4), [](int rank) {
    auto store =
        Store::Connect(std::getenv("MASTER_ADDR"),
                       static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT"))), kTimeout);
    EXPECT(store.ok());
    for (const char* name : {"RANK", "WORLD_SIZE", "DDPRUN_ROUND"}) unsetenv(name);
    const ProcessGroupOptions options{.backend = Backend::kAuto, .timeout = kTimeout};
    PrefixStore half(absl::StrCat("half ", rank / 2), **store);
    for (int i = 0; i < 2; ++i) {  // one after the other, in one key space
      auto mine = ProcessGroup::New(half, rank % 2, 2, options);
      EXPECT(mine.ok() && (*mine)->local_rank() == 0);
      auto all = ProcessGroup::New(**store, 3 - rank, 4, options);
      EXPECT(all.ok() && (*all)->rank() == 3 - rank);
      EXPECT(SumOf(**mine, rank) == (rank < 2 ? 1 : 5) && SumOf(**all, rank) == 6);
      auto inner = (*all)->Subgroup({0, 3});
      EXPECT(inner.ok() && (*inner == nullptr || SumOf(**inner, rank) == 3));
    }
    return 0;
  });
}

TEST_CASE("process group: a rank that is none is refused before anything is asked") {
  const auto server = ddprun::testing::StartStoreServer();
  auto store = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE(store.ok());
  for (const auto& [rank, size] : {std::pair(0, 0), std::pair(-1, 2), std::pair(2, 2)}) {
    auto group = ProcessGroup::New(**store, rank, size, {});
    CHECK(absl::IsInvalidArgument(group.status()));
    CHECK(group.status().message() == absl::StrCat("a process group as rank ", rank, " of ", size));
  }
  CHECK(ProcessGroup::New(**store, 0, 2, {.job_ranks = {5}}).status().message() ==
        "a process group of 2 ranks with 1 job_ranks");
}

}  // namespace
}  // namespace ddp::testing
