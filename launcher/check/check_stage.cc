#include "launcher/check/check_stage.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/device.h"
#include "bench/mlp.h"
#include "ddp/gpu.h"
#include "ddp/process_group.h"
#include "ddp/store.h"
#include "launcher/check/check_report.h"
#include "launcher/process/exit_status.h"
#include "launcher/test_gates.h"
#include "worker_runtime/env_contract.h"

namespace ddprun::launcher {
namespace {

using ddp::internal::WorkerEnv;
using Clock = std::chrono::steady_clock;

// Of several the best one counts: what is slow is slow in each, and a hiccup is no finding. After
// each pair there is one more: other programs may have had the cores for longer than a moment.
constexpr int kWindows = 3;
constexpr int kWindowsAgain = 1;
constexpr std::chrono::milliseconds kComputeWindow{100};
constexpr std::chrono::milliseconds kMemoryWindow{40};
constexpr size_t kCopyBytes = 16 << 20;  // more than a core's own caches
constexpr size_t kReduceBytes = 4 << 20;
constexpr int kReductions = 8;
constexpr int kRows = 512;
// One product of some milliseconds on a core, of some 0.1 ms on a GPU.
constexpr bench::MlpShape kProduct{.inputs = 512, .hidden = 512, .hidden_layers = 1, .classes = 10};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Say(const RankReport& report) {
  std::fputs(ReportText(report).c_str(), stdout);
  std::fflush(stdout);
}

// How often `step` fits into a second, in the best of some windows.
absl::StatusOr<double> RateOf(int windows, std::chrono::milliseconds window,
                              const std::function<absl::Status()>& step) {
  double best = 0;
  for (int i = 0; i < windows; ++i) {
    const auto begin = Clock::now();
    int steps = 0;
    do {
      if (absl::Status status = step(); !status.ok()) return status;
      ++steps;
    } while (Clock::now() - begin < window);
    best = std::max(best, steps / SecondsSince(begin));
  }
  return best;
}

absl::StatusOr<double> PassMilliseconds(int gpu, int windows) {
  absl::StatusOr<std::unique_ptr<bench::Device>> device = bench::OpenDevice(kProduct, gpu);
  if (!device.ok()) return device.status();
  std::vector<float*> values;
  for (int layer = 0; layer <= kProduct.hidden_layers; ++layer) {
    const bench::LayerSize size = bench::SizeOf(kProduct, layer);
    for (const int count : {size.inputs * size.outputs, size.outputs}) {
      const absl::StatusOr<float*> value = (*device)->Put(
          "the weights of the check", std::vector<float>(static_cast<size_t>(count), 0.01f));
      if (!value.ok()) return value.status();
      values.push_back(*value);
    }
  }
  const absl::StatusOr<float*> inputs =
      (*device)->Put("the inputs of the check",
                     std::vector<float>(static_cast<size_t>(kRows) * kProduct.inputs, 0.5f));
  if (!inputs.ok()) return inputs.status();
  const std::vector<const float*> weights(values.begin(), values.end());
  const auto pass = [&](int times) -> absl::Status {
    for (int i = 0; i < times; ++i) {
      absl::Status status = (*device)->Forward(*inputs, kRows, weights);
      if (!status.ok()) return status;
    }
    return (*device)->Wait();
  };
  if (absl::Status status = pass(1); !status.ok()) return status;  // warms up
  const auto begin = Clock::now();
  if (absl::Status status = pass(1); !status.ok()) return status;
  // A GPU is kept busy from one wait to the next.
  const int together = std::clamp(static_cast<int>(0.005 / SecondsSince(begin)), 1, 100);
  const absl::StatusOr<double> rate = RateOf(windows, kComputeWindow, [&] {
    const auto step_begin = Clock::now();
    absl::Status status = pass(together);
    if (HasFaultForTest("slow_compute")) {
      // Within the stage's time, also where a step takes long.
      std::this_thread::sleep_for(
          std::min<Clock::duration>(29 * (Clock::now() - step_begin), std::chrono::seconds(1)));
    }
    return status;
  });
  if (!rate.ok()) return rate.status();
  return 1e3 / (*rate * together);
}

absl::StatusOr<double> CopyGigabytesPerSecond(int windows) {
  std::vector<char> from(kCopyBytes, 1), to(kCopyBytes, 2);
  const absl::StatusOr<double> rate = RateOf(windows, kMemoryWindow, [&] {
    std::memcpy(to.data(), from.data(), kCopyBytes);
    std::swap(from, to);  // so that no copy is needless
    return absl::OkStatus();
  });
  if (!rate.ok()) return rate;
  return *rate * kCopyBytes / 1e9;
}

absl::StatusOr<double> ReduceGigabytesPerSecond(ddp::ProcessGroup& group) {
  ddp::Communicator& communicator = group.communicator();
  const auto buffer = communicator.Allocate(kReduceBytes);
  if (!buffer.ok()) return buffer.status();
  double best = 0;
  for (int i = 0; i < kReductions; ++i) {
    if (HasFaultForTest("slow_network")) {
      // Far from what a busy machine makes of a pair that is well.
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    const auto begin = Clock::now();
    absl::Status status = communicator
                              .AllReduce((*buffer)->data(), kReduceBytes / sizeof(float),
                                         ddp::DType::kFloat32, ddp::ReduceOp::kSum)
                              ->Wait();
    if (!status.ok()) return status;
    best = std::max(best, kReduceBytes / SecondsSince(begin) / 1e9);
  }
  return best;
}

absl::StatusOr<double> ReduceWith(const WorkerEnv& env, const std::string& keys, int rank,
                                  int ranks) {
  const auto patience = LimitsOfStage().group;
  absl::StatusOr<std::unique_ptr<ddp::Store>> store =
      ddp::Store::Connect(env.master_addr, env.master_port, patience);
  if (!store.ok()) return store.status();
  ddp::PrefixStore own_keys(keys, **store);
  auto group = ddp::ProcessGroup::New(own_keys, rank, ranks,
                                      {.timeout = patience, .device = ddp::DeviceChoice::kAuto});
  if (!group.ok()) return group.status();
  absl::StatusOr<double> found = ReduceGigabytesPerSecond(**group);
  if (!found.ok()) return found;
  if (absl::Status status = (*group)->Shutdown(); !status.ok()) return status;
  return found;
}

// The rank's own GPU, as a group would give it; -1 where there is none.
int OwnGpu(const WorkerEnv& env) {
  return ddp::Gpu::Use(env.local_rank).ok() ? env.local_rank : -1;
}

absl::Status MeasureRank(int gpu, int windows) {
  const absl::StatusOr<double> pass_ms = PassMilliseconds(gpu, windows);
  if (!pass_ms.ok()) return pass_ms.status();
  Say({.pass_ms = *pass_ms});
  const absl::StatusOr<double> copy = CopyGigabytesPerSecond(windows);
  if (!copy.ok()) return copy.status();
  Say({.memory_gb_s = *copy});
  return absl::OkStatus();
}

absl::Status MeasureAlone(const WorkerEnv& env) {
  const int gpu = OwnGpu(env);
  Say({.device = gpu < 0 ? "CPU" : absl::StrCat("GPU ", gpu)});
  if (absl::Status status = MeasureRank(gpu, kWindows); !status.ok()) return status;
  if (env.local_world_size == 1) return absl::OkStatus();
  const absl::StatusOr<double> inside =
      ReduceWith(env, absl::StrCat("ddprun_check/inside/", env.group_rank), env.local_rank,
                 env.local_world_size);
  if (!inside.ok()) return inside.status();
  Say({.inside_gb_s = *inside});
  return absl::OkStatus();
}

absl::Status MeasurePair(const WorkerEnv& env, const std::string& keys, int rank, int ranks) {
  if (HasFaultForTest("die")) std::raise(SIGKILL);
  while (HasFaultForTest("hang")) pause();
  const absl::StatusOr<double> found = ReduceWith(env, keys, rank, ranks);
  if (!found.ok()) return found.status();
  Say({.pair_gb_s = *found});
  // What goes wrong here is no fault of the pair; the rank was measured before.
  MeasureRank(OwnGpu(env), kWindowsAgain).IgnoreError();
  return absl::OkStatus();
}

}  // namespace

StageLimits LimitsOfStage() {
  static const bool has_gpus = access("/dev/nvidiactl", F_OK) == 0;
  return has_gpus ? StageLimits{std::chrono::seconds(25), std::chrono::seconds(60)}
                  : StageLimits{std::chrono::seconds(5), std::chrono::seconds(10)};
}

int RunCheckStage(const std::vector<std::string>& words) {
  const auto env =
      ddp::internal::ParseWorkerEnv([](const char* name) { return std::getenv(name); });
  absl::Status status = env.status();
  int rank = 0, ranks = 0;
  if (status.ok() && !env->has_value()) {
    status = absl::InvalidArgumentError("no rank of a check: RANK is not set");
  } else if (status.ok() && words.size() == 1 && words[0] == kAloneStage) {
    status = MeasureAlone(**env);
  } else if (status.ok() && words.size() == 4 && words[0] == kPairStage &&
             absl::SimpleAtoi(words[2], &rank) && absl::SimpleAtoi(words[3], &ranks)) {
    status = MeasurePair(**env, words[1], rank, ranks);
  } else {
    status.Update(absl::InvalidArgumentError("no stage of a check"));
  }
  if (status.ok()) return kExitSuccess;
  Say({.error = std::string(status.message())});
  return kExitMachine;
}

}  // namespace ddprun::launcher
