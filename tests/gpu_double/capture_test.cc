// Capture of streams into graphs, and their replay.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "tests/gpu_double/double_api.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::gpu_double {
namespace {

struct FirstDevice {
  FirstDevice() { UseDevice(0); }
};

struct Fixture : FirstDevice {
  Fixture() {
    for (CudaEvent& event : events) Api().cuEventCreate(&event, 0);
  }
  ~Fixture() {
    for (CudaEvent event : events) Api().cuEventDestroy_v2(event);
  }
  CudaResult Begin(int mode = kCudaCaptureModeThreadLocal) {
    return Api().cuStreamBeginCapture_v2(stream.get(), mode);
  }
  CudaResult End() { return Api().cuStreamEndCapture(stream.get(), &graph); }
  int Status() {
    int status = -1;
    Api().cuStreamIsCapturing(stream.get(), &status);
    return status;
  }

  TestStream stream, side;
  CudaEvent events[3] = {};
  CudaGraph graph = nullptr;
};

// Launches `graph` on `stream` as often as asked, and waits.
void Replay(CudaGraph graph, const TestStream& stream, int times) {
  CudaGraphExec exec = nullptr;
  REQUIRE(Api().cuGraphInstantiateWithFlags(&exec, graph, 0) == kCudaSuccess);
  for (int i = 0; i < times; ++i) CHECK(Api().cuGraphLaunch(exec, stream.get()) == kCudaSuccess);
  CHECK(stream.Synchronize() == kCudaSuccess);
  CHECK(Api().cuGraphExecDestroy(exec) == kCudaSuccess);
  CHECK(Api().cuGraphExecDestroy(exec) == kCudaErrorInvalidValue);
}

enum class Holder { kGraph, kExecutable, kLaunch };

// Ends a communicator of one, whose operation `holder` alone holds, and lets go when it waits;
// whether it does.
bool Waits(Holder holder, const std::function<NcclResult(NcclComm)>& end) {
  const testing::TempDir dir;
  bool has_waited = false;
  const ScopedEnv env(ScopedEnv::Env{{"DDPRUN_DOUBLE_LOG", dir.File("log")}});
  RunRanks(1, [&](int) {
    TestComm comm(NewId(), 1, 0);
    TestStream stream;
    const DeviceBuffer buffer(4);
    CHECK(Api().cuStreamBeginCapture_v2(stream.get(), kCudaCaptureModeThreadLocal) == kCudaSuccess);
    CHECK(Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), 1, kNcclFloat32, kNcclSum,
                              comm.get(), stream.get()) == kNcclSuccess);
    CudaGraph graph = nullptr;
    CudaGraphExec exec = nullptr;
    REQUIRE(Api().cuStreamEndCapture(stream.get(), &graph) == kCudaSuccess);
    REQUIRE(Api().cuGraphInstantiateWithFlags(&exec, graph, 0) == kCudaSuccess);
    int hold = 0;
    if (holder == Holder::kLaunch) {
      CHECK(Api().ddprun_double_hold(stream.get(), &hold) == kCudaSuccess);
      CHECK(Api().cuGraphLaunch(exec, stream.get()) == kCudaSuccess);
    }
    if (holder != Holder::kGraph) CHECK(Api().cuGraphDestroy(graph) == kCudaSuccess);
    if (holder != Holder::kExecutable) CHECK(Api().cuGraphExecDestroy(exec) == kCudaSuccess);
    std::atomic<bool> has_ended = false;
    std::thread ending([&] {
      CHECK(end(comm.get()) == kNcclSuccess);
      has_ended = true;
    });
    has_waited = testing::Eventually([&] {
      return testing::ReadFile(dir.File("log")).find(" waits for graphs operations=1\n") !=
             std::string::npos;
    });
    CHECK_FALSE(has_ended);
    if (holder == Holder::kGraph) CHECK(Api().cuGraphDestroy(graph) == kCudaSuccess);
    if (holder == Holder::kExecutable) CHECK(Api().cuGraphExecDestroy(exec) == kCudaSuccess);
    if (holder == Holder::kLaunch) CHECK(Api().ddprun_double_release(hold) == kCudaSuccess);
    ending.join();
    CHECK(stream.Synchronize() == kCudaSuccess);
  });
  return has_waited;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "capture: nothing runs before a launch, all of it with each") {
  const DeviceBuffer a(std::string(4, 'a')), b(std::string(4, 'b'));
  CHECK(Begin() == kCudaSuccess);
  CHECK(Status() == kCudaCaptureStatusActive);
  CHECK(Api().cuMemcpyDtoDAsync_v2(b.address(), a.address(), 4, stream.get()) == kCudaSuccess);
  CHECK(Api().cuMemsetD8Async(a.address(), 'c', 4, stream.get()) == kCudaSuccess);
  CHECK(End() == kCudaSuccess);
  CHECK(Status() == kCudaCaptureStatusNone);
  CHECK(a.Read() == "aaaa");
  Replay(graph, stream, 1);
  CHECK(a.Read() == "cccc");
  CHECK(b.Read() == "aaaa");
  Replay(graph, stream, 2);
  CHECK(b.Read() == "cccc");
  CHECK(Api().cuGraphDestroy(graph) == kCudaSuccess);
  CHECK(Api().cuGraphDestroy(graph) == kCudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(Fixture,
                  "capture: a stream that waits for a captured event joins, and must return") {
  const DeviceBuffer a(std::string(4, 'a')), b(std::string(4, 'b'));
  Begin();
  Api().cuMemsetD8Async(a.address(), 'x', 4, stream.get());
  Api().cuEventRecord(events[0], stream.get());
  CHECK(Api().cuStreamWaitEvent(side.get(), events[0], 0) == kCudaSuccess);
  Api().cuMemcpyDtoDAsync_v2(b.address(), a.address(), 4, side.get());
  Api().cuEventRecord(events[1], side.get());
  SUBCASE("joined") {
    CHECK(Api().cuStreamWaitEvent(stream.get(), events[1], 0) == kCudaSuccess);
    Api().cuMemsetD8Async(a.address(), 'y', 4, stream.get());
    REQUIRE(End() == kCudaSuccess);
    Replay(graph, stream, 5);
    CHECK(a.Read() == "yyyy");
    CHECK(b.Read() == "xxxx");
    Api().cuGraphDestroy(graph);
  }
  SUBCASE("forgotten") { CHECK(End() == 904); }
  SUBCASE("work after the join") {
    Api().cuStreamWaitEvent(stream.get(), events[1], 0);
    Api().cuMemsetD8Async(b.address(), 'z', 4, side.get());
    CHECK(End() == 904);
  }
  CHECK(Api().cuStreamQuery(side.get()) == kCudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "capture: waiting for captured work costs the capture") {
  Begin();
  Api().cuEventRecord(events[0], stream.get());
  SUBCASE("stream synchronize") { CHECK(stream.Synchronize() == 900); }
  SUBCASE("stream query") { CHECK(Api().cuStreamQuery(stream.get()) == 900); }
  SUBCASE("event query") { CHECK(Api().cuEventQuery(events[0]) == 907); }
  SUBCASE("event synchronize") { CHECK(Api().cuEventSynchronize(events[0]) == 907); }
  SUBCASE("allocation") {
    CudaPointer memory = 0;
    CHECK(Api().cuMemAlloc_v2(&memory, 8) == 900);
  }
  SUBCASE("a foreign dependency") {
    Api().cuEventRecord(events[1], side.get());
    CHECK(Api().cuStreamWaitEvent(stream.get(), events[1], 0) == 905);
  }
  CHECK(Status() == kCudaCaptureStatusInvalidated);
  CHECK(Api().cuEventRecord(events[2], stream.get()) == 901);
  CHECK(End() == 901);
  CHECK(graph == nullptr);
  CHECK(stream.Synchronize() == kCudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "capture: its mode decides what other threads may do") {
  CudaResult seen = -1;
  const auto query_elsewhere = [&](int mode) {
    Begin(mode);
    std::thread([&] {
      UseDevice(0);
      seen = Api().cuEventQuery(events[1]);
    }).join();
    return End();
  };
  SUBCASE("global") {
    CHECK(query_elsewhere(kCudaCaptureModeGlobal) == 901);
    CHECK(seen == 900);
  }
  SUBCASE("thread local") {
    CHECK(query_elsewhere(kCudaCaptureModeThreadLocal) == kCudaSuccess);
    CHECK(seen == kCudaSuccess);
  }
  if (graph != nullptr) Api().cuGraphDestroy(graph);
}

TEST_CASE_FIXTURE(Fixture, "capture: a thread in relaxed mode may allocate") {
  int mode = kCudaCaptureModeRelaxed;
  Api().cuThreadExchangeStreamCaptureMode(&mode);
  CHECK(mode == kCudaCaptureModeGlobal);
  Begin();
  { const DeviceBuffer buffer(8); }
  CHECK(End() == kCudaSuccess);
  Api().cuThreadExchangeStreamCaptureMode(&mode);
  CHECK(mode == kCudaCaptureModeRelaxed);
  Api().cuGraphDestroy(graph);
}

TEST_CASE_FIXTURE(Fixture, "capture: ends on its own stream and thread") {
  Begin();
  CudaResult elsewhere = -1;
  std::thread([&] {
    UseDevice(0);
    elsewhere = End();
  }).join();
  CHECK(elsewhere == 908);
  CHECK(Api().cuStreamBeginCapture_v2(nullptr, kCudaCaptureModeThreadLocal) == 900);
  CHECK(End() == kCudaSuccess);
  CHECK(Api().cuStreamEndCapture(stream.get(), &graph) != kCudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "capture: the legacy stream is lost while a blocking stream captures") {
  TestStream blocking(/*flags=*/0);
  Api().cuStreamBeginCapture_v2(blocking.get(), kCudaCaptureModeThreadLocal);
  CHECK(Api().cuEventRecord(events[0], nullptr) == 906);
  CHECK(Api().cuStreamEndCapture(blocking.get(), &graph) == 901);
  CHECK(Api().cuEventRecord(events[0], nullptr) == kCudaSuccess);
}

TEST_CASE_FIXTURE(Fixture, "replay: external records give events a time in every launch") {
  const DeviceBuffer buffer(4);
  Begin();
  CHECK(Api().cuEventRecordWithFlags(events[0], stream.get(), kCudaEventRecordExternal) ==
        kCudaSuccess);
  Api().cuMemsetD8Async(buffer.address(), 'x', 4, stream.get());
  CHECK(Api().cuEventRecordWithFlags(events[1], stream.get(), kCudaEventRecordExternal) ==
        kCudaSuccess);
  REQUIRE(End() == kCudaSuccess);
  Replay(graph, stream, 1);
  float ms = -1;
  CHECK(Api().cuEventQuery(events[1]) == kCudaSuccess);
  CHECK(Api().cuEventElapsedTime(&ms, events[0], events[1]) == kCudaSuccess);
  CHECK(ms >= 0);
  Api().cuGraphDestroy(graph);
}

TEST_CASE("replay: a captured all-reduce on a side stream runs with every launch") {
  const NcclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    TestComm comm(id, 2, rank);
    TestStream stream, side;
    const DeviceBuffer buffer(BytesOf<float>({1.0f + static_cast<float>(rank)}));
    CudaEvent fork = nullptr, join = nullptr;
    Api().cuEventCreate(&fork, kCudaEventDisableTiming);
    Api().cuEventCreate(&join, kCudaEventDisableTiming);
    CHECK(Api().cuStreamBeginCapture_v2(stream.get(), kCudaCaptureModeThreadLocal) == kCudaSuccess);
    Api().cuEventRecord(fork, stream.get());
    Api().cuStreamWaitEvent(side.get(), fork, 0);
    CHECK(Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), 1, kNcclFloat32, kNcclSum,
                              comm.get(), side.get()) == kNcclSuccess);
    Api().cuEventRecord(join, side.get());
    Api().cuStreamWaitEvent(stream.get(), join, 0);
    CudaGraph graph = nullptr;
    REQUIRE(Api().cuStreamEndCapture(stream.get(), &graph) == kCudaSuccess);
    Replay(graph, stream, 3);
    // 1 + 2 = 3, then 6, then 12.
    CHECK(buffer.Read() == BytesOf<float>({12.0f}));
    Api().cuGraphDestroy(graph);
    CHECK(comm.End() == kNcclSuccess);
    Api().cuEventDestroy_v2(fork);
    Api().cuEventDestroy_v2(join);
  });
}

TEST_CASE("graphs: a communicator does not end before the last one that holds its operations") {
  for (const Holder holder : {Holder::kGraph, Holder::kExecutable, Holder::kLaunch}) {
    REQUIRE(Waits(holder, Api().ncclCommFinalize));
    REQUIRE(Waits(holder, Api().ncclCommDestroy));
    REQUIRE(Waits(holder, Api().ncclCommAbort));
  }
}

TEST_CASE_FIXTURE(Fixture, "graphs: a capture that was lost holds no operations") {
  TestComm comm(NewId(), 1, 0);
  const DeviceBuffer buffer(4);
  Begin();
  Api().cuEventRecord(events[0], stream.get());
  CHECK(Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), 1, kNcclFloat32, kNcclSum,
                            comm.get(), stream.get()) == kNcclSuccess);
  CHECK(stream.Synchronize() == 900);
  CHECK(End() == 901);
  CHECK(comm.End() == kNcclSuccess);
}

}  // namespace ddprun::gpu_double
