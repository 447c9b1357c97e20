// A rank that stops, a rank that dies, ranks that disagree: for every operation and backend, every
// other rank gets an error that names it.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"
#include "tests/support/contains.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankProcesses;
using ddprun::testing::RunRankThreads;

constexpr size_t kCount = 100'000;  // more than the paths for small operations take

struct Operation {
  const char* name;
  std::function<std::unique_ptr<Work>(Communicator&, std::vector<float>&, std::vector<float>&)> run;
};

const std::vector<Operation>& Operations() {
  static const auto* operations = new std::vector<Operation>{
      {"all-reduce",
       [](Communicator& group, std::vector<float>& a, std::vector<float>&) {
         return group.AllReduce(a.data(), kCount, DType::kFloat32, ReduceOp::kSum);
       }},
      {"broadcast",
       [](Communicator& group, std::vector<float>& a, std::vector<float>&) {
         return group.Broadcast(a.data(), kCount, DType::kFloat32, 0);
       }},
      {"all-gather",
       [](Communicator& group, std::vector<float>& a, std::vector<float>& b) {
         return group.AllGather(a.data(), b.data(), kCount, DType::kFloat32);
       }},
      {"reduce-scatter",
       [](Communicator& group, std::vector<float>& a, std::vector<float>& b) {
         return group.ReduceScatter(b.data(), a.data(), kCount, DType::kFloat32, ReduceOp::kSum);
       }},
      {"gather",
       [](Communicator& group, std::vector<float>& a, std::vector<float>& b) {
         return group.Gather(a.data(), b.data(), kCount, DType::kFloat32, 0);
       }},
      {"all-to-all",
       [](Communicator& group, std::vector<float>& a, std::vector<float>& b) {
         a.resize(b.size());
         return group.AllToAll(a.data(), b.data(), kCount, DType::kFloat32);
       }},
      // The victim has no message in it.
      {"send-receive",
       [](Communicator& group, std::vector<float>& a, std::vector<float>& b) {
         const bool is_first = group.rank() == 0;
         return group.SendReceive(a.data(), is_first ? 3 : -1, b.data(), group.rank() == 3 ? 0 : -1,
                                  kCount, DType::kFloat32);
       }},
      {"barrier", [](Communicator& group, std::vector<float>&,
                     std::vector<float>&) { return group.Barrier(); }},
  };
  return *operations;
}

struct Layout {
  const char* name;
  Backend backend;
  int ranks_per_host;
};
constexpr Layout kLayouts[] = {
    {"shm", Backend::kAuto, 4}, {"tcp", Backend::kTcp, 4}, {"2 x 2", Backend::kAuto, 2}};
constexpr int kRanks = 4;
constexpr int kVictim = 2;

// The body of each rank: one operation that succeeds, one at which the victim is stopped or dead.
int RunRank(const Layout& layout, const Operation& operation, std::chrono::milliseconds timeout,
            int rank) {
  auto group = ProcessGroup::FromEnv({layout.backend, std::chrono::seconds(60)});
  if (!group.ok()) {
    RankProcesses::Say(group.status().ToString());
    return 1;
  }
  (*group)->communicator().Barrier()->Wait().IgnoreError();
  std::vector<float> a(kCount), b(kCount * kRanks);
  absl::Status status = operation.run((*group)->communicator(), a, b)->Wait();
  // From here on, so that a slow machine does not end what is to succeed.
  (*group)->communicator().SetTimeout(timeout);
  RankProcesses::Say(status.ok() ? "ready" : status.ToString());
  if (rank == kVictim) {
    pause();
    return 1;
  }
  status = operation.run((*group)->communicator(), a, b)->Wait();
  RankProcesses::Say(status.ToString());
  // The error stays, in error() and for every later call.
  const bool is_final = operation.run((*group)->communicator(), a, b)->Wait() == status &&
                        (*group)->communicator().error() == status;
  return is_final ? 0 : 3;
}

// All operations at once, each with a group of its own: a process's place says which.
void CheckVictimIsNamed(int signal, const std::string& code, const std::string& timed_out,
                        std::chrono::milliseconds timeout) {
  const int groups = static_cast<int>(Operations().size());
  for (const Layout& layout : kLayouts) {
    CAPTURE(std::string(layout.name));
    RankProcesses::Options options;
    options.world_size = groups * kRanks;
    options.env_of_rank = [&](int place) {
      const int rank = place % kRanks;
      return std::map<std::string, std::string>{
          {"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(kRanks)},
          {"LOCAL_WORLD_SIZE", std::to_string(kRanks)},
          {"DDPRUN_ROUND", std::to_string(place / kRanks)},
          {"DDPRUN_HOST_ID", "host" + std::to_string(rank / layout.ranks_per_host)}};
    };
    RankProcesses places(options, [&](int place) {
      const Operation& operation = Operations()[static_cast<size_t>(place / kRanks)];
      return RunRank(layout, operation, timeout, place % kRanks);
    });
    for (int group = 0; group < groups; ++group) {
      const int victim = group * kRanks + kVictim;
      REQUIRE(places.Hear(victim) == "ready");
      places.Signal(victim, signal);
    }
    for (int place = 0; place < groups * kRanks; ++place) {
      if (place % kRanks == kVictim) continue;
      const std::string operation = Operations()[static_cast<size_t>(place / kRanks)].name;
      CAPTURE(operation);
      CAPTURE(place % kRanks);
      REQUIRE(places.Hear(place) == "ready");
      const std::string said = places.Hear(place);
      CAPTURE(said);
      CHECK(said == Contains(code));
      // A death that was seen before the operation began belongs to none.
      const std::string victim = std::to_string(places.pid(place / kRanks * kRanks + kVictim));
      CHECK(
          (said == Contains(operation) || said == "UNAVAILABLE: rank 2 (pid " + victim + ") died"));
      CHECK(said == Contains("rank 2"));
      CHECK(said == Contains(timed_out));
      CHECK(places.Await(place) == 0);
    }
  }
}

TEST_CASE("failures: a rank that stops is named when the time is over") {
  CheckVictimIsNamed(SIGSTOP, "DEADLINE_EXCEEDED", "timed out after 3 s: rank 2 did not arrive",
                     std::chrono::seconds(3));
}

TEST_CASE("failures: a rank that dies is named at once") {
  // With this timeout the test would never end if the death were not noticed.
  CheckVictimIsNamed(SIGKILL, "UNAVAILABLE", " died", std::chrono::hours(1));
}

void CheckEveryLayout(const std::function<void(Communicator&)>& body) {
  RunRankThreads({.nodes = {3}}, body);
  RunRankThreads({.nodes = {3}, .use_tcp = true}, body);
  RunRankThreads({.nodes = {2, 1}}, body);
  RunRankThreads({.nodes = {2, 1}, .round_key = ddprun::testing::kTestRoundKey}, body);
}

TEST_CASE("failures: ranks that call different operations are told what each called") {
  CheckEveryLayout([](Communicator& group) {
    std::vector<float> data(8);
    const size_t count = group.rank() == 1 ? 7 : 8;
    const auto first = group.AllReduce(data.data(), count, DType::kFloat32, ReduceOp::kSum);
    const auto second = group.Barrier();
    absl::Status status = first->Wait();
    CAPTURE(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    const absl::Status queued = second->Wait();
    CHECK(absl::IsFailedPrecondition(queued));
    CHECK(queued.message() == Contains(absl::StrCat(": ", status.message())));
    CHECK(queued.message().find("the group has ended before ") == 0);
    CHECK(status.message().find("the ranks call different operations: rank ") == 0);
    CHECK(status.message() == Contains("all-reduce #1 (float32 x 8, sum)"));
    CHECK(status.message() == Contains("rank 1 all-reduce #1 (float32 x 7, sum)"));
    const absl::Status later = group.Barrier()->Wait();
    CHECK(absl::IsFailedPrecondition(later));
    CHECK(later.message() ==
          absl::StrCat("the group has ended before this call: ", status.message()));
    const absl::Status message = group.Send(data.data(), 1, DType::kFloat32, 0, 0)->Wait();
    CHECK(message.ToString() == later.ToString());
  });
  CheckEveryLayout([](Communicator& group) {
    std::vector<float> data(8);
    const ReduceOp op = group.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum;
    absl::Status status = group.AllReduce(data.data(), 8, DType::kFloat32, op)->Wait();
    CAPTURE(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message() == Contains("rank 1 all-reduce #1 (float32 x 8, max)"));
    CHECK(status.message() == Contains("all-reduce #1 (float32 x 8, sum)"));
  });
  CheckEveryLayout([](Communicator& group) {
    std::vector<float> data(8);
    absl::Status status = group.rank() == 2
                              ? group.Barrier()->Wait()
                              : group.Broadcast(data.data(), 8, DType::kFloat32, 0)->Wait();
    CAPTURE(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message() == Contains("rank 2 barrier #1"));
  });
}

TEST_CASE("failures: memory that a rank cannot have ends the group") {
  CheckEveryLayout([](Communicator& group) {
    const absl::Status status = group.Allocate(size_t{1} << 46).status();
    CHECK_MESSAGE(absl::IsResourceExhausted(status), status.ToString());
    CHECK(group.Barrier()->Wait() == status);
  });
}

// Refused calls, each with what is said of it, and then the group's next operation.
void MakeRefusedCalls(Communicator& group) {
  const size_t huge = SIZE_MAX / 2 / sizeof(float);  // the parts of 3 ranks overflow
  const std::string too_many = "ranks: more bytes than can be addressed";
  const std::string of_group = " in a group of " + std::to_string(group.world_size()) + " ranks";
  float data[8] = {};
  const std::pair<absl::Status, std::string> refusals[] = {
      {group.AllReduce(nullptr, 8, DType::kFloat32, ReduceOp::kMax)->Wait(),
       "all-reduce (float32 x 8, max): the input is a null pointer"},
      {group.ReduceScatter(data, nullptr, 1, DType::kFloat32, ReduceOp::kSum)->Wait(),
       "reduce-scatter (float32 x 1, sum): the output is a null pointer"},
      {group.Broadcast(data, 8, DType::kFloat32, group.world_size())->Wait(),
       "broadcast from rank " + std::to_string(group.world_size()) + of_group},
      {group.Broadcast(data, 8, DType::kFloat32, -1)->Wait(), "broadcast from rank -1" + of_group},
      {group.AllReduce(data, huge + 1, DType::kFloat32, ReduceOp::kSum)->Wait(), too_many},
      {group.AllGather(data, data, huge, DType::kFloat32)->Wait(), too_many},
      {group.Allocate(SIZE_MAX).status(), too_many},
      {group.Allocate(SIZE_MAX / 2).status(), too_many},
  };
  for (const auto& [status, words] : refusals) {
    CAPTURE(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message() == Contains(words));
  }
  CHECK(group.error().ok());
}

// Whether the next operations give the right results. Counts beyond and below the small paths.
bool SumsAreRight(Communicator& group) {
  const float mine = static_cast<float>(group.rank() + 1);
  const int size = group.world_size();
  const float sum = static_cast<float>(size * (size + 1)) / 2;
  for (size_t count : {size_t{8}, kCount}) {
    std::vector<float> data(count, mine);
    absl::Status status =
        group.AllReduce(data.data(), count, DType::kFloat32, ReduceOp::kSum)->Wait();
    const auto buffer = group.Allocate(count * sizeof(float));
    if (!status.ok() || !buffer.ok() || data != std::vector<float>(count, sum)) return false;
    float* const shared = static_cast<float*>((*buffer)->data());
    std::fill(shared, shared + count, mine);
    status = group.AllReduce(shared, count, DType::kFloat32, ReduceOp::kMax)->Wait();
    if (!status.ok() || shared[count - 1] != static_cast<float>(size)) return false;
  }
  return group.error().ok();
}

TEST_CASE("failures: a refused call leaves the group as it was, whichever ranks make it") {
  CheckEveryLayout([](Communicator& group) {
    MakeRefusedCalls(group);
    CHECK(SumsAreRight(group));
    if (group.rank() == 1) MakeRefusedCalls(group);
    CHECK(SumsAreRight(group));
  });
}

TEST_CASE("failures: between processes, too, the call after a refused one meets the others'") {
  for (const Layout& layout : kLayouts) {
    CAPTURE(std::string(layout.name));
    RankProcesses::Options options;
    options.world_size = kRanks;
    options.env_of_rank = [&](int rank) {
      return std::map<std::string, std::string>{
          {"DDPRUN_HOST_ID", "host" + std::to_string(rank / layout.ranks_per_host)}};
    };
    RankProcesses ranks(options, [&](int rank) {
      auto group = ProcessGroup::FromEnv({layout.backend, std::chrono::seconds(60)});
      if (!group.ok()) return 1;
      Communicator& communicator = (*group)->communicator();
      for (int i = 0; i < 3; ++i) {
        std::vector<float> data(kCount, 1);
        const auto work =
            rank == 0 ? communicator.AllReduce(nullptr, kCount, DType::kFloat32, ReduceOp::kProduct)
                      : nullptr;
        if (work != nullptr && !absl::IsInvalidArgument(work->Wait())) return 2;
        if (!SumsAreRight(communicator)) return 3;
      }
      return (*group)->Shutdown().ok() ? 0 : 4;
    });
    for (int rank = 0; rank < kRanks; ++rank) CHECK(ranks.Await(rank) == 0);
  }
}

TEST_CASE("failures: a rank that makes no other call after a refused one is named") {
  const ddprun::testing::RankThreadsOptions layouts[] = {
      {.nodes = {3}}, {.nodes = {3}, .use_tcp = true}, {.nodes = {2, 1}}};
  for (const auto& layout : layouts) {
    std::latch others(2);
    RunRankThreads(layout, [&others](Communicator& group) {
      CHECK(group.Barrier()->Wait().ok());
      group.SetTimeout(std::chrono::seconds(2));
      std::vector<float> data(8);
      float* mine = group.rank() == 1 ? nullptr : data.data();
      absl::Status status = group.AllReduce(mine, 8, DType::kFloat32, ReduceOp::kSum)->Wait();
      CAPTURE(status.ToString());
      if (group.rank() == 1) {
        CHECK(absl::IsInvalidArgument(status));
        return others.wait();  // they end by their timeout
      }
      CHECK(absl::IsDeadlineExceeded(status));
      CHECK(status.message() == Contains("rank 1 did not arrive"));
      others.count_down();
    });
  }
}

TEST_CASE("failures: nothing at null pointers is no failure") {
  CheckEveryLayout([](Communicator& group) {
    std::vector<std::unique_ptr<Work>> works;
    works.push_back(group.AllReduce(nullptr, 0, DType::kFloat16, ReduceOp::kAverage));
    works.push_back(group.Broadcast(nullptr, 0, DType::kUint8, 2));
    works.push_back(group.AllGather(nullptr, nullptr, 0, DType::kInt64));
    works.push_back(group.ReduceScatter(nullptr, nullptr, 0, DType::kFloat32, ReduceOp::kSum));
    works.push_back(group.Barrier());
    for (auto& work : works) {
      absl::Status status = work->Wait();
      CHECK_MESSAGE(status.ok(), status.ToString());
    }
    CHECK(group.error().ok());
  });
}

TEST_CASE("failures: a buffer that the machine has no memory for is refused on every rank") {
  CheckEveryLayout([](Communicator& group) {
    const absl::Status status = group.Allocate(size_t{1} << 44).status();
    CHECK_MESSAGE(absl::IsResourceExhausted(status), status.ToString());
    CHECK(status.message() == Contains(" bytes, and "));
  });
}

TEST_CASE("failures: an abort from another thread ends the operation on every rank") {
  CheckEveryLayout([](Communicator& group) {
    std::vector<float> data(kCount);
    CHECK(group.Barrier()->Wait().ok());
    absl::Status status;
    if (group.rank() == 1) {
      // This rank never calls, so the others can only end by the abort.
      std::thread([&] { group.Abort("loss is not a number"); }).join();
      status = group.Barrier()->Wait();
    } else {
      status = group.AllReduce(data.data(), kCount, DType::kFloat32, ReduceOp::kSum)->Wait();
    }
    CAPTURE(status.ToString());
    CHECK(absl::IsAborted(status));
    CHECK(status.message() == "aborted by rank 1: loss is not a number");
    CHECK(group.error() == status);
  });
}

TEST_CASE("failures: a rank that leaves in order is not called dead") {
  CheckEveryLayout([](Communicator& group) {
    CHECK(group.Barrier()->Wait().ok());
    auto& owned = static_cast<internal::GroupCommunicator&>(group);
    if (group.rank() == 1) return owned.Leave();
    absl::Status status = group.Barrier()->Wait();
    CAPTURE(status.ToString());
    CHECK(absl::IsUnavailable(status));
    CHECK(status.message() == Contains("rank 1"));
    CHECK(status.message() == Contains("has left the group"));
  });
}

TEST_CASE("failures: ranks that do not come are named when the group forms") {
  std::vector<internal::GroupMember> members(2);
  for (int i = 0; i < 2; ++i) {
    members[i].rank = 2 * i;
    members[i].world_size = 4;
    members[i].timeout = std::chrono::seconds(5);  // both must have come before
    members[i].capabilities.host = "host";
  }
  for (const absl::Status& status : ddprun::testing::FormRankThreads(members)) {
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK(status.message() ==
          "forming the group of 4 ranks timed out after 5 s: ranks 1 and 3 did not come");
  }
}

TEST_CASE("failures: ranks that want different backends are refused alike") {
  std::vector<internal::GroupMember> members(2);
  for (int i = 0; i < 2; ++i) {
    members[i].rank = i;
    members[i].world_size = 2;
    members[i].timeout = std::chrono::seconds(30);
    members[i].capabilities.host = "host";
  }
  members[1].capabilities.backend = Backend::kTcp;
  for (const absl::Status& status : ddprun::testing::FormRankThreads(members)) {
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(status.message() ==
          "the ranks ask for different backends: rank 0 for auto, rank 1 for tcp");
  }
}

}  // namespace
}  // namespace ddp::testing
