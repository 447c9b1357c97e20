// The communicator over NCCL between processes, on the double of CUDA and NCCL (tests/gpu_double).
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/expect.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::ReduceOp;
using Floats = std::vector<float>;

int CheckCollectives(int rank, int size) {
  const auto group = GpuGroup();
  ddp::Communicator& comm = group->communicator();
  EXPECT(std::string(comm.backend()) == "nccl");
  EXPECT(comm.device_type() == ddp::DeviceType::kCuda);
  EXPECT(std::string(comm.host().backend()) == "shm");
  EXPECT(group->gpu() == rank);
  const ddp::Stream stream = NewStream();
  const float sum = static_cast<float>(size * (size + 1)) / 2;
  const float mine = static_cast<float>(rank + 1);

  DeviceArray data({mine, 10 * mine});
  EXPECT(comm.AllReduce(data.data(), 2, DType::kFloat32, ReduceOp::kSum, stream)->Wait().ok());
  EXPECT(data.Read(stream) == (Floats{sum, 10 * sum}));

  DeviceArray average({mine});
  EXPECT(comm.AllReduce(average.data(), 1, DType::kFloat32, ReduceOp::kAverage, stream)
             ->WaitOn(stream)
             .ok());
  EXPECT(average.Read(stream) == Floats{sum / static_cast<float>(size)});

  float product = 1;
  for (int i = 1; i <= size; ++i) product *= static_cast<float>(i);
  for (const auto& [op, result] :
       {std::pair(ReduceOp::kMax, static_cast<float>(size)), std::pair(ReduceOp::kMin, 1.0f),
        std::pair(ReduceOp::kProduct, product)}) {
    DeviceArray reduced({mine});
    EXPECT(comm.AllReduce(reduced.data(), 1, DType::kFloat32, op, stream)->Wait().ok());
    EXPECT(reduced.Read(stream) == Floats{result});
    DeviceArray parts(Floats(static_cast<size_t>(size), mine)), part({0});
    EXPECT(
        comm.ReduceScatter(parts.data(), part.data(), 1, DType::kFloat32, op, stream)->Wait().ok());
    EXPECT(part.Read(stream) == Floats{result});
  }

  DeviceArray from_last({mine, mine});
  EXPECT(comm.Broadcast(from_last.data(), 2, DType::kFloat32, size - 1, stream)->Wait().ok());
  EXPECT(from_last.Read(stream) == Floats(2, static_cast<float>(size)));

  Floats ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 1.0f);
  DeviceArray one({mine}), all(Floats(static_cast<size_t>(size), 0));
  EXPECT(comm.AllGather(one.data(), all.data(), 1, DType::kFloat32, stream)->Wait().ok());
  EXPECT(all.Read(stream) == ranks);

  DeviceArray slice({0});
  EXPECT(comm.ReduceScatter(all.data(), slice.data(), 1, DType::kFloat32, ReduceOp::kSum, stream)
             ->Wait()
             .ok());
  EXPECT(slice.Read(stream) == Floats{mine * static_cast<float>(size)});

  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  EXPECT(comm.SendReceive(one.data(), next, slice.data(), previous, 1, DType::kFloat32, stream)
             ->Wait()
             .ok());
  EXPECT(slice.Read(stream) == Floats{static_cast<float>(previous + 1)});

  EXPECT(comm.AllReduce(nullptr, 0, DType::kFloat32, ReduceOp::kSum, stream)->Wait().ok());
  EXPECT(comm.Barrier()->Wait().ok());
  int64_t on_host = rank;
  EXPECT(comm.host().AllReduce(&on_host, 1, DType::kInt64, ReduceOp::kSum)->Wait().ok());
  EXPECT(on_host == size * (size - 1) / 2);
  EXPECT(group->Shutdown().ok());
  EXPECT(!comm.Barrier()->Wait().ok());
  return 0;
}

TEST_CASE("nccl: collectives of 2 and 4 ranks give the right values") {
  for (const int size : {2, 4}) {
    const auto codes =
        RunOnDouble(size, DoubleEnv(), [size](int rank) { return CheckCollectives(rank, size); });
    CHECK(codes == (size == 2 ? "0 0" : "0 0 0 0"));
  }
}

TEST_CASE("nccl: calls do not wait for the device, and keep their order") {
  const auto codes = RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "slow=2"}}), [](int) {
    const auto group = GpuGroup();
    const ddp::Stream stream = NewStream();
    DeviceArray data({1});
    ddp::Communicator& comm = group->communicator();
    std::vector<std::unique_ptr<ddp::Work>> works;
    float expected = 1;
    for (int i = 0; i < 100; ++i) {
      works.push_back(comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum, stream));
      EXPECT(works.back()->WaitOn(stream).ok());
      expected *= 2;
    }
    EXPECT(!works.back()->IsDone());
    EXPECT(!works.back()->WaitFor(std::chrono::milliseconds(0)));
    EXPECT(works.back()->WaitFor(std::chrono::seconds(60)));
    EXPECT(works.back()->Wait().ok());
    for (const auto& work : works) {
      EXPECT(work->IsDone());
      EXPECT(work->issued_at() <= work->started_at());
      EXPECT(work->started_at() <= work->ended_at());
    }
    EXPECT(data.Read(stream) == Floats{expected});
    works.clear();
    EXPECT(group->Shutdown().ok());
    return 0;
  });
  CHECK(codes == "0 0");
}

// As in PyTorch, where it has to be asked for.
TEST_CASE("nccl: memory for gradients is registered where every rank asks and its NCCL can") {
  const std::string good = "libgpu_double.so", old = "libgpu_double_noregister.so";
  struct Row {
    std::string library, of_rank_1, fault, words;
    bool is_registered;
  };
  const std::string plain = "gradients in plain memory, as rank ";
  const Row rows[] = {
      {good, "1", "", "nccl 2.28.7: each of 2 ranks has a GPU of its own", true},
      {good, "1", "no_memalloc", "nccl 2.28.7", false},
      {good, "0", "", plain + "1 does not ask for registered memory (TORCH_NCCL_", false},
      {old, "1", "", plain + "0's NCCL cannot register it (2.19 can)", false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.words);
    const TempDir temp;
    const std::string log = temp.File("log");
    RankProcesses ranks(
        {.world_size = 2,
         .env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", row.fault}, {"DDPRUN_DOUBLE_LOG", log}},
                          row.library),
         .env_of_rank =
             [&row](int rank) {
               return std::map<std::string, std::string>{
                   {kRegisteredMemory, rank == 0 ? "1" : row.of_rank_1}};
             }},
        [&row](int) {
          const auto group = GpuGroup();
          EXPECT(group->description().find(row.words) != std::string::npos);
          ddp::Communicator& comm = group->communicator();
          auto buffer = comm.Allocate(4096);
          EXPECT(buffer.ok());
          EXPECT((*buffer)->bytes() == 4096);
          const ddp::Stream stream = NewStream();
          EXPECT(comm.AllReduce((*buffer)->data(), 1024, DType::kFloat32, ReduceOp::kSum, stream)
                     ->Wait()
                     .ok());
          EXPECT((*buffer)->Zero(stream).ok());
          buffer->reset();
          EXPECT(group->Shutdown().ok());
          return 0;
        });
    for (const int rank : {0, 1}) CHECK(ranks.Await(rank) == 0);
    const std::string calls = ReadFile(log);
    CHECK((calls == Contains("count=1024 type=float32 op=0 root=0 registered=1")) ==
          row.is_registered);
    CHECK((calls == Contains("count=1024 type=float32 op=0 root=0 registered=0")) !=
          row.is_registered);
  }
}

TEST_CASE("nccl: the group's stream has the default priority, unless a higher one is asked for") {
  for (const bool is_high : {false, true}) {
    const TempDir temp;
    const std::string log = temp.File("log");
    const auto env = DoubleEnv(
        {{"TORCH_NCCL_HIGH_PRIORITY", is_high ? "true" : "0"}, {"DDPRUN_DOUBLE_LOG", log}});
    CHECK(RunOnDouble(2, env, [](int) { return GpuGroup()->Shutdown().ok() ? 0 : 1; }) == "0 0");
    CHECK((ReadFile(log) == Contains("priority=-")) == is_high);
  }
}

using Call = std::function<std::unique_ptr<ddp::Work>(ddp::Communicator&)>;

// Calls that are refused, and what is said of each.
const std::vector<std::pair<std::string, Call>>& RefusedCalls() {
  static float on_host[4];
  static const auto* rows = new std::vector<std::pair<std::string, Call>>{
      {"the input is a null pointer",
       [](ddp::Communicator& comm) {
         return comm.AllReduce(nullptr, 4, DType::kFloat32, ReduceOp::kSum);
       }},
      {"broadcast from rank 2 in a group of 2 ranks",
       [](ddp::Communicator& comm) {
         return comm.Broadcast(DeviceArray({1}).data(), 1, DType::kFloat32, 2);
       }},
      {"the input is not memory of a GPU",
       [](ddp::Communicator& comm) {
         return comm.AllReduce(on_host, 4, DType::kFloat32, ReduceOp::kSum);
       }},
      {"the input is not aligned to its elements of 4 bytes",
       [](ddp::Communicator& comm) {
         char* const odd = reinterpret_cast<char*>(DeviceArray({1, 2}).data()) + 2;
         return comm.AllReduce(odd, 1, DType::kFloat32, ReduceOp::kSum);
       }},
      {"the end of the input is not memory of a GPU",
       [](ddp::Communicator& comm) {
         return comm.AllReduce(DeviceArray({1, 2}).data(), size_t{1} << 32, DType::kFloat32,
                               ReduceOp::kSum);
       }},
      {"NCCL has no operations on bits",
       [](ddp::Communicator& comm) {
         return comm.AllReduce(DeviceArray({1, 2}).data(), 1, DType::kInt32, ReduceOp::kBitOr);
       }},
      {"more bytes than can be addressed",
       [](ddp::Communicator& comm) {
         return comm.AllReduce(DeviceArray({1, 2}).data(), SIZE_MAX / 4, DType::kFloat32,
                               ReduceOp::kSum);
       }},
  };
  return *rows;
}

// Rank 0 makes each wrong call before the right one.
int RefuseAndGoOn(int rank) {
  const auto group = GpuGroup();
  ddp::Communicator& comm = group->communicator();
  const ddp::Stream stream = NewStream();
  for (const auto& [words, call] : RefusedCalls()) {
    if (rank == 0) {
      const absl::Status status = call(comm)->Wait();
      EXPECT(absl::IsInvalidArgument(status));
      EXPECT(status.message().find(words) != std::string::npos);
      EXPECT(absl::IsInvalidArgument(comm.Allocate(SIZE_MAX).status()));
    }
    DeviceArray data({static_cast<float>(rank + 1)});
    EXPECT(comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum, stream)->Wait().ok());
    EXPECT(data.Read(stream) == Floats{3});
    EXPECT(comm.Allocate(64).ok());
  }
  EXPECT(comm.error().ok());
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("nccl: the call after a refused one meets the others', and the result is right") {
  CHECK(RunOnDouble(2, DoubleEnv(), RefuseAndGoOn) == "0 0");
}

TEST_CASE("nccl: a stream that cannot be used ends the group, and is named") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    DeviceArray data({1});
    const ddp::Stream stream = NewStream();
    Driver().cuStreamDestroy(static_cast<ddp::internal::CudaStream>(stream));
    comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum, stream)->Wait().IgnoreError();
    EXPECT(comm.error().message().find("the stream on which its data was announced cannot be "
                                       "used") != std::string::npos);
    return 0;
  });
  CHECK(codes == "0 0");
}

// The caller's own capture, in the mode in which every thread of the process is bound by it, while
// this group's events are asked for: by the caller, by another thread and by the watchdog.
int AskBesideCapture(int) {
  const auto group = GpuGroup();
  ddp::Communicator& comm = group->communicator();
  const ddp::Stream busy = NewStream();
  const auto captured = static_cast<ddp::internal::CudaStream>(NewStream());
  DeviceArray data({1, 2});
  const int hold = HoldStream(busy);
  const auto work = comm.AllReduce(data.data(), 2, DType::kFloat32, ReduceOp::kSum, busy);
  EXPECT(Driver().cuStreamBeginCapture(captured, ddp::internal::kCudaCaptureModeGlobal) == 0);
  EXPECT(!work->IsDone());
  bool is_done = true;
  std::thread([&] { is_done = work->IsDone(); }).join();
  EXPECT(!is_done);
  ReleaseStream(hold);
  EXPECT(work->Wait().ok());
  ddp::internal::CudaGraph graph = nullptr;
  EXPECT(Driver().cuStreamEndCapture(captured, &graph) == 0);
  EXPECT(Driver().cuGraphDestroy(graph) == 0);
  // The thread's own mode is as it was: what it asks itself still costs a capture.
  EXPECT(Driver().cuStreamBeginCapture(captured, ddp::internal::kCudaCaptureModeGlobal) == 0);
  EXPECT(Driver().cuStreamSynchronize(static_cast<ddp::internal::CudaStream>(busy)) ==
         ddp::internal::kCudaErrorStreamCaptureUnsupported);
  EXPECT(Driver().cuStreamEndCapture(captured, &graph) != 0);
  EXPECT(group->Shutdown().ok());
  return 0;
}

TEST_CASE("nccl: asking what is done costs nobody a capture of his own") {
  CHECK(RunOnDouble(2, DoubleEnv(), AskBesideCapture) == "0 0");
}

// Likewise while this group's memory goes, and then the group.
int FreeBesideCapture(int) {
  auto group = GpuGroup();
  auto buffer = group->communicator().Allocate(4096);
  EXPECT(buffer.ok());
  const auto captured = static_cast<ddp::internal::CudaStream>(NewStream());
  EXPECT(Driver().cuStreamBeginCapture(captured, ddp::internal::kCudaCaptureModeGlobal) == 0);
  ddp::internal::CudaContext context = nullptr;
  EXPECT(Driver().cuCtxGetCurrent(&context) == 0);
  bool is_over = false;
  std::thread([&] {
    if (Driver().cuCtxSetCurrent(context) != 0) return;
    buffer->reset();
    is_over = group->Shutdown().ok();
    group.reset();
  }).join();
  EXPECT(is_over);
  ddp::internal::CudaGraph graph = nullptr;
  EXPECT(Driver().cuStreamEndCapture(captured, &graph) == 0);
  EXPECT(Driver().cuGraphDestroy(graph) == 0);
  return 0;
}

TEST_CASE("nccl: freeing memory costs nobody a capture of his own") {
  CHECK(RunOnDouble(2, DoubleEnv(), FreeBesideCapture) == "0 0");
  const auto registered = DoubleEnv({{kRegisteredMemory, "1"}});
  CHECK(RunOnDouble(2, registered, FreeBesideCapture) == "0 0");
}

TEST_CASE("nccl: the last operations are told on request") {
  const TempDir temp;
  const auto env = DoubleEnv({{"DDPRUN_FLIGHT_RECORDER_DIR", temp.path()}});
  const auto codes = RunOnDouble(2, env, [](int) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    DeviceArray data({1, 2});
    EXPECT(comm.AllReduce(data.data(), 2, DType::kFloat32, ReduceOp::kSum)->Wait().ok());
    const auto path = comm.DumpOperations();
    EXPECT(path.ok());
    EXPECT(ReadFile(*path).find("\"all-reduce (float32 x 2, sum)\", \"state\": \"done\"") !=
           std::string::npos);
    EXPECT(comm.host().DumpOperations().ok());
    EXPECT(*comm.host().DumpOperations() != *path);
    EXPECT(group->Shutdown().ok());
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("nccl: a group of one on a GPU needs no NCCL") {
  auto env = DoubleEnv({{"DDPRUN_NCCL_LIB", "/nowhere/libnccl.so.2"}});
  const auto codes = RunOnDouble(1, env, [](int) {
    const auto group = GpuGroup();
    EXPECT(group->description() == "cuda: a group of one");
    ddp::Communicator& comm = group->communicator();
    EXPECT(std::string(comm.backend()) == "local");
    DeviceArray from({1, 2}), to({0, 0});
    EXPECT(comm.AllGather(from.data(), to.data(), 2, DType::kFloat32)->Wait().ok());
    EXPECT(to.Read(nullptr) == (Floats{1, 2}));
    EXPECT(comm.Barrier()->Wait().ok());
    EXPECT(group->Shutdown().ok());
    return 0;
  });
  CHECK(codes == "0");
}

}  // namespace
}  // namespace ddprun::testing
