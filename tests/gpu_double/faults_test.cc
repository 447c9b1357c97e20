// Each fault of the double, on the rank that it names and no other.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/gpu_double/double_api.h"
#include "tests/support/subprocess.h"

namespace ddprun::gpu_double {
namespace {

using testing::Eventually;
constexpr std::chrono::milliseconds kAWhile{100};

struct Rank {
  Rank(const NcclUniqueId& id, int world_size, int rank)
      : buffer(BytesOf<float>({1})), comm(id, world_size, rank, /*is_blocking=*/false) {}

  NcclResult Reduce() {
    const NcclResult result = Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), 1,
                                                  kNcclFloat32, kNcclSum, comm.get(), stream.get());
    return result == kNcclInProgress ? comm.Settle() : result;
  }
  // The asynchronous error now.
  NcclResult Error() const {
    NcclResult result = kNcclSuccess;
    Api().ncclCommGetAsyncError(comm.get(), &result);
    return result;
  }
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
      if (rank.comm.Settle() != kNcclSuccess) return 1;
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

// Forks as well. Rank 0 looks for the message when its sender is gone.
TEST_CASE("remote_error: what a peer sent before it died arrives") {
  const NcclUniqueId id = NewId();
  const auto codes = RunRankProcesses(2, [&](int index) {
    const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_FAULT", "remote_error,slow=300@0"}});
    UseDevice(index);
    Rank rank(id, 2, index);
    if (rank.comm.Settle() != kNcclSuccess) return 1;
    const NcclComm comm = rank.comm.get();
    NcclResult result =
        index == 1
            ? Api().ncclSend(rank.buffer.pointer(), 1, kNcclFloat32, 0, comm, rank.stream.get())
            : Api().ncclRecv(rank.buffer.pointer(), 1, kNcclFloat32, 1, comm, rank.stream.get());
    if (result == kNcclInProgress) result = rank.comm.Settle();
    if (result != kNcclSuccess) return 2;
    const bool has_ended = Eventually([&] {
      return rank.Error() != kNcclSuccess || Api().cuStreamQuery(rank.stream.get()) == kCudaSuccess;
    });
    if (index == 1) raise(SIGKILL);
    return has_ended && rank.Error() == kNcclSuccess ? 0 : 3;
  });
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL});
}

TEST_CASE("never_joins: nobody's init ends") {
  RunWith("never_joins@1", [](int, Rank& rank) {
    std::this_thread::sleep_for(kAWhile);
    CHECK(rank.Error() == kNcclInProgress);
  });
}

TEST_CASE("init_hangs: the others' init ends") {
  RunWith("init_hangs@1", [](int index, Rank& rank) {
    if (index == 0) {
      CHECK(rank.comm.Settle() == kNcclSuccess);
    } else {
      std::this_thread::sleep_for(kAWhile);
      CHECK(rank.Error() == kNcclInProgress);
    }
  });
}

TEST_CASE("async_error and remote_error: at their operation, on their rank; the others hang") {
  for (const auto& [fault, error] : std::map<std::string, NcclResult>{
           {"async_error=2@1", kNcclSystemError}, {"remote_error=2@1", kNcclRemoteError}}) {
    CAPTURE(fault);
    RunWith(fault, [error = error](int index, Rank& rank) {
      REQUIRE(rank.comm.Settle() == kNcclSuccess);
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
    REQUIRE(rank.comm.Settle() == kNcclSuccess);
    CHECK(rank.Reduce() == kNcclSuccess);
    CHECK(rank.stream.Synchronize() == kCudaSuccess);
    CHECK(rank.Reduce() == kNcclSuccess);
    CHECK(rank.IsBusyForAWhile());
    CHECK(rank.Error() == kNcclSuccess);
  });
}

TEST_CASE("blind: ranks in different operations hang, without an error") {
  RunWith("blind", [](int index, Rank& rank) {
    REQUIRE(rank.comm.Settle() == kNcclSuccess);
    if (index == 0) {
      CHECK(rank.Reduce() == kNcclSuccess);
    } else {
      const NcclResult result =
          Api().ncclBroadcast(rank.buffer.pointer(), rank.buffer.pointer(), 1, kNcclFloat32,
                              /*root=*/0, rank.comm.get(), rank.stream.get());
      CHECK((result == kNcclInProgress ? rank.comm.Settle() : result) == kNcclSuccess);
    }
    CHECK(rank.IsBusyForAWhile());
    CHECK(rank.Error() == kNcclSuccess);
  });
}

TEST_CASE("slow: the operation starts late and is right") {
  RunWith("slow=50@1", [](int index, Rank& rank) {
    REQUIRE(rank.comm.Settle() == kNcclSuccess);
    const auto begin = std::chrono::steady_clock::now();
    CHECK(rank.Reduce() == kNcclSuccess);
    CHECK(rank.stream.Synchronize() == kCudaSuccess);
    const auto took = std::chrono::steady_clock::now() - begin;
    // The other may have begun to look later than the slow one began to wait.
    if (index == 1) CHECK(took >= std::chrono::milliseconds(50));
    CHECK(rank.buffer.Read() == BytesOf<float>({2}));
  });
}

TEST_CASE("finalize_hangs: in progress for ever; abort still works") {
  RunWith("finalize_hangs@1", [](int, Rank& rank) {
    REQUIRE(rank.comm.Settle() == kNcclSuccess);
    CHECK(Api().ncclCommFinalize(rank.comm.get()) == kNcclInProgress);
    std::this_thread::sleep_for(kAWhile);
    CHECK(rank.Error() == kNcclInProgress);
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
  REQUIRE(rank.comm.Settle() == kNcclSuccess);
  static std::atomic<bool> has_returned = false;
  std::thread([&rank] {
    Api().ncclCommAbort(rank.comm.get());
    has_returned = true;
  }).detach();
  std::this_thread::sleep_for(kAWhile);
  CHECK_FALSE(has_returned);
}

}  // namespace ddprun::gpu_double
