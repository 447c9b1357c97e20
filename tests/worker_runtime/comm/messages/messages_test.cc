// Messages between two ranks: over every backend, beside collectives, and what goes wrong.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/process_group.h"
#include "tests/support/contains.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankProcesses;
using ddprun::testing::RankThreadsOptions;
using ddprun::testing::RunRankThreads;
using Works = std::vector<std::unique_ptr<Work>>;

void ForEachLayout(const std::function<void(Communicator&)>& body) {
  const RankThreadsOptions layouts[] = {
      {.nodes = {3}},
      {.nodes = {3}, .use_tcp = true},
      {.nodes = {2, 1}},
      {.nodes = {2, 1}, .round_key = ddprun::testing::kTestRoundKey}};
  for (const RankThreadsOptions& layout : layouts) RunRankThreads(layout, body);
}

void CheckOk(const absl::Status& status) { CHECK_MESSAGE(status.ok(), status.ToString()); }

std::vector<int32_t> Numbers(size_t count, int32_t first) {
  std::vector<int32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = first + static_cast<int32_t>(i);
  return numbers;
}

TEST_CASE("messages: every rank's reach every other, small and large, in both directions at once") {
  ForEachLayout([](Communicator& group) {
    for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{3'000'000}}) {
      CAPTURE(count);
      Works works;
      std::vector<std::vector<int32_t>> sent, received;
      for (int peer = 0; peer < group.world_size(); ++peer) {
        sent.push_back(Numbers(count, 100 * group.rank() + peer));
        received.push_back(std::vector<int32_t>(count));
        if (peer == group.rank()) continue;
        works.push_back(group.Send(sent[peer].data(), count, DType::kInt32, peer));
        works.push_back(group.Receive(received[peer].data(), count, DType::kInt32, peer));
      }
      for (const auto& work : works) CheckOk(work->Wait());
      for (int peer = 0; peer < group.world_size(); ++peer) {
        if (peer == group.rank()) continue;
        CHECK(received[peer] == Numbers(count, 100 * peer + group.rank()));
      }
    }
  });
}

TEST_CASE("messages: tags keep them apart, and those of one tag in order") {
  ForEachLayout([](Communicator& group) {
    if (group.rank() == 2) return;
    const int32_t values[] = {10, 11, 20, 21};
    const uint64_t tags[] = {1, 1, uint64_t{1} << 40, uint64_t{1} << 40};
    int32_t got[4] = {};
    Works works;
    for (int i = 0; i < 4; ++i) {
      if (group.rank() == 0) works.push_back(group.Send(&values[i], 1, DType::kInt32, 1, tags[i]));
    }
    for (int i : {2, 0, 3, 1}) {
      if (group.rank() == 1) works.push_back(group.Receive(&got[i], 1, DType::kInt32, 0, tags[i]));
    }
    for (const auto& work : works) CheckOk(work->Wait());
    if (group.rank() == 1) CHECK(std::memcmp(got, values, sizeof got) == 0);
  });
}

TEST_CASE("messages: a receive from any rank says from which it was") {
  ForEachLayout([](Communicator& group) {
    const int32_t mine = 7 * group.rank();
    if (group.rank() != 0) {
      const auto work = group.Send(&mine, 1, DType::kInt32, 0);
      CheckOk(work->Wait());
      CHECK(work->source() == -1);
      return;
    }
    int sources = 0;
    for (int i = 1; i < group.world_size(); ++i) {
      int32_t got = 0;
      const auto work = group.Receive(&got, 1, DType::kInt32, -1);
      CheckOk(work->Wait());
      CHECK(got == 7 * work->source());
      sources += work->source();
    }
    CHECK(sources == 1 + 2);
  });
}

TEST_CASE("messages: they pass while a collective waits") {
  ForEachLayout([](Communicator& group) {
    std::unique_ptr<Work> barrier;
    if (group.rank() == 0) barrier = group.Barrier();
    int32_t token = 0;
    if (group.rank() == 1) {
      token = 5;
      CheckOk(group.Send(&token, 1, DType::kInt32, 0)->Wait());
    } else if (group.rank() == 0) {
      CheckOk(group.Receive(&token, 1, DType::kInt32, 1)->Wait());
      CHECK(token == 5);
    }
    if (barrier == nullptr) barrier = group.Barrier();
    CheckOk(barrier->Wait());
  });
}

TEST_CASE("messages: what is wrong with a call ends it alone") {
  ForEachLayout([](Communicator& group) {
    int32_t value = 0;
    const int self = group.rank();
    const std::pair<std::unique_ptr<Work>, const char*> rows[] = {
        {group.Send(&value, 1, DType::kInt32, self), "that is this rank itself"},
        {group.Receive(&value, 1, DType::kInt32, self), "that is this rank itself"},
        {group.Send(&value, 1, DType::kInt32, 3), "the group has 3 ranks"},
        {group.Send(&value, 1, DType::kInt32, -1), "the group has 3 ranks"},
        {group.Receive(&value, 1, DType::kInt32, -2), "the group has 3 ranks"},
        {group.Send(nullptr, 1, DType::kInt32, (self + 1) % 3), "null pointer"},
        {group.Receive(nullptr, 1, DType::kInt32, -1), "null pointer"},
        {group.Send(&value, SIZE_MAX, DType::kInt32, (self + 1) % 3), "more bytes"},
        {group.Send(&value, 1, static_cast<DType>(99), (self + 1) % 3), "element type 99"}};
    for (const auto& [work, words] : rows) {
      CAPTURE(words);
      CHECK(work->IsDone());
      CHECK(work->was_refused());
      CHECK(absl::IsInvalidArgument(work->Wait()));
      CHECK(work->Wait().message() == Contains(words));
    }
    CheckOk(group.Barrier()->Wait());
    CheckOk(group.error());
  });
}

TEST_CASE("messages: sizes that differ are told to both, and nothing is written") {
  ForEachLayout([](Communicator& group) {
    int32_t values[3] = {1, 2, 3};
    absl::Status status;
    if (group.rank() == 0) status = group.Send(values, 3, DType::kInt32, 1, 4)->Wait();
    if (group.rank() == 1) status = group.Receive(values, 2, DType::kInt32, 0, 4)->Wait();
    if (group.rank() < 2) CHECK(absl::IsInvalidArgument(status));
    if (group.rank() == 0) {
      CHECK(status.message() ==
            "send to rank 1 (tag 4, 12 bytes): its receive has room for 8 bytes");
    }
    if (group.rank() == 1) {
      CHECK(status.message() == "receive from rank 0 (tag 4, 8 bytes): rank 0 sends 12 bytes");
      CHECK(values[0] == 1);
    }
    // The next one passes.
    if (group.rank() == 0) CheckOk(group.Send(values, 3, DType::kInt32, 1, 4)->Wait());
    if (group.rank() == 1) CheckOk(group.Receive(values, 3, DType::kInt32, 0, 4)->Wait());
  });
}

TEST_CASE("messages: one that nobody takes ends at its timeout, and is not taken later") {
  ForEachLayout([](Communicator& group) {
    if (group.rank() == 2) {
      CheckOk(group.Barrier()->Wait());
      return;
    }
    int32_t value = group.rank();
    group.SetTimeout(std::chrono::milliseconds(300));  // lower bound: nobody takes it
    const auto late = group.rank() == 0 ? group.Send(&value, 1, DType::kInt32, 1, 1)
                                        : group.Receive(&value, 1, DType::kInt32, 0, 2);
    const absl::Status status = late->Wait();
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK(status.message() ==
          (group.rank() == 0 ? "send to rank 1 (tag 1, 4 bytes) timed out after 300 ms: rank 1 "
                               "has not received it"
                             : "receive from rank 0 (tag 2, 4 bytes) timed out after 300 ms: "
                               "rank 0 has not sent it"));
    group.SetTimeout(std::chrono::seconds(30));
    CheckOk(group.Barrier()->Wait());
    value = 5;
    for (uint64_t tag : {1, 2}) {
      int32_t got = 0;
      if (group.rank() == 0) CheckOk(group.Send(&value, 1, DType::kInt32, 1, tag)->Wait());
      if (group.rank() == 1) {
        CheckOk(group.Receive(&got, 1, DType::kInt32, 0, tag)->Wait());
        CHECK(got == 5);
      }
    }
  });
}

TEST_CASE("messages: Abort() ends them on the rank that calls it, and its peers hear of it") {
  ForEachLayout([](Communicator& group) {
    int32_t value = 0;
    const auto work = group.Receive(&value, 1, DType::kInt32, (group.rank() + 1) % 3);
    if (group.rank() == 0) group.Abort("enough");
    const absl::Status status = work->Wait();
    CAPTURE(status.ToString());
    // Over tcp a rank hears of it in its next collective, and of the end of the connection now.
    const bool is_told = absl::IsAborted(status) &&
                         status.message().find("aborted by rank 0: enough") != std::string::npos;
    const bool has_seen = group.rank() == 2 && absl::IsUnavailable(status) &&
                          status.message().find("rank 0 is gone") != std::string::npos;
    CHECK((is_told || has_seen));
    if (group.rank() != 0) return;
    CHECK(group.Send(&value, 1, DType::kInt32, 1)->Wait() == group.error());
  });
}

// Rank 2 stops or dies after the first message; the others then send to it, or receive from it.
void CheckVictim(int signal, Backend backend, const char* code, std::chrono::milliseconds timeout) {
  RankProcesses::Options options;
  options.world_size = 3;
  RankProcesses ranks(options, [&](int rank) {
    auto group = ProcessGroup::FromEnv({backend, std::chrono::seconds(60)});
    if (!group.ok()) return 1;
    Communicator& comm = (*group)->communicator();
    int32_t value = 1;
    if (rank == 2) {
      const bool is_ok = comm.Send(&value, 1, DType::kInt32, 0)->Wait().ok() &&
                         comm.Send(&value, 1, DType::kInt32, 1)->Wait().ok();
      RankProcesses::Say(is_ok ? "ready" : "failed");
      pause();
      return 1;
    }
    const absl::Status first = comm.Receive(&value, 1, DType::kInt32, 2)->Wait();
    RankProcesses::Say(first.ok() ? "ready" : first.ToString());
    comm.SetTimeout(timeout);
    const auto work = rank == 0 ? comm.Send(&value, 1, DType::kInt32, 2)
                                : comm.Receive(&value, 1, DType::kInt32, 2);
    RankProcesses::Say(work->Wait().ToString());
    return 0;
  });
  for (int rank : {0, 1, 2}) REQUIRE(ranks.Hear(rank) == "ready");
  ranks.Signal(2, signal);
  for (int rank : {0, 1}) {
    const std::string said = ranks.Hear(rank);
    CAPTURE(said);
    CHECK(said.find(code) == 0);
    CHECK(said == Contains("rank 2"));
    CHECK(ranks.Await(rank) == 0);
  }
}

TEST_CASE("messages: a peer that dies is named at once") {
  // With this timeout the test would never end if the death were not noticed.
  for (Backend backend : {Backend::kAuto, Backend::kTcp}) {
    CheckVictim(SIGKILL, backend, "UNAVAILABLE", std::chrono::hours(1));
  }
}

TEST_CASE("messages: a peer that is stopped is named when the time is over") {
  for (Backend backend : {Backend::kAuto, Backend::kTcp}) {
    CheckVictim(SIGSTOP, backend, "DEADLINE_EXCEEDED", std::chrono::seconds(1));
  }
}

}  // namespace
}  // namespace ddp::testing
