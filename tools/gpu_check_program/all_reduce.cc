#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tools/gpu_check_program/captured_step.h"
#include "tools/gpu_check_program/rank.h"
#include "tools/gpu_check_program/rank_commands.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddprun::gpu_check {
namespace {

using ddp::internal::CudaGraph;
using ddp::internal::CudaGraphExec;
using ddp::internal::LoadedNccl;
using ddp::internal::NcclComm;
using ddp::internal::NcclResult;
using ddp::internal::NcclUniqueId;

constexpr int kTurns = 11;
constexpr double kTurnSeconds = 0.02;

// What a program without the library writes: a communicator and ncclAllReduce in place on the
// stream that needs the result.
class BareLoop {
 public:
  explicit BareLoop(ddp::ProcessGroup& group) : nccl_(*ddp::internal::Nccl()) {
    NcclUniqueId id{};
    if (group.rank() == 0) Check("ncclGetUniqueId", nccl_.api.ncclGetUniqueId(&id));
    if (group.world_size() > 1) ShareId(group, &id);
    ddp::internal::NcclConfig config;
    config.blocking = 1;
    Check("ncclCommInitRankConfig",
          nccl_.api.ncclCommInitRankConfig(&comm_, group.world_size(), id, group.rank(), &config));
  }
  void AllReduce(void* data, size_t count, ddp::internal::CudaStream stream) {
    Check("ncclAllReduce", nccl_.api.ncclAllReduce(data, data, count, ddp::internal::kNcclFloat32,
                                                   ddp::internal::kNcclAvg, comm_, stream));
  }
  void End() {
    Check("ncclCommFinalize", nccl_.api.ncclCommFinalize(comm_));
    Check("ncclCommDestroy", nccl_.api.ncclCommDestroy(comm_));
  }

 private:
  void Check(const char* call, NcclResult result) {
    MustBeOk("bare loop", ddp::internal::NcclStatus(nccl_.api, call, result, comm_));
  }
  void ShareId(ddp::ProcessGroup& group, NcclUniqueId* id) {
    const std::string key = "gpu_check/bare_id";
    if (group.rank() == 0) {
      MustBeOk("share the id", group.store()->Set(key, std::string(id->bytes, sizeof(id->bytes))));
      return;
    }
    const auto text = group.store()->Get(key, std::chrono::seconds(60));
    MustBeOk("share the id", text.status());
    std::memcpy(id->bytes, text->data(), std::min(text->size(), sizeof(id->bytes)));
  }

  const LoadedNccl& nccl_;
  NcclComm comm_ = nullptr;
};

// Times the two loops in turns. Both reduce the same memory.
class Race {
 public:
  Race(ddp::ProcessGroup& group, Gpu& gpu, void* memory)
      : group_(group), gpu_(gpu), memory_(memory), bare_(group) {}
  void End() { bare_.End(); }

  void Run(size_t bytes, bool is_graph) {
    const size_t count = bytes / sizeof(float);
    const Loop library = [&](int times) { Library(count, times); };
    const Loop bare = [&](int times) {
      for (int i = 0; i < times; ++i) bare_.AllReduce(memory_, count, gpu_.stream());
    };
    for (const Loop* loop : {&library, &bare}) Seconds([&] { (*loop)(3); });
    const int times = Agree(Seconds([&] { bare(3); }) / 3);
    Turn turns[2] = {[&] { library(times); }, [&] { bare(times); }};
    if (is_graph) {
      turns[0] = CaptureStep(group_.communicator(), gpu_.stream(), [&] {
        library(times);
        return absl::OkStatus();
      });
      turns[1] = CaptureBare([&] { bare(times); });
    }
    for (const Turn& turn : turns) Seconds(turn);
    std::vector<double> seconds[2];
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int i : {turn % 2, 1 - turn % 2}) seconds[i].push_back(Seconds(turns[i]) / times);
    }
    Print(bytes, Median(seconds[0]), Median(seconds[1]));
  }

 private:
  using Loop = std::function<void(int times)>;
  using Turn = std::function<void()>;

  void Library(size_t count, int times) {
    for (int i = 0; i < times; ++i) {
      auto work = group_.communicator().AllReduce(memory_, count, ddp::DType::kFloat32,
                                                  ddp::ReduceOp::kAverage, gpu_.stream());
      MustBeOk("all-reduce", work->WaitOn(gpu_.stream()));
    }
  }

  // From the first call to the end of the last on the device.
  double Seconds(const Turn& turn) {
    MustBeOk("barrier", group_.communicator().host().Barrier()->Wait());
    const auto begin = std::chrono::steady_clock::now();
    turn();
    gpu_.Synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  // How many make a turn; rank 0's number, as all must do equally many.
  int Agree(double seconds_each) {
    int32_t times = static_cast<int32_t>(std::clamp(kTurnSeconds / seconds_each, 3.0, 200.0));
    MustBeOk(
        "agree",
        group_.communicator().host().Broadcast(&times, 1, ddp::DType::kInt32, /*root=*/0)->Wait());
    return times;
  }

  Turn CaptureBare(const Turn& turn) {
    const auto& cuda = gpu_.api();
    CudaGraph graph = nullptr;
    CudaGraphExec exec = nullptr;
    gpu_.Check(
        "cuStreamBeginCapture",
        cuda.cuStreamBeginCapture(gpu_.stream(), ddp::internal::kCudaCaptureModeThreadLocal));
    turn();
    gpu_.Check("cuStreamEndCapture", cuda.cuStreamEndCapture(gpu_.stream(), &graph));
    gpu_.Check("cuGraphInstantiate", cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
    gpu_.Check("cuGraphDestroy", cuda.cuGraphDestroy(graph));
    const auto destroy = [&cuda](CudaGraphExec captured) { cuda.cuGraphExecDestroy(captured); };
    const std::shared_ptr<std::remove_pointer_t<CudaGraphExec>> owner(exec, destroy);
    return [this, owner] {
      gpu_.Check("cuGraphLaunch", gpu_.api().cuGraphLaunch(owner.get(), gpu_.stream()));
    };
  }

  void Print(size_t bytes, double library, double bare) {
    if (group_.rank() != 0) return;
    PrintValue(absl::StrCat("library_us_", bytes), library * 1e6);
    PrintValue(absl::StrCat("bare_us_", bytes), bare * 1e6);
    const double ranks = group_.world_size();
    if (ranks == 1) return;
    // As nccl-tests defines it: what each link carries.
    const double factor = 2 * (ranks - 1) / ranks;
    PrintValue(absl::StrCat("bus_gb_s_", bytes),
               factor * static_cast<double>(bytes) / library / 1e9);
  }

  ddp::ProcessGroup& group_;
  Gpu& gpu_;
  void* const memory_;
  BareLoop bare_;
};

}  // namespace

int AllReduce(const Arguments& arguments) {
  if (arguments.size() != 2) return 2;
  const size_t max_bytes = std::strtoull(arguments[0].c_str(), nullptr, 10);
  const bool is_graph = arguments[1] == "graph";
  const auto group = JoinGroup(ddp::Backend::kNccl);
  Gpu gpu(group->gpu());
  auto buffer = group->communicator().Allocate(max_bytes);
  MustBeOk("allocate", buffer.status());
  Race race(*group, gpu, (*buffer)->data());
  for (size_t bytes :
       {4ull << 10, 64ull << 10, 1ull << 20, 16ull << 20, 128ull << 20, 1ull << 30}) {
    if (bytes <= max_bytes) race.Run(bytes, is_graph);
  }
  race.End();
  buffer->reset();
  MustBeOk("shut down", group->Shutdown());
  return EXIT_SUCCESS;
}

}  // namespace ddprun::gpu_check
