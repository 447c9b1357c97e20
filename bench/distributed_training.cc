#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/caps.h"
#include "bench/training.h"
#include "ddp/distributed_data_parallel.h"

namespace ddprun::bench {

using ddp::DType;
using ddp::ReduceOp;

struct DistributedTraining::State {
  State(ddp::Communicator& communicator, size_t bucket_cap_bytes)
      : group(communicator),
        parameters(InitialParameters(shape)),
        samples(MakeSamples(shape, kBatchesOfSamples * kGlobalBatch)),
        mlp(shape),
        begin(kGlobalBatch * communicator.rank() / communicator.world_size()),
        rows(kGlobalBatch * (communicator.rank() + 1) / communicator.world_size() - begin),
        ddp(communicator, {.bucket_cap_bytes = bucket_cap_bytes,
                           .first_bucket_bytes = LimitsOf(bucket_cap_bytes).first_bytes}) {}

  ddp::Communicator& group;
  const MlpShape shape;
  std::vector<MlpParameter> parameters;
  const Samples samples;
  Mlp mlp;
  const int begin, rows;  // this rank's part of each batch
  std::vector<const float*> weights;
  std::vector<float*> gradients;
  std::vector<std::vector<float>> velocities;
  int64_t steps = 0;
  double loss = 0;  // this rank's part of the last step's
  ddp::DistributedDataParallel ddp;
};

DistributedTraining::DistributedTraining(std::unique_ptr<State> state) : state_(std::move(state)) {}
DistributedTraining::~DistributedTraining() = default;

absl::StatusOr<std::unique_ptr<DistributedTraining>> DistributedTraining::Create(
    ddp::Communicator& group, size_t bucket_cap_bytes) {
  auto state = std::make_unique<State>(group, bucket_cap_bytes);
  for (MlpParameter& parameter : state->parameters) {
    state->ddp.AddParameter(parameter.name, parameter.values.data(), parameter.values.size(),
                            DType::kFloat32);
  }
  if (absl::Status status = state->ddp.Finalize(); !status.ok()) return status;
  for (size_t i = 0; i < state->parameters.size(); ++i) {
    state->weights.push_back(state->parameters[i].values.data());
    state->gradients.push_back(static_cast<float*>(state->ddp.GradientPtr(static_cast<int>(i))));
    state->velocities.emplace_back(state->parameters[i].values.size());
  }
  return std::unique_ptr<DistributedTraining>(new DistributedTraining(std::move(state)));
}

absl::StatusOr<StepRecord> DistributedTraining::Step() {
  State& own = *state_;
  StepRecord record;
  PhaseClock clock(record);
  const size_t first = (own.steps++ % kBatchesOfSamples) * kGlobalBatch + own.begin;
  absl::Status status = own.ddp.ZeroGrad();
  own.mlp.Forward(own.samples.inputs.data() + first * own.shape.inputs, own.rows, own.weights);
  own.loss = LossAndSlope(own.mlp.scores(), std::span(own.samples.labels).subspan(first, own.rows),
                          own.shape.classes, kGlobalBatch);
  // The sum over the ranks is what counts, and their average is what comes: this makes up for it.
  float* const slopes = own.mlp.scores();
  const auto ranks = static_cast<float>(own.group.world_size());
  for (int i = 0; i < own.rows * own.shape.classes; ++i) slopes[i] *= ranks;
  clock.EndPhase("forward");
  own.mlp.Backward(slopes, own.weights, own.gradients,
                   [&](int parameter) { status.Update(own.ddp.GradientReady(parameter)); });
  clock.EndPhase("backward");
  status.Update(own.ddp.Finish());
  if (!status.ok()) return status;
  clock.EndPhase("wait");
  for (size_t i = 0; i < own.parameters.size(); ++i) {
    std::vector<float>& values = own.parameters[i].values;
    Update(values, std::span(own.gradients[i], values.size()), own.velocities[i]);
  }
  clock.EndPhase("update");

  const ddp::ReductionTimes times = own.ddp.last_reduction();
  const auto ms = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  if (own.group.world_size() == 1) return record;  // nothing travels
  record.communication_ms = ms(times.communication);
  record.exposed_ms = ms(times.Exposed());
  record.backward_end_ms = clock.At(times.backward_end);
  for (const ddp::BucketTimes& bucket : own.ddp.last_buckets()) {
    record.reductions.push_back({.name = absl::StrCat("bucket ", record.reductions.size() + 1),
                                 .begin_ms = clock.At(bucket.started),
                                 .end_ms = clock.At(bucket.ended)});
  }
  return record;
}

absl::StatusOr<double> DistributedTraining::Loss() {
  double loss = state_->loss;
  absl::Status status = state_->group.AllReduce(&loss, 1, DType::kFloat64, ReduceOp::kSum)->Wait();
  if (!status.ok()) return status;
  return loss;
}

absl::StatusOr<double> DistributedTraining::Largest(double mine) {
  absl::Status status = state_->group.AllReduce(&mine, 1, DType::kFloat64, ReduceOp::kMax)->Wait();
  if (!status.ok()) return status;
  return mine;
}

absl::Status DistributedTraining::Complete(Row& row) {
  State& own = *state_;
  const int ranks = own.group.world_size();
  double means[] = {row.step_ms, row.communication_ms, row.exposed_ms};
  absl::Status status = own.group.AllReduce(means, 3, DType::kFloat64, ReduceOp::kAverage)->Wait();
  if (!status.ok()) return status;
  row.way = Way::kDistributed;
  row.ranks = ranks;
  row.step_ms = means[0];
  row.communication_ms = means[1];
  row.exposed_ms = means[2];
  uint64_t weights = 0;
  for (const MlpParameter& parameter : own.parameters) {
    weights += parameter.values.size() * sizeof(float);
  }
  // Each rank gets the other ranks' part of its slice, and the slices of the others.
  row.bytes_moved = 2 * static_cast<uint64_t>(ranks - 1) * weights;
  const auto mine =
      static_cast<int64_t>(3 * weights + own.mlp.bytes() +
                           static_cast<uint64_t>(own.rows) * own.shape.inputs * sizeof(float));
  std::vector<int64_t> all(ranks);
  status = own.group.AllGather(&mine, all.data(), 1, DType::kInt64)->Wait();
  row.memory_bytes.assign(all.begin(), all.end());
  return status;
}

int DistributedTraining::bucket_count() const { return state_->ddp.bucket_count(); }

}  // namespace ddprun::bench
