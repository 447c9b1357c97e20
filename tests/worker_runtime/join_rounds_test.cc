#include "worker_runtime/join_rounds.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/contains.h"
#include "tests/support/rank_threads.h"

namespace ddp::internal {
namespace {

using ddprun::testing::RunRankThreads;

TEST_CASE("join rounds: who has joined follows the others, and all know how many are left") {
  RunRankThreads({.nodes = {3}}, [](Communicator& communicator) {
    JoinRounds rounds(communicator, true);
    CHECK(rounds.last_active() == 2);
    // Rank 2 has joined before the first round, rank 0 before the second.
    const int rank = communicator.rank();
    for (int round = 0; round < 2; ++round) {
      const bool has_joined = rank == 2 || (rank == 0 && round == 1);
      const JoinAct act = round == 0 ? JoinAct::kBuffers : JoinAct::kPass;
      const auto next = rounds.Next(has_joined ? JoinAct::kJoined : act);
      REQUIRE_MESSAGE(next.ok(), next.status().ToString());
      CHECK(next->act == act);
      CHECK(next->active_count == 2 - round);
      CHECK(rounds.last_active() == 1);
    }
    const auto end = rounds.Next(JoinAct::kJoined);
    REQUIRE(end.ok());
    CHECK(end->act == JoinAct::kJoined);
    CHECK(end->active_count == 0);
    CHECK(rounds.last_active() == 1);  // its model is everybody's
  });
}

TEST_CASE("join rounds: different acts and different divisors are told in one word on all ranks") {
  for (const bool has_other_act : {false, true}) {
    std::string words[2];
    RunRankThreads({.nodes = {2}}, [&](Communicator& communicator) {
      const bool is_second = communicator.rank() == 1;
      JoinRounds rounds(communicator, has_other_act || is_second);
      const auto next =
          rounds.Next(has_other_act && is_second ? JoinAct::kBuffers : JoinAct::kPass);
      words[communicator.rank()] = std::string(next.status().message());
    });
    for (const std::string& word : words) {
      CAPTURE(word);
      CHECK(word == Contains(has_other_act ? "rank 0 begins a backward pass while rank 1 begins a "
                                           : "divide_by_initial_world_size is false on rank 0"));
    }
  }
}

}  // namespace
}  // namespace ddp::internal
