// Ranks as processes, for the tests of ddp/c.h.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_C_FACE_PROCESSES_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_C_FACE_PROCESSES_H_

#include <doctest/doctest.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "ddp/c.h"
#include "tests/support/contains.h"
#include "tests/support/rank_processes.h"
#include "tests/worker_runtime/c_face_ranks.h"

namespace ddp::testing {

inline constexpr ddp_group_options kOptions = {.timeout_ms = 60'000, .device = 0, .backend = 0};

inline ddprun::testing::RankProcesses::Options Ranks(int world_size, int ranks_per_host = 4) {
  ddprun::testing::RankProcesses::Options options;
  options.world_size = world_size;
  options.env_of_rank = [ranks_per_host](int rank) {
    return std::map<std::string, std::string>{
        {"DDPRUN_HOST_ID", absl::StrCat("host", rank / ranks_per_host)}};
  };
  return options;
}

inline void CheckRanks(const ddprun::testing::RankProcesses::Options& options,
                       const ddprun::testing::RankProcesses::Body& body) {
  ddprun::testing::RankProcesses ranks(options, body);
  for (int rank = 0; rank < options.world_size; ++rank) {
    CAPTURE(rank);
    CHECK(ranks.Await(rank) == 0);
  }
}

// Of three that say "ready" and then, but for rank 1, how an operation ended: rank 1 is killed.
inline void CheckDeadRankIsNamed(ddprun::testing::RankProcesses& ranks) {
  CHECK(ranks.Hear(1) == "ready");
  ranks.Signal(1, SIGKILL);
  for (const int rank : {0, 2}) {
    CHECK(ranks.Hear(rank) == "ready");
    const std::string said = ranks.Hear(rank);
    CAPTURE(said);
    CHECK(said.rfind("UNAVAILABLE: ", 0) == 0);
    CHECK(said == Contains("rank 1"));
    CHECK(ranks.Await(rank) == 0);
  }
}

// Runs `check(group)` in the group that the environment tells of, and leaves it.
template <typename Check>
int InGroup(const Check& check, const ddp_group_options& options = kOptions) {
  ddp_group* group = nullptr;
  EXPECT_C(ddp_group_from_env(&options, &group) == DDP_OK);
  EXPECT_C(check(group) == 0);
  EXPECT_C(ddp_group_shutdown(group) == DDP_OK);
  ddp_group_free(group);
  return 0;
}

inline uint16_t StorePort() { return static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT"))); }

}  // namespace ddp::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_C_FACE_PROCESSES_H_
