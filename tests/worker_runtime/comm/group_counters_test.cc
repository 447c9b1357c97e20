// What the ranks of a group tell their agents, in pages as an agent makes them.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ddp/process_group.h"
#include "launcher/status/rank_page.h"
#include "rendezvous/base/check.h"
#include "tests/support/rank_processes.h"
#include "worker_runtime/counters.h"

namespace ddp::testing {
namespace {

using ddprun::launcher::GroupCounts;
using ddprun::launcher::RankCounts;
using ddprun::launcher::RankPage;
using ddprun::testing::RankProcesses;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

// Lets ranks go on, one for each byte.
class Gate {
 public:
  Gate() { DDP_CHECK(pipe(ends_.data()) == 0); }
  void Open() const { DDP_CHECK(write(ends_[1], "x", 1) == 1); }
  void Pass() const {
    char byte = 0;
    DDP_CHECK(read(ends_[0], &byte, 1) == 1);
  }

 private:
  std::array<int, 2> ends_;
};

// Ranks with a page each, which outlives them.
struct Job {
  Job(int world_size, const std::map<std::string, std::string>& env_of_rank1,
      const RankProcesses::Body& body) {
    for (int rank = 0; rank < world_size; ++rank) pages.push_back(*RankPage::Make());
    RankProcesses::Options options{.world_size = world_size};
    options.env_of_rank = [&](int rank) {
      std::map<std::string, std::string> env;
      if (rank == 1) env = env_of_rank1;
      const int fd = pages[static_cast<size_t>(rank)]->fd();
      env[internal::kCountersVar] = std::to_string(fd);
      return env;
    };
    ranks = std::make_unique<RankProcesses>(options, body);
  }

  RankCounts Read(int rank) const { return pages[static_cast<size_t>(rank)]->Read(); }
  // The first group's; of nothing where there is none.
  GroupCounts Group(int rank) const {
    const std::vector<GroupCounts> groups = Read(rank).groups;
    return groups.empty() ? GroupCounts() : groups[0];
  }
  // The first that is so, or the last after a minute.
  GroupCounts Await(int rank, const std::function<bool(const GroupCounts&)>& is_so) const {
    const Clock::time_point deadline = Clock::now() + std::chrono::minutes(1);
    GroupCounts group = Group(rank);
    while (!is_so(group) && Clock::now() < deadline) {
      std::this_thread::yield();
      group = Group(rank);
    }
    return group;
  }

  std::vector<std::unique_ptr<RankPage>> pages;
  std::unique_ptr<RankProcesses> ranks;
};

bool IsUnderWay(const GroupCounts& group) { return group.called > group.done; }

absl::Status Reduce(Communicator& group) {
  float value = 1;
  return group.AllReduce(&value, 1, DType::kFloat32, ReduceOp::kSum)->Wait();
}

void CheckOneStaysAway(const std::map<std::string, std::string>& env_of_rank1,
                       const std::string& name) {
  CAPTURE(name);
  const Gate come, end;
  Job job(2, env_of_rank1, [&](int rank) {
    auto group = ProcessGroup::FromEnv({});
    if (!group.ok()) return 1;
    RankProcesses::Say("formed");
    if (rank == 1) come.Pass();
    if (!Reduce((*group)->communicator()).ok()) return 2;
    RankProcesses::Say("reduced");
    end.Pass();
    return 0;
  });
  for (int rank : {0, 1}) REQUIRE(job.ranks->Hear(rank) == "formed");
  const GroupCounts waiting = job.Await(0, IsUnderWay);
  CHECK(waiting.called == 1);
  CHECK(waiting.done == 0);
  CHECK(waiting.busy_since_ns > 0);
  CHECK(waiting.busy_since_ns == waiting.called_at_ns);
  CHECK(waiting.op == 0);
  CHECK(waiting.name == name);
  CHECK(waiting.rank == 0);
  CHECK(waiting.size == 2);
  const GroupCounts away = job.Group(1);
  CHECK(away.key == waiting.key);
  CHECK(away.rank == 1);
  CHECK(away.called == 0);
  CHECK(away.busy_since_ns == 0);

  come.Open();
  for (int rank : {0, 1}) {
    REQUIRE(job.ranks->Hear(rank) == "reduced");
    const GroupCounts reduced = job.Group(rank);
    CHECK(reduced.called == 1);
    CHECK(reduced.done == 1);
    CHECK(reduced.busy_since_ns == 0);
    CHECK(reduced.done_at_ns >= reduced.called_at_ns);
  }
  CHECK(job.Read(0).waited_ns > 0);

  job.ranks->Signal(1, SIGKILL);
  CHECK(job.ranks->Await(1) == 128 + SIGKILL);
  CHECK(job.Group(1).done == 1);
  end.Open();
  CHECK(job.ranks->Await(0) == 0);
  CHECK(job.Read(0).groups.empty());  // it ended as it should
}

TEST_CASE("group counters: who stays away from an all-reduce is seen, also after its death") {
  CheckOneStaysAway({}, "shm, ranks 0-1");
  CheckOneStaysAway({{"DDPRUN_HOST_ID", "another"}}, "tcp, ranks 0-1");
}

TEST_CASE("group counters: each group has a key of its own, the same on its ranks") {
  const Gate end;
  Job job(3, {}, [&](int) {
    std::vector<std::unique_ptr<ProcessGroup>> groups;
    groups.push_back(*ProcessGroup::FromEnv({}));
    for (const std::vector<int>& ranks : {std::vector{0, 2}, {0, 2}, {1}}) {
      groups.push_back(*groups[0]->Subgroup(ranks));
    }
    RankProcesses::Say("formed");
    end.Pass();
    return 0;
  });
  for (int rank : {0, 1, 2}) REQUIRE(job.ranks->Hear(rank) == "formed");
  const std::vector<GroupCounts> first = job.Read(0).groups, second = job.Read(1).groups,
                                 third = job.Read(2).groups;
  REQUIRE(first.size() == 3);
  REQUIRE(second.size() == 1);  // none of a rank alone
  REQUIRE(third.size() == 3);
  CHECK(second[0].key == first[0].key);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(first[i].key == third[i].key);
    CHECK(first[i].key != first[(i + 1) % 3].key);
    CHECK(first[i].name == (i == 0 ? "shm, ranks 0-2" : "shm, ranks 0, 2"));
    CHECK(third[i].rank == (i == 0 ? 2 : 1));
    CHECK(third[i].size == (i == 0 ? 3 : 2));
  }
  for (int i = 0; i < 3; ++i) end.Open();
  for (int rank : {0, 1, 2}) CHECK(job.ranks->Await(rank) == 0);
}

TEST_CASE("group counters: messages are no operations of the group") {
  const Gate end;
  Job job(2, {}, [&](int rank) {
    const auto group = *ProcessGroup::FromEnv({});
    Communicator& ranks = group->communicator();
    char byte = 0;
    const auto work = rank == 0 ? ranks.host().Send(&byte, 1, DType::kUint8, 1, 0)
                                : ranks.host().Receive(&byte, 1, DType::kUint8, 0, 0);
    if (!work->Wait().ok()) return 1;
    RankProcesses::Say("met");
    end.Pass();
    return 0;
  });
  for (int rank : {0, 1}) {
    REQUIRE(job.ranks->Hear(rank) == "met");
    CHECK(job.Group(rank).key != 0);
    CHECK(job.Group(rank).called == 0);
  }
  for (int i = 0; i < 2; ++i) end.Open();
  for (int rank : {0, 1}) CHECK(job.ranks->Await(rank) == 0);
}

TEST_CASE("group counters: a group that finds no free slot works all the same") {
  Job job(2, {}, [&](int rank) {
    internal::Counters* const page = internal::Counters::OfThisProcess();
    while (rank == 0 && page->OpenGroup(1, "taken", 0, 2) != nullptr) continue;
    const auto group = ProcessGroup::FromEnv({});
    return group.ok() && Reduce((*group)->communicator()).ok() ? 0 : 1;
  });
  for (int rank : {0, 1}) CHECK(job.ranks->Await(rank) == 0);
  for (const GroupCounts& group : job.Read(0).groups) CHECK(group.name == "taken");
}

// In slices, as Python does; by the caller, or by a thread that looks after two operations.
TEST_CASE("group counters: the time that a caller is blocked counts once, whoever waits for it") {
  const Gate come;
  Job job(2, {}, [&](int rank) {
    const auto group = *ProcessGroup::FromEnv({});
    for (const bool is_own_thread : {false, true}) {
      if (rank == 1) come.Pass();
      const Clock::time_point begin = Clock::now();
      float values[2] = {};
      std::vector<std::unique_ptr<Work>> works;
      for (int i = 0; i < (is_own_thread ? 2 : 1); ++i) {
        works.push_back(
            group->communicator().AllReduce(&values[i], 1, DType::kFloat32, ReduceOp::kSum));
      }
      const auto await = [&] {
        for (const auto& work : works) {
          while (!work->WaitFor(milliseconds(10))) continue;  // no limit: a slice
        }
      };
      is_own_thread ? std::thread(await).join() : await();
      for (const auto& work : works) {
        if (!work->Wait().ok()) return 1;
      }
      RankProcesses::Say(std::to_string(nanoseconds(Clock::now() - begin).count()));
    }
    return 0;
  });
  int64_t before = 0;
  for (const uint64_t called : {1, 3}) {
    CHECK(job.Await(0, [&](const GroupCounts& group) { return group.called == called; }).done <
          called);
    // Several slices long.
    std::this_thread::sleep_for(milliseconds(50));
    come.Open();
    const int64_t took = std::atoll(job.ranks->Hear(0).c_str());
    const int64_t waited = job.Read(0).waited_ns - before;
    before += waited;
    CHECK(waited > 0);
    CHECK(waited <= took);
  }
  for (int rank : {0, 1}) CHECK(job.ranks->Await(rank) == 0);
}

}  // namespace
}  // namespace ddp::testing
