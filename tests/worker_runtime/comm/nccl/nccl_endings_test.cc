// Ends of a group on GPUs in which something does not answer any more: the driver, or a rank that
// is gone when NCCL waits for it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "ddp/step_graph.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/contains.h"
#include "tests/support/pidfds.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using ddp::DType;
using ddp::ReduceOp;

constexpr auto kTimeout = 3s;
// What a test waits for at the most; NCCL's own end waits 30 s for a rank that does not come.
constexpr auto kSoon = 20s;

// Rank 1's driver falls silent behind its second operation: the rank's own threads hang in it.
TEST_CASE("nccl: a rank whose driver does not answer ends, and the others are told which it is") {
  const TempDir temp;
  RankProcesses ranks({.world_size = 2,
                       .env = DoubleEnv({{"DDPRUN_FLIGHT_RECORDER_DIR", temp.path()}}),
                       .env_of_rank = {}},
                      [](int rank) {
                        const auto group = GpuGroup();
                        ddp::Communicator& comm = group->communicator();
                        const ddp::Stream stream = NewStream();
                        DeviceArray data({1, 2, 3});
                        const int hold = rank == 1 ? HoldStream(stream) : 0;
                        if (rank == 1) comm.SetTimeout(kTimeout);
                        const auto work =
                            comm.AllReduce(data.data(), 3, DType::kFloat32, ReduceOp::kSum, stream);
                        if (rank == 1) SilenceDriver();
                        if (rank == 1) ReleaseStream(hold);
                        while (comm.error().ok()) std::this_thread::yield();
                        RankProcesses::Say(comm.error().ToString());
                        return 0;
                      });
  const std::string words = ranks.Hear(0);
  CAPTURE(words);
  CHECK(words ==
        Contains("all-reduce #1 (float32 x 3, sum) timed out after 3 s: rank 1: the driver of its "
                 "GPU has not answered for "));
  CHECK(ranks.Await(0) == 0);
  CHECK(ranks.Await(1) == EXIT_FAILURE);
}

// The caller's own thread hangs, in a call that is no operation yet.
TEST_CASE("nccl: a driver that does not answer ends the process when nothing is under way") {
  const std::string codes = RunOnDouble(1, DoubleEnv(), [](int) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    DeviceArray data({1, 2, 3});
    comm.SetTimeout(kTimeout);
    SilenceDriver();
    comm.AllReduce(data.data(), 3, DType::kFloat32, ReduceOp::kSum)->Wait().IgnoreError();
    return 0;
  });
  CHECK(codes == std::to_string(EXIT_FAILURE));
}

// Rank 1 aborts and does not end until rank 0 is seen to wait for that: 7. 8 says that rank 0 has
// ended without.
TEST_CASE("nccl: who is left behind does not end before the peer of its node that left") {
  const TempDir temp;
  void* const shared =
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& survivor = *static_cast<pid_t*>(shared);
  RankProcesses ranks({.world_size = 2,
                       .env = DoubleEnv(),
                       .env_of_rank =
                           [&temp](int rank) {
                             return std::map<std::string, std::string>{
                                 {"TORCHELASTIC_ERROR_FILE", temp.File(std::to_string(rank))}};
                           }},
                      [&survivor](int rank) {
                        if (rank == 0) survivor = getpid();
                        const auto group = GpuGroup();
                        ddp::Communicator& comm = group->communicator();
                        if (!comm.Barrier()->Wait().ok()) return 3;
                        if (rank == 0) {
                          while (comm.error().ok()) std::this_thread::yield();
                          return 0;
                        }
                        const std::optional<int> before = Pidfds(survivor, getpid());
                        if (!before) return 4;
                        comm.Abort("enough");
                        std::optional<int> now = before;
                        while (now == before) now = Pidfds(survivor, getpid());
                        _exit(now > before ? 7 : 8);
                      });
  CHECK(ranks.Await(1) == 7);
  CHECK(ranks.Await(0) == 0);
  munmap(shared, sizeof(pid_t));
}

// The timeout is 60 s: the end waits 5 s for what is under way.
TEST_CASE("nccl: the end of a group does not wait for a driver that does not answer") {
  const TimePoint begin = SteadyNow();
  const std::string codes = RunOnDouble(1, DoubleEnv(), [](int) {
    auto group = GpuGroup();
    const ddp::Stream stream = NewStream();
    DeviceArray data({1, 2, 3});
    HoldStream(stream);
    group->communicator().AllReduce(data.data(), 3, DType::kFloat32, ReduceOp::kSum, stream);
    SilenceDriver();
    group.reset();
    return 0;
  });
  CHECK(codes == std::to_string(EXIT_FAILURE));
  CHECK(SteadyNow() - begin < 2 * kSoon);
}

// Held work of another stream lasts until somebody lets it go.
TEST_CASE("nccl: the end of a group does not wait for work of others for more than some seconds") {
  const std::string codes = RunOnDouble(2, DoubleEnv(), [](int) {
    auto group = GpuGroup();
    HoldStream(NewStream());
    const TimePoint begin = SteadyNow();
    group.reset();
    return SteadyNow() - begin < kSoon ? 0 : 1;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("nccl: a rank that has no memory for its communicator tells the others") {
  RankProcesses ranks({.world_size = 2,
                       .env = DoubleEnv(),
                       .env_of_rank = [](int rank) -> std::map<std::string, std::string> {
                         if (rank == 0) return {};
                         return {{"DDPRUN_DOUBLE_MEMORY", "1"}};
                       }},
                      [](int) {
                        const auto group = GpuGroup();
                        RankProcesses::Say(group->communicator().Barrier()->Wait().ToString());
                        return 0;
                      });
  const std::string words = ranks.Hear(0);
  CAPTURE(words);
  CHECK(words == Contains("aborted by rank 1: "));
  CHECK(words == Contains("cuMemAlloc"));
  CHECK(ranks.Await(1) == 90);
}

// The held stream is what an operation, or a memset of the memory, waits for.
TEST_CASE("nccl: memory is not freed under what uses it, though the driver would") {
  for (const bool is_plain : {false, true}) {
    const TempDir temp;
    const std::string log = temp.File("log");
    const auto env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "eager_free"},
                                {"DDPRUN_DOUBLE_LOG", log},
                                {kRegisteredMemory, is_plain ? "0" : "1"}});
    const std::string codes = RunOnDouble(2, env, [&](int) {
      const auto group = GpuGroup();
      ddp::Communicator& comm = group->communicator();
      auto buffer = comm.Allocate(4096);
      const ddp::Stream stream = NewStream();
      HoldStream(stream);
      if (is_plain && !(*buffer)->Zero(stream).ok()) return 1;
      if (!is_plain) comm.AllReduce((*buffer)->data(), 2, DType::kFloat32, ReduceOp::kSum, stream);
      buffer->reset();
      const std::string done = ReadFile(log);
      const char* freed = is_plain ? "free bytes=4096" : "free bytes=2097152";
      _exit(done.find(freed) == std::string::npos ? 0 : 2);
    });
    CHECK(codes == "0 0");
  }
}

// A stream that the legacy stream waits for.
TEST_CASE("nccl: memory is allocated beside work of the program that does not end") {
  const std::string codes = RunOnDouble(2, DoubleEnv(), [](int) {
    const auto group = GpuGroup(kTimeout);
    ddp::internal::CudaStream blocking = nullptr;
    if (Driver().cuStreamCreateWithPriority(&blocking, /*flags=*/0, 0) != 0) return 1;
    HoldStream(blocking);
    _exit(group->communicator().Allocate(4096).ok() ? 0 : 2);
  });
  CHECK(codes == "0 0");
}

TEST_CASE("nccl: memory is allocated beside an operation that does not end") {
  const auto env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "hang=1"}});
  const std::string codes = RunOnDouble(2, env, [](int) -> int {
    const auto group = GpuGroup(kTimeout);
    DeviceArray data({1, 2});
    group->communicator().AllReduce(data.data(), 2, DType::kFloat32, ReduceOp::kSum);
    _exit(group->communicator().Allocate(4096).ok() ? 0 : 2);
  });
  CHECK(codes == "0 0");
}

TEST_CASE("nccl: memory that goes while a step is captured costs nobody anything but itself") {
  const std::string codes = RunOnDouble(1, DoubleEnv(), [](int) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    auto buffer = comm.Allocate(4096);
    const DeviceArray data({1});
    const ddp::Stream stream = NewStream();
    const auto graph = ddp::StepGraph::Create(comm, stream);
    if (!buffer.ok() || !graph.ok()) return 1;
    const auto zero = [&] { return (*buffer)->Zero(stream); };
    for (int i = 0; i < ddp::StepGraph::kUncapturedSteps; ++i) {
      if (!(*graph)->Run(zero).ok()) return 2;
    }
    const absl::Status captured = (*graph)->Capture([&] {
      const auto work = comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum, stream);
      buffer->reset();
      return work->WaitOn(stream);
    });
    return captured.ok() && (*graph)->Replay().ok() && group->Shutdown().ok() ? 0 : 3;
  });
  CHECK(codes == "0");
}

// NCCL is ended on a thread of its own, and rank 1's cannot use its device.
TEST_CASE("nccl: a group whose GPU fails at its end goes on, and says so") {
  const TempDir temp;
  const std::string said = temp.File("said");
  const std::string codes = RunOnDouble(2, DoubleEnv(), [&](int rank) {
    auto group = GpuGroup();
    if (!group->communicator().Barrier()->Wait().ok()) return 1;
    if (rank == 1 && std::freopen(said.c_str(), "w", stderr) == nullptr) return 2;
    if (rank == 1) RefuseThreads();
    const TimePoint begin = SteadyNow();
    group.reset();
    std::fflush(stderr);
    return SteadyNow() - begin < kSoon ? 0 : 3;
  });
  CHECK(codes == "0 0");
  CHECK(ReadFile(said).rfind("ddp: rank 1: NCCL was not ended: cuCtxSetCurrent: ", 0) == 0);
}

// Until the double's log has `line`; false after a while.
bool AwaitLog(const std::string& line) {
  const TimePoint deadline = SteadyNow() + kSoon;
  while (ReadFile(std::getenv("DDPRUN_DOUBLE_LOG")).find(line) == std::string::npos) {
    if (SteadyNow() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Rank 0 ends its group, the other has aborted it, `before` that or once it has begun.
void CheckEndBesideAbort(bool before) {
  const TempDir temp;
  const auto env = DoubleEnv({{"DDPRUN_DOUBLE_LOG", temp.File("log")}});
  const std::string codes = RunOnDouble(2, env, [before](int rank) {
    auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    if (rank == 1) {
      if (!before && !AwaitLog("rank=0 finalize")) return 1;
      comm.Abort("for a test");
      return 0;
    }
    const TimePoint deadline = SteadyNow() + kSoon;
    while (before && comm.host().error().ok()) {
      if (SteadyNow() > deadline) return 2;
    }
    const TimePoint begin = SteadyNow();
    group.reset();
    return SteadyNow() - begin < kSoon ? 0 : 3;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("nccl: the end of a group does not wait for a rank that has aborted it") {
  CheckEndBesideAbort(/*before=*/true);
}

TEST_CASE("nccl: the end of a group goes on when another rank aborts it") {
  CheckEndBesideAbort(/*before=*/false);
}

}  // namespace
}  // namespace ddprun::testing
