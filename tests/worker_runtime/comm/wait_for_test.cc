// Work::WaitFor(): a wait that comes back in time.
#include <doctest/doctest.h>

#include <chrono>
#include <latch>

#include "ddp/communicator.h"
#include "tests/support/rank_threads.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RunRankThreads;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE(
    "works: WaitFor comes back while a rank is missing, and sees the end when all are there") {
  for (const ddprun::testing::RankThreadsOptions& layout :
       {ddprun::testing::RankThreadsOptions{.nodes = {2}}, {.nodes = {2}, .use_tcp = true}}) {
    std::latch has_come_back(1);
    RunRankThreads(layout, [&](Communicator& group) {
      float data = 1;
      if (group.rank() == 1) has_come_back.wait();
      const auto work = group.AllReduce(&data, 1, DType::kFloat32, ReduceOp::kSum);
      if (group.rank() == 0) {
        CHECK(!work->WaitFor(milliseconds(0)));
        const auto deadline = std::chrono::steady_clock::now() + seconds(60);
        do {
          CHECK(!work->WaitFor(milliseconds(20)));  // lower bound: rank 1 is missing
        } while (work->missing().empty() && std::chrono::steady_clock::now() < deadline &&
                 !layout.use_tcp);
        // Between hosts only the timeout tells.
        CHECK(work->missing() == (layout.use_tcp ? "" : "rank 1 did not arrive"));
        has_come_back.count_down();
      }
      CHECK(work->WaitFor(seconds(60)));
      CHECK(work->WaitFor(milliseconds(0)));
      CHECK(work->Wait().ok());
      CHECK(work->missing() == "");
      CHECK(data == 2);
    });
  }
}

}  // namespace
}  // namespace ddp::testing
