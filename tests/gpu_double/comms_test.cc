// Communicators of the double: how they begin, fail, own memory, and end.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu_double/double_api.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::gpu_double {
namespace {

NcclResult AllReduce(const DeviceBuffer& buffer, size_t count, const TestComm& comm,
                     const TestStream& stream, NcclDataType type = kNcclFloat32) {
  return Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), count, type, kNcclSum, comm.get(),
                             stream.get());
}

std::string LastError(const TestComm& comm) { return Api().ncclGetLastError(comm.get()); }

// How init ends on each of two ranks, on a device each: 15 is "Duplicate GPU detected".
std::vector<int> Join(const std::vector<int>& devices,
                      const std::function<ScopedEnv::Env(int rank)>& env_of) {
  const NcclUniqueId id = NewId();
  return RunRankProcesses(2, [&](int rank) {
    const ScopedEnv env(env_of(rank));
    UseDevice(devices[static_cast<size_t>(rank)]);
    TestComm comm(id, 2, rank);
    const bool is_named = LastError(comm) == Contains("Duplicate GPU detected : rank 0 and rank 1");
    return 10 * (is_named ? 1 : 0) + comm.joined();
  });
}

const std::vector<int> kRefused = {15, 15}, kJoined = {0, 0};

}  // namespace

// These come first: their ranks are forked.
TEST_CASE("log: calls and executions in their order; no file stays when all have joined") {
  const testing::TempDir dir;
  const std::string log = dir.File("log");
  const NcclUniqueId id = NewId();
  const auto codes = RunRankProcesses(2, [&](int rank) {
    const ScopedEnv env(
        ScopedEnv::Env{{"DDPRUN_DOUBLE_LOG", log}, {"DDPRUN_DOUBLE_DIR", dir.path()}});
    UseDevice(rank);
    TestComm comm(id, 2, rank);
    TestStream stream;
    const DeviceBuffer buffer(4);
    if (AllReduce(buffer, 1, comm, stream) != kNcclSuccess) return 1;
    stream.Synchronize();
    return comm.End() == kNcclSuccess ? 0 : 2;
  });
  CHECK(codes == std::vector<int>{0, 0});
  const std::string text = testing::ReadFile(log);
  size_t at = 0;
  for (const char* part : {"rank=0 joined", "rank=0 call allreduce count=1", "rank=0 enqueue",
                           "rank=0 begin op=1 allreduce", "rank=0 end op=1", "rank=0 finalized"}) {
    CAPTURE(part);
    const size_t found = text.find(part, at);
    REQUIRE(found != std::string::npos);
    at = found;
  }
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    ++files;
  }
  CHECK(files == 1);
}

TEST_CASE("init: two ranks on one device are refused; on two hosts they are not") {
  CHECK(Join({3, 3}, [](int) { return ScopedEnv::Env(); }) == kRefused);
  CHECK(Join({3, 3}, [](int rank) {
          return ScopedEnv::Env{{"NCCL_HOSTID", "host" + std::to_string(rank)}};
        }) == kJoined);
}

TEST_CASE("init: ranks share a GPU, or have slices of one, from 2.30.3 on where each asks for it") {
  const std::vector<int> same = {3, 3}, slices = {2, 3}, apart = {1, 2};
  const auto join = [](const std::vector<int>& devices, ScopedEnv::Env env) {
    env["DDPRUN_DOUBLE_MIG"] = "2";
    return Join(devices, [&env](int) { return env; });
  };
  for (const auto& devices : {same, slices}) {
    CHECK(join(devices, {}) == kRefused);
    CHECK(join(devices, {{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}}) == kRefused);
    for (const std::string version : {"23003", "23007"}) {
      CHECK(join(devices, {{"DDPRUN_DOUBLE_NCCL_VERSION", version}}) == kRefused);
      CHECK(join(devices, {{"DDPRUN_DOUBLE_NCCL_VERSION", version},
                           {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}}) == kJoined);
    }
    CHECK(Join(devices, [](int rank) {
            return ScopedEnv::Env{{"DDPRUN_DOUBLE_MIG", "2"},
                                  {"DDPRUN_DOUBLE_NCCL_VERSION", "23007"},
                                  {"NCCL_MULTI_RANK_GPU_ENABLE", rank == 0 ? "1" : "0"}};
          }) == std::vector<int>{0, 15});
  }
  CHECK(join(apart, {}) == kJoined);
}

TEST_CASE("mismatch: every rank gets an error that names both calls, and its stream stays busy") {
  const NcclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    TestComm comm(id, 2, rank);
    TestStream stream;
    const DeviceBuffer buffer(64);
    CHECK(AllReduce(buffer, rank == 0 ? 4 : 5, comm, stream) == kNcclSuccess);
    const auto has_failed = [&] { return comm.Error() == kNcclInvalidUsage; };
    CHECK(testing::Eventually(has_failed));
    CHECK(LastError(comm) == Contains("rank 0: allreduce count=4 type=float32"));
    CHECK(LastError(comm) == Contains("rank 1: allreduce count=5 type=float32"));
    CHECK(Api().cuStreamQuery(stream.get()) == kCudaErrorNotReady);
    CHECK(AllReduce(buffer, 1, comm, stream) == kNcclInvalidUsage);
    CHECK(Api().ncclCommAbort(comm.get()) == kNcclSuccess);
    CHECK(stream.Synchronize() == kCudaSuccess);
    CHECK(Api().ncclCommAbort(comm.get()) == kNcclInvalidArgument);
  });
}

TEST_CASE("mismatch: of types, of kinds, of registration and of a pair") {
  const auto run =
      [](bool is_pair,
         const std::function<void(int, const TestComm&, const TestStream&, const DeviceBuffer&)>&
             call) {
        const NcclUniqueId id = NewId();
        std::string text;
        RunRanks(2, [&](int rank) {
          TestComm comm(id, 2, rank);
          TestStream stream;
          const DeviceBuffer buffer(64);
          call(rank, comm, stream, buffer);
          // Of a pair only the receiver knows.
          if (rank == 0 || !is_pair) {
            CHECK(testing::Eventually([&] { return comm.Error() == kNcclInvalidUsage; }));
          } else {
            CHECK(stream.Synchronize() == kCudaSuccess);
          }
          if (rank == 0) text = LastError(comm);
          // Before the buffer goes, whose end waits for the device.
          CHECK(Api().ncclCommAbort(comm.get()) == kNcclSuccess);
        });
        return text;
      };
  CHECK(run(false, [](int rank, auto& comm, auto& stream, auto& buffer) {
          AllReduce(buffer, 4, comm, stream, rank == 0 ? kNcclInt32 : kNcclFloat32);
        }) == Contains("rank 0: allreduce count=4 type=int32"));
  CHECK(run(false, [](int rank, auto& comm, auto& stream, auto& buffer) {
          if (rank == 0) {
            AllReduce(buffer, 4, comm, stream);
          } else {
            Api().ncclBroadcast(buffer.pointer(), buffer.pointer(), 4, kNcclFloat32, 0, comm.get(),
                                stream.get());
          }
        }) == Contains("rank 1: broadcast"));
  CHECK(run(false, [](int rank, auto& comm, auto& stream, auto& buffer) {
          void* registered = nullptr;
          if (rank == 0) {
            Api().ncclCommRegister(comm.get(), buffer.pointer(), 64, &registered);
          }
          AllReduce(buffer, 4, comm, stream);
        }) == Contains("registered=1; rank 1"));
  CHECK(run(true, [](int rank, auto& comm, auto& stream, auto& buffer) {
          if (rank == 0) {
            Api().ncclRecv(buffer.pointer(), 3, kNcclFloat32, 1, comm.get(), stream.get());
          } else {
            Api().ncclSend(buffer.pointer(), 4, kNcclFloat32, 0, comm.get(), stream.get());
          }
        }) == Contains("rank 1 sends count=4 type=float32, rank 0 receives count=3"));
}

TEST_CASE("arguments: wrong ones are refused at the call") {
  RunRanks(1, [&](int) {
    TestComm comm(NewId(), 1, 0);
    TestStream stream;
    const DeviceBuffer buffer(16);
    float host[4] = {};
    const auto reduce = [&](void* pointer, size_t count, int type, int op) {
      return Api().ncclAllReduce(pointer, pointer, count, type, op, comm.get(), stream.get());
    };
    CHECK(reduce(buffer.pointer(), 4, kNcclFloat32, kNcclSum) == kNcclSuccess);
    CHECK(reduce(host, 4, kNcclFloat32, kNcclSum) == kNcclInvalidArgument);
    CHECK(LastError(comm) == Contains("a buffer is not memory of device 0"));
    CHECK(reduce(buffer.pointer(), 5, kNcclFloat32, kNcclSum) == kNcclInvalidArgument);
    CHECK(reduce(buffer.pointer(), 4, 99, kNcclSum) == kNcclInvalidArgument);
    CHECK(reduce(buffer.pointer(), 4, kNcclFloat32, 5) == kNcclInvalidArgument);
    CHECK(Api().ncclBroadcast(buffer.pointer(), buffer.pointer(), 4, kNcclFloat32, 1, comm.get(),
                              stream.get()) == kNcclInvalidArgument);
    CudaStream gone = nullptr;
    Api().cuStreamCreateWithPriority(&gone, 0, 0);
    Api().cuStreamDestroy_v2(gone);
    CHECK(Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), 4, kNcclFloat32, kNcclSum,
                              comm.get(), gone) == kNcclInvalidArgument);
    Api().cuCtxSetCurrent(nullptr);
    CHECK(reduce(buffer.pointer(), 4, kNcclFloat32, kNcclSum) == kNcclUnhandledCudaError);
    Api().cuCtxSetCurrent(reinterpret_cast<CudaContext>(0x10000));
    CHECK(Api().ncclGroupEnd() == kNcclInvalidUsage);
    NcclConfig config;
    config.magic = 1;
    NcclComm other = nullptr;
    CHECK(Api().ncclCommInitRankConfig(&other, 1, NewId(), 0, &config) == kNcclInvalidArgument);
    CHECK(Api().ncclCommInitRankConfig(&other, 2, NewId(), 2, nullptr) == kNcclInvalidArgument);
    CHECK(comm.End() == kNcclSuccess);
  });
}

TEST_CASE("memory: frees and registrations are checked, leaks are named") {
  RunRanks(1, [&](int) {
    TestComm comm(NewId(), 1, 0);
    const std::string before = Api().ddprun_double_leaks();
    void* memory = nullptr;
    void* registered = nullptr;
    CHECK(Api().ncclMemAlloc(&memory, 100) == kNcclSuccess);
    const std::string with_memory = Api().ddprun_double_leaks();
    CHECK(with_memory == Contains("nccl_memory=1"));
    CHECK(Api().ncclCommRegister(comm.get(), memory, 100, &registered) == kNcclSuccess);
    const std::string with_registration = Api().ddprun_double_leaks();
    CHECK(with_registration == Contains("registrations="));
    CHECK(with_registration != with_memory);
    CHECK(Api().ncclMemFree(memory) == kNcclInvalidUsage);
    CHECK(Api().ncclCommDeregister(comm.get(), registered) == kNcclSuccess);
    CHECK(Api().ncclCommDeregister(comm.get(), registered) == kNcclInvalidArgument);
    CHECK(Api().ncclMemFree(memory) == kNcclSuccess);
    CHECK(Api().ncclMemFree(memory) == kNcclInvalidArgument);
    float host = 0;
    CHECK(Api().ncclCommRegister(comm.get(), &host, 4, &registered) == kNcclInvalidArgument);
    CHECK(Api().ddprun_double_leaks() == before);
    CHECK(comm.End() == kNcclSuccess);
    CHECK(Api().ddprun_double_leaks() != Contains("comms="));
  });
}

}  // namespace ddprun::gpu_double
