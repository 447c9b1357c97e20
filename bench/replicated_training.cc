#include <algorithm>
#include <span>
#include <utility>

#include "bench/training.h"
#include "ddp/data_parallel.h"

namespace ddprun::bench {

using ddp::DType;

struct ReplicatedTraining::State {
  explicit State(int replica_count)
      : replicas(replica_count),
        parameters(InitialParameters(shape)),
        samples(MakeSamples(shape, kBatchesOfSamples * kGlobalBatch)),
        scores(static_cast<size_t>(kGlobalBatch) * shape.classes),
        data_parallel({.replicas = replica_count}) {
    for (int i = 0; i < replica_count; ++i) networks.push_back(std::make_unique<Mlp>(shape));
  }

  const int replicas;
  const MlpShape shape;
  std::vector<MlpParameter> parameters;  // device 0's
  const Samples samples;
  std::vector<std::unique_ptr<Mlp>> networks;      // by replica
  std::vector<std::vector<const float*>> weights;  // by replica and parameter
  std::vector<std::vector<float*>> gradients;
  std::vector<std::vector<float>> velocities;  // on device 0
  std::vector<float> scores;                   // on device 0, of the whole batch
  int64_t steps = 0;
  double loss = 0;
  ddp::DataParallel data_parallel;
};

ReplicatedTraining::ReplicatedTraining(std::unique_ptr<State> state) : state_(std::move(state)) {}
ReplicatedTraining::~ReplicatedTraining() = default;

absl::StatusOr<std::unique_ptr<ReplicatedTraining>> ReplicatedTraining::Create(int replicas) {
  auto state = std::make_unique<State>(replicas);
  for (MlpParameter& parameter : state->parameters) {
    state->data_parallel.AddParameter(parameter.name, parameter.values.data(),
                                      parameter.values.size(), DType::kFloat32);
    state->velocities.emplace_back(parameter.values.size());
  }
  if (absl::Status status = state->data_parallel.Finalize(); !status.ok()) return status;
  for (int replica = 0; replica < replicas; ++replica) {
    auto& weights = state->weights.emplace_back();
    auto& gradients = state->gradients.emplace_back();
    for (int id = 0; id < static_cast<int>(state->parameters.size()); ++id) {
      weights.push_back(static_cast<float*>(state->data_parallel.ParameterPtr(id, replica)));
      gradients.push_back(static_cast<float*>(state->data_parallel.GradientPtr(id, replica)));
    }
  }
  return std::unique_ptr<ReplicatedTraining>(new ReplicatedTraining(std::move(state)));
}

absl::StatusOr<StepRecord> ReplicatedTraining::Step() {
  State& own = *state_;
  ddp::DataParallel& dp = own.data_parallel;
  StepRecord record;
  PhaseClock clock(record);
  const size_t first = (own.steps++ % kBatchesOfSamples) * kGlobalBatch;
  const int classes = own.shape.classes;
  const std::vector<ddp::Chunk> chunks = dp.Scatter(kGlobalBatch);
  absl::Status status = dp.ZeroGrad();
  status.Update(dp.Replicate());
  clock.EndPhase("replicate");
  status.Update(dp.ParallelApply([&](int replica) {
    const ddp::Chunk& chunk = chunks[replica];
    own.networks[replica]->Forward(
        own.samples.inputs.data() + (first + chunk.begin) * own.shape.inputs,
        static_cast<int>(chunk.end - chunk.begin), own.weights[replica]);
    return absl::OkStatus();
  }));
  clock.EndPhase("forward");
  std::vector<const void*> outputs;
  for (size_t replica = 0; replica < chunks.size(); ++replica) {
    outputs.push_back(own.networks[replica]->scores());
  }
  status.Update(dp.Gather(outputs, classes * sizeof(float), own.scores.data()));
  if (!status.ok()) return status;
  clock.EndPhase("gather");
  own.loss =
      LossAndSlope(own.scores.data(), std::span(own.samples.labels).subspan(first, kGlobalBatch),
                   classes, kGlobalBatch);
  clock.EndPhase("loss");
  status.Update(dp.ParallelApply([&](int replica) {
    absl::Status ready;
    own.networks[replica]->Backward(
        own.scores.data() + chunks[replica].begin * classes, own.weights[replica],
        own.gradients[replica],
        [&](int parameter) { ready.Update(dp.GradientReady(parameter, replica)); });
    return ready;
  }));
  clock.EndPhase("backward");
  record.backward_end_ms = record.step_ms;
  status.Update(dp.Finish());
  if (!status.ok()) return status;
  clock.EndPhase("reduce");
  for (size_t i = 0; i < own.parameters.size(); ++i) {
    std::vector<float>& values = own.parameters[i].values;
    Update(values, std::span(own.gradients[0][i], values.size()), own.velocities[i]);
  }
  clock.EndPhase("update");
  // Alone it copies nothing between devices.
  if (chunks.size() > 1) {
    const ddp::DataParallelTimes times = dp.last_step();
    record.communication_ms =
        std::chrono::duration<double, std::milli>(times.replicate + times.gather + times.reduce)
            .count();
    record.exposed_ms = record.communication_ms;
  }
  return record;
}

absl::StatusOr<double> ReplicatedTraining::Loss() { return state_->loss; }
absl::StatusOr<double> ReplicatedTraining::Largest(double mine) { return mine; }

absl::Status ReplicatedTraining::Complete(Row& row) {
  State& own = *state_;
  row.way = Way::kDataParallel;
  row.ranks = own.replicas;
  row.bytes_moved = own.data_parallel.last_step().bytes_moved;
  for (int replica = 0; replica < own.replicas; ++replica) {
    row.memory_bytes.push_back(own.data_parallel.bytes_on(replica) +
                               own.networks[replica]->bytes());
  }
  // What device 0 holds besides: momentum, the whole batch and all outputs; the others have their
  // chunks of the batch.
  const uint64_t sample = own.shape.inputs * sizeof(float);
  for (const std::vector<float>& velocity : own.velocities) {
    row.memory_bytes[0] += velocity.size() * sizeof(float);
  }
  row.memory_bytes[0] += kGlobalBatch * sample + own.scores.size() * sizeof(float);
  const std::vector<ddp::Chunk> chunks = own.data_parallel.Scatter(kGlobalBatch);
  for (size_t i = 1; i < chunks.size(); ++i) {
    row.memory_bytes[i] += static_cast<uint64_t>(chunks[i].end - chunks[i].begin) * sample;
  }
  return absl::OkStatus();
}

}  // namespace ddprun::bench
