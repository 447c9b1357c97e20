#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "ddp/communicator.h"
#include "tests/support/contains.h"
#include "tests/support/rank_threads.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddp {
namespace {

using ddprun::testing::ReadFile;

std::string Dumped(Communicator& communicator) {
  const auto path = communicator.DumpOperations();
  REQUIRE_MESSAGE(path.ok(), path.status().ToString());
  return ReadFile(*path);
}

TEST_CASE("dump: an operation that waits for another rank is seen under way, and done later") {
  const ddprun::testing::TempDir dir;
  REQUIRE(setenv("DDPRUN_FLIGHT_RECORDER_DIR", dir.path().c_str(), 1) == 0);
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1}}) {
    std::promise<void> is_seen;
    ddprun::testing::RunRankThreads({.nodes = nodes}, [&is_seen](Communicator& communicator) {
      float value = 1;
      if (communicator.rank() == 1) {
        CHECK(is_seen.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
      }
      const auto work = communicator.AllReduce(&value, 1, DType::kFloat32, ReduceOp::kSum);
      const std::string op = "\"all-reduce (float32 x 1, sum)\", \"state\": \"";
      if (communicator.rank() == 0) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        std::string dump = Dumped(communicator);
        while (dump != Contains(op + "running") && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::yield();
          dump = Dumped(communicator);
        }
        CHECK(dump == Contains(op + "running"));
        CHECK(dump != Contains("ended_ns"));
        is_seen.set_value();
      }
      CHECK(work->Wait().ok());
      CHECK(Dumped(communicator) == Contains(op + "done"));
      CHECK(!communicator.AllReduce(nullptr, 1, DType::kFloat32, ReduceOp::kSum)->Wait().ok());
      CHECK(Dumped(communicator) !=
            Contains("\"sequence\": 2"));  // what is refused takes no number
      // Rank 0 stays alone in the next one.
      if (communicator.rank() == 1) return;
      communicator.SetTimeout(std::chrono::milliseconds(50));  // lower bound: nobody comes
      CHECK(!communicator.Barrier()->Wait().ok());
      CHECK(Dumped(communicator) == Contains("\"barrier\", \"state\": \"failed\""));
    });
  }
  unsetenv("DDPRUN_FLIGHT_RECORDER_DIR");
}

}  // namespace
}  // namespace ddp
