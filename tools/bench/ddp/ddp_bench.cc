// What DistributedDataParallel costs among N ranks of this host.
//
//   ddp_bench step  --ranks N --hidden H --layers L [--seconds S]
//     a step without DDP (bare), with it (sync), with all gradients handed over after backward
//     (late), and a ReplicaCheck's comparison (compare)
//   ddp_bench sweep --ranks N --hidden H --layers L [--seconds S]
//     sync for values of bucket_cap_mb
//   ddp_bench recorder
//     an operation's record
//   ddp_bench spawn --ranks N
//     ranks that do nothing; `group`: ranks that form a group and end
//   ddp_bench nothing
//     ends at once
//
// Batch 64 a rank. Prints one JSON object per figure, in ms: the median over turns of the slowest
// rank's, and of how much more that is than the first figure's (more_ms).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/median.h"
#include "bench/mlp.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/process_group.h"
#include "ddp/replica_check.h"
#include "ddp/spawn.h"
#include "tools/bench/ddp/turns.h"
#include "worker_runtime/comm/flight_recorder.h"

namespace ddprun::bench {
namespace {

constexpr int kBatch = 64, kInputs = 28 * 28, kClasses = 10;
constexpr int kBatchesOfSamples = 8;
constexpr double kMiB = 1 << 20;
constexpr double kCaps[] = {25, 1, 4, 10, 50, 100, 25};  // MiB, the default first

struct Options {
  std::string what;
  int ranks = 2;
  MlpShape shape{.inputs = kInputs, .hidden = 512, .hidden_layers = 2, .classes = kClasses};
  double seconds = 3;
};

// The network, its samples and its optimizer on one rank.
class Training {
 public:
  Training(const MlpShape& shape, int rank)
      : shape_(shape),
        parameters_(InitialParameters(shape)),
        samples_(MakeSamples(shape, kBatchesOfSamples * kBatch)),
        mlp_(shape),
        steps_(rank) {  // ranks train different batches
    for (const MlpParameter& parameter : parameters_) {
      weights_.push_back(parameter.values.data());
      velocities_.emplace_back(parameter.values.size());
    }
  }

  std::vector<MlpParameter>& parameters() { return parameters_; }

  // Forward and backward of the next batch.
  void Compute(std::span<float* const> gradients, const std::function<void(int)>& ready) {
    const size_t first = (steps_++ % kBatchesOfSamples) * kBatch;
    mlp_.Forward(samples_.inputs.data() + first * shape_.inputs, kBatch, weights_);
    LossAndSlope(mlp_.scores(), std::span(samples_.labels).subspan(first, kBatch), shape_.classes,
                 kBatch);
    mlp_.Backward(mlp_.scores(), weights_, gradients, ready);
  }

  void UpdateBy(std::span<float* const> gradients) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      std::vector<float>& values = parameters_[i].values;
      Update(values, std::span(gradients[i], values.size()), velocities_[i]);
    }
  }

 private:
  const MlpShape shape_;
  std::vector<MlpParameter> parameters_;
  const Samples samples_;
  Mlp mlp_;
  std::vector<const float*> weights_;
  std::vector<std::vector<float>> velocities_;
  int64_t steps_;
};

// The training's parameters, averaged by DDP.
class DdpSteps {
 public:
  DdpSteps(Training& training, ddp::Communicator& group, double cap_mb)
      : training_(training),
        ddp_(group, {.bucket_cap_bytes = static_cast<size_t>(cap_mb * kMiB),
                     .first_bucket_bytes = static_cast<size_t>(std::min(cap_mb, 1.0) * kMiB)}) {}

  absl::Status Init() {
    for (MlpParameter& parameter : training_.parameters()) {
      ddp_.AddParameter(parameter.name, parameter.values.data(), parameter.values.size(),
                        ddp::DType::kFloat32);
    }
    if (absl::Status status = ddp_.Finalize(); !status.ok()) return status;
    for (size_t i = 0; i < training_.parameters().size(); ++i) {
      gradients_.push_back(static_cast<float*>(ddp_.GradientPtr(static_cast<int>(i))));
    }
    return absl::OkStatus();
  }

  // Gradients are handed over as they come, or all after backward.
  absl::Status Step(bool is_late) {
    absl::Status status = ddp_.ZeroGrad();
    training_.Compute(gradients_, [&](int i) {
      if (!is_late) status.Update(ddp_.GradientReady(i));
    });
    for (int i = static_cast<int>(gradients_.size()); is_late && i-- > 0;) {
      status.Update(ddp_.GradientReady(i));
    }
    status.Update(ddp_.Finish());
    training_.UpdateBy(gradients_);
    const ddp::ReductionTimes times = ddp_.last_reduction();
    exposed_ms_.push_back(std::chrono::duration<double, std::milli>(times.Exposed()).count());
    return status;
  }

  int bucket_count() const { return ddp_.bucket_count(); }
  double exposed_ms() const { return Median(exposed_ms_); }

 private:
  Training& training_;
  ddp::DistributedDataParallel ddp_;
  std::vector<float*> gradients_;
  std::vector<double> exposed_ms_;  // by the library's own measure
};

void Print(const Way& way, const std::string& more = "") {
  std::printf("{\"way\": \"%s\", \"ms\": %.6f, \"more_ms\": %.6f%s}\n", way.name.c_str(), way.ms,
              way.more_ms, more.c_str());
}

absl::Status MeasureSteps(ddp::Communicator& group, const Options& options) {
  Training training(options.shape, group.rank());
  std::vector<ddp::Tensor> tensors;
  size_t count = 0;
  for (MlpParameter& parameter : training.parameters()) {
    tensors.push_back({parameter.name, parameter.values.data(), parameter.values.size()});
    count += parameter.values.size();
  }
  // Gradients without DDP lie in the same kind of memory as with it, aligned alike.
  constexpr size_t kAlignment = 16;  // elements
  const auto own = group.Allocate((count + tensors.size() * kAlignment) * sizeof(float));
  if (!own.ok()) return own.status();
  std::vector<float*> gradients;
  float* place = static_cast<float*>((*own)->data());
  for (const ddp::Tensor& tensor : tensors) {
    gradients.push_back(place);
    place += (tensor.count + kAlignment - 1) / kAlignment * kAlignment;
  }
  DdpSteps steps(training, group, 25), late(training, group, 25);
  absl::Status status = steps.Init();
  status.Update(late.Init());
  if (!status.ok()) return status;
  ddp::ReplicaCheck check(group, {.every = 1});
  // Ranks that train apart for some steps differ: the comparison has a copy that stays.
  std::vector<std::vector<float>> kept;
  for (ddp::Tensor& tensor : tensors) {
    const auto* const values = static_cast<const float*>(tensor.data);
    tensor.data = kept.emplace_back(values, values + tensor.count).data();
  }
  const auto bare = [&] {
    absl::Status status = (*own)->Zero(nullptr);
    training.Compute(gradients, [](int) {});
    training.UpdateBy(gradients);
    return status;
  };
  std::vector<Way> ways = {{"bare", bare},
                           {"sync", [&] { return steps.Step(false); }},
                           {"late", [&] { return late.Step(true); }}};
  status = MeasureInTurns(group, options.seconds, ways);
  int64_t step = 0;
  std::vector<Way> alone = {{"compare", [&] { return check.Compare(++step, tensors); }}};
  if (status.ok()) status = MeasureInTurns(group, options.seconds / 4, alone);
  if (!status.ok() || group.rank() != 0) return status;
  ways.push_back(alone.front());
  for (const Way& way : ways) {
    const double exposed = way.name == "sync"   ? steps.exposed_ms()
                           : way.name == "late" ? late.exposed_ms()
                                                : 0;
    Print(way, absl::StrCat(", \"exposed_ms\": ", exposed, ", \"parameters\": ", count));
  }
  return status;
}

absl::Status MeasureSweep(ddp::Communicator& group, const Options& options) {
  Training training(options.shape, group.rank());
  std::vector<std::unique_ptr<DdpSteps>> steps;
  std::vector<Way> ways;
  for (const double cap : kCaps) {
    DdpSteps* const own = steps.emplace_back(new DdpSteps(training, group, cap)).get();
    if (absl::Status status = own->Init(); !status.ok()) return status;
    // The default comes twice: what the two differ by, nothing here can tell.
    const bool is_again = !ways.empty() && cap == kCaps[0];
    ways.push_back(
        {absl::StrCat(cap, is_again ? " again" : ""), [own] { return own->Step(false); }});
  }
  absl::Status status = MeasureInTurns(group, options.seconds, ways);
  for (size_t i = 0; status.ok() && group.rank() == 0 && i < ways.size(); ++i) {
    Print(ways[i], absl::StrCat(", \"exposed_ms\": ", steps[i]->exposed_ms(),
                                ", \"buckets\": ", steps[i]->bucket_count()));
  }
  return status;
}

// What queued_communicator.cc does with it for each operation.
void MeasureRecorder() {
  ddp::internal::FlightRecorder recorder(0, 1, "bench");
  std::vector<double> ns;
  uint64_t sequence = 0;
  for (int turn = 0; turn < 21; ++turn) {
    constexpr int kOperations = 100'000;
    const auto begin = ddp::internal::Clock::now();
    for (int i = 0; i < kOperations; ++i) {
      ddp::internal::Op op;
      op.sequence = ++sequence;
      recorder.Queued(op, begin);
      recorder.Changed(op.sequence, ddp::internal::FlightState::kRunning, begin);
      recorder.Ran(op.sequence, begin, begin);
    }
    const std::chrono::duration<double, std::milli> time = ddp::internal::Clock::now() - begin;
    ns.push_back(time.count() / kOperations);
  }
  Print({"recorder", nullptr, Median(ns)});
}

int RunRank(const Options& options) {
  if (options.what == "spawn") return 0;
  auto group = ddp::ProcessGroup::FromEnv({.timeout = std::chrono::seconds(60)});
  absl::Status status = group.status();
  if (status.ok() && options.what == "step") {
    status = MeasureSteps((*group)->communicator(), options);
  } else if (status.ok() && options.what == "sweep") {
    status = MeasureSweep((*group)->communicator(), options);
  }
  if (status.ok()) status = (*group)->Shutdown();
  if (!status.ok()) std::fprintf(stderr, "ddp_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

bool Parse(int argc, char** argv, Options& options) {
  options.what = argc > 1 ? argv[1] : "";
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    const double value = i + 1 < argc ? std::atof(argv[i + 1]) : 0;
    if (value <= 0) return false;
    if (name == "--ranks") {
      options.ranks = static_cast<int>(value);
    } else if (name == "--hidden") {
      options.shape.hidden = static_cast<int>(value);
    } else if (name == "--layers") {
      options.shape.hidden_layers = static_cast<int>(value);
    } else if (name == "--seconds") {
      options.seconds = value;
    } else {
      return false;
    }
  }
  for (const char* what : {"step", "sweep", "recorder", "spawn", "group", "nothing"}) {
    if (options.what == what) return true;
  }
  return false;
}

int Run(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: ddp_bench step|sweep|recorder|spawn|group|nothing [--ranks N] "
                 "[--hidden H] [--layers L] [--seconds S]\n");
    return 2;
  }
  if (options.what == "nothing") return 0;
  if (options.what == "recorder") return MeasureRecorder(), 0;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fprintf(stderr, "ddp_bench: this processor has no AVX2, with which it is compiled\n");
    return 1;
  }
  const absl::Status status =
      ddp::Spawn(options.ranks, [&options](int) { return RunRank(options); });
  if (!status.ok()) std::fprintf(stderr, "ddp_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::bench

int main(int argc, char** argv) { return ddprun::bench::Run(argc, argv); }
