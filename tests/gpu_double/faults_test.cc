// Each fault of the double, on the rank that it names and no other.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/gpu_double/double_api.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::gpu_double {
namespace {

using testing::Eventually;
constexpr std::chrono::milliseconds kAWhile{100};  // lower bound: it hangs for ever

struct Rank {
  Rank(const NcclUniqueId& id, int world_size, int rank)
      : buffer(BytesOf<float>({1})), comm(id, world_size, rank) {}

  NcclResult Reduce() {
    return Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), 1, kNcclFloat32, kNcclSum,
                               comm.get(), stream.get());
  }
  NcclResult Error() const { return comm.Error(); }
  bool IsBusyForAWhile() const {
    std::this_thread::sleep_for(kAWhile);
    return Api().cuStreamQuery(stream.get()) == kCudaErrorNotReady;
  }

  DeviceBuffer buffer;
  TestStream stream;
  // Ends first: freeing the buffer waits for the device, which a hung operation keeps busy.
  TestComm comm;
};

void RunWith(const std::string& fault, const std::function<void(int, Rank&)>& body) {
  const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_FAULT", fault}});
  const NcclUniqueId id = NewId();
  RunRanks(2, [&](int index) {
    Rank rank(id, 2, index);
    body(index, rank);
    Api().ncclCommAbort(rank.comm.get());
    CHECK(rank.stream.Synchronize() == kCudaSuccess);
  });
}

}  // namespace

// Runs first: its ranks are forked.
TEST_CASE("a dead process: noticed with remote_error, else a hang") {
  const auto survive = [](const std::string& fault) {
    const NcclUniqueId id = NewId();
    const auto codes = RunRankProcesses(2, [&](int index) {
      const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_FAULT", fault}});
      UseDevice(index);
      Rank rank(id, 2, index);
      if (rank.comm.joined() != kNcclSuccess) return 1;
      if (index == 1) raise(SIGKILL);
      rank.Reduce();
      if (fault.empty()) return rank.IsBusyForAWhile() && rank.Error() == kNcclSuccess ? 0 : 2;
      return Eventually([&] { return rank.Error() == kNcclRemoteError; }) ? 0 : 3;
    });
    return codes;
  };
  CHECK(survive("") == std::vector<int>{0, 128 + SIGKILL});
  CHECK(survive("remote_error") == std::vector<int>{0, 128 + SIGKILL});
}

// Forks as well, and leaves threads behind.
TEST_CASE("never_joins: nobody's init returns; init_hangs: the others' does") {
  const auto join = [](const std::string& fault) {
    const testing::TempDir dir;
    const std::string log = dir.File("log");
    const NcclUniqueId id = NewId();
    return RunRankProcesses(2, [&](int index) {
      const ScopedEnv env(
          ScopedEnv::Env{{"DDPRUN_DOUBLE_FAULT", fault}, {"DDPRUN_DOUBLE_LOG", log}});
      const auto is_logged = [&log](const std::string& line) {
        return Eventually([&] { return testing::ReadFile(log).find(line) != std::string::npos; });
      };
      static std::atomic<bool> has_joined = false;
      std::thread([id, index] {
        UseDevice(index);
        new TestComm(id, 2, index);
        has_joined = true;
      }).detach();
      if (fault == "init_hangs@1") {
        if (!is_logged("rank=0 joined")) return 2;
        if (index == 0) return Eventually([] { return has_joined.load(); }) ? 1 : 3;
      }
      if (!is_logged("rank=" + std::to_string(index) + " init")) return 4;
      std::this_thread::sleep_for(kAWhile);
      return has_joined ? 1 : 0;
    });
  };
  CHECK(join("never_joins@1") == std::vector<int>{0, 0});
  CHECK(join("init_hangs@1") == std::vector<int>{1, 0});
}

// Forks as well. Rank 0 looks for the message when its sender is gone.
TEST_CASE("remote_error: what a peer sent before it died arrives") {
  const NcclUniqueId id = NewId();
  const auto codes = RunRankProcesses(2, [&](int index) {
    const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_FAULT", "remote_error,slow=300@0"}});
    UseDevice(index);
    Rank rank(id, 2, index);
    if (rank.comm.joined() != kNcclSuccess) return 1;
    const NcclComm comm = rank.comm.get();
    const NcclResult result =
        index == 1
            ? Api().ncclSend(rank.buffer.pointer(), 1, kNcclFloat32, 0, comm, rank.stream.get())
            : Api().ncclRecv(rank.buffer.pointer(), 1, kNcclFloat32, 1, comm, rank.stream.get());
    if (result != kNcclSuccess) return 2;
    const bool has_ended = Eventually([&] {
      return rank.Error() != kNcclSuccess || Api().cuStreamQuery(rank.stream.get()) == kCudaSuccess;
    });
    if (index == 1) raise(SIGKILL);
    return has_ended && rank.Error() == kNcclSuccess ? 0 : 3;
  });
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL});
}

TEST_CASE("async_error and remote_error: at their operation, on their rank; the others hang") {
  for (const auto& [fault, error] : std::map<std::string, NcclResult>{
           {"async_error=2@1", kNcclSystemError}, {"remote_error=2@1", kNcclRemoteError}}) {
    CAPTURE(fault);
    RunWith(fault, [error = error](int index, Rank& rank) {
      CHECK(rank.Reduce() == kNcclSuccess);
      CHECK(rank.stream.Synchronize() == kCudaSuccess);
      rank.Reduce();
      if (index == 1) CHECK(Eventually([&] { return rank.Error() == error; }));
      CHECK(rank.IsBusyForAWhile());
      if (index == 0) CHECK(rank.Error() == kNcclSuccess);
    });
  }
}

TEST_CASE("hang: the operation never ends, without an error") {
  RunWith("hang=2@0", [](int, Rank& rank) {
    CHECK(rank.Reduce() == kNcclSuccess);
    CHECK(rank.stream.Synchronize() == kCudaSuccess);
    CHECK(rank.Reduce() == kNcclSuccess);
    CHECK(rank.IsBusyForAWhile());
    CHECK(rank.Error() == kNcclSuccess);
  });
}

TEST_CASE("blind: ranks in different operations hang, without an error") {
  RunWith("blind", [](int index, Rank& rank) {
    if (index == 0) {
      CHECK(rank.Reduce() == kNcclSuccess);
    } else {
      const NcclResult result =
          Api().ncclBroadcast(rank.buffer.pointer(), rank.buffer.pointer(), 1, kNcclFloat32,
                              /*root=*/0, rank.comm.get(), rank.stream.get());
      CHECK(result == kNcclSuccess);
    }
    CHECK(rank.IsBusyForAWhile());
    CHECK(rank.Error() == kNcclSuccess);
  });
}

TEST_CASE("slow: the operation starts late and is right") {
  RunWith("slow=50@1", [](int index, Rank& rank) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(rank.Reduce() == kNcclSuccess);
    CHECK(rank.stream.Synchronize() == kCudaSuccess);
    const auto took = std::chrono::steady_clock::now() - begin;
    // The other may have begun to look later than the slow one began to wait.
    if (index == 1) CHECK(took >= std::chrono::milliseconds(50));
    CHECK(rank.buffer.Read() == BytesOf<float>({2}));
  });
}

// `call` on a thread, which the log says is in it: whether it is a while later, and an abort ends
// it.
bool HangsUntilAbort(Rank& rank, int device, const std::string& log, const std::string& line,
                     const std::function<void()>& call) {
  std::atomic<bool> has_returned = false;
  std::thread caller([&] {
    UseDevice(device);
    call();
    has_returned = true;
  });
  const std::string said = "rank=" + std::to_string(device) + " " + line;
  const bool is_in_it =
      Eventually([&] { return testing::ReadFile(log).find(said) != std::string::npos; });
  std::this_thread::sleep_for(kAWhile);
  const bool hung = is_in_it && !has_returned;
  Api().ncclCommAbort(rank.comm.get());
  caller.join();
  return hung;
}

TEST_CASE("finalize_hangs, call_hangs: the call does not return before an abort") {
  const testing::TempDir dir;
  const std::string log = dir.File("log");
  const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_LOG", log}});
  RunWith("finalize_hangs@1", [&](int index, Rank& rank) {
    CHECK(HangsUntilAbort(rank, index, log, "finalize",
                          [&] { Api().ncclCommFinalize(rank.comm.get()); }));
  });
  RunWith("call_hangs=2@1", [&](int index, Rank& rank) {
    CHECK(rank.Reduce() == kNcclSuccess);
    CHECK(rank.stream.Synchronize() == kCudaSuccess);
    if (index == 0) {
      CHECK(rank.Reduce() == kNcclSuccess);
      return;
    }
    NcclResult result = kNcclSuccess;
    CHECK(HangsUntilAbort(rank, index, log, "call hangs", [&] { result = rank.Reduce(); }));
    CHECK(result == kNcclInternalError);
  });
}

TEST_CASE("no_memalloc: ncclMemAlloc fails and says so") {
  const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_FAULT", "no_memalloc"}});
  UseDevice(0);
  void* memory = nullptr;
  CHECK(Api().ncclMemAlloc(&memory, 8) == kNcclUnhandledCudaError);
  CHECK(std::string(Api().ncclGetLastError(nullptr)) == "injected: no_memalloc");
}

// Runs last: its thread never ends.
TEST_CASE("abort_hangs: the call does not return") {
  const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_FAULT", "abort_hangs"}});
  UseDevice(0);
  auto& rank = *new Rank(NewId(), 1, 0);
  static std::atomic<bool> has_returned = false;
  std::thread([&rank] {
    Api().ncclCommAbort(rank.comm.get());
    has_returned = true;
  }).detach();
  std::this_thread::sleep_for(kAWhile);
  CHECK_FALSE(has_returned);
}

}  // namespace ddprun::gpu_double
