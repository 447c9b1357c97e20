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
  State(ddp::Communicator& communicator, std::unique_ptr<Device> opened, size_t bucket_cap_bytes)
      : group(communicator),
        parameters(InitialParameters(kShape)),
        samples(MakeSamples(kShape, kBatchesOfSamples * kGlobalBatch)),
        device(std::move(opened)),
        begin(kGlobalBatch * communicator.rank() / communicator.world_size()),
        rows(kGlobalBatch * (communicator.rank() + 1) / communicator.world_size() - begin),
        ddp(communicator, {.bucket_cap_bytes = bucket_cap_bytes,
                           .first_bucket_bytes = LimitsOf(bucket_cap_bytes).first_bytes,
                           .stream = device->stream()}) {}

  ddp::Communicator& group;
  const std::vector<MlpParameter> parameters;  // what training starts from
  const Samples samples;
  const std::unique_ptr<Device> device;
  const int begin, rows;  // this rank's part of each batch
  std::vector<float*> values, velocities, gradients;
  std::vector<const float*> weights;  // the values
  int64_t steps = 0;
  ddp::DistributedDataParallel ddp;
};

DistributedTraining::DistributedTraining(std::unique_ptr<State> state) : state_(std::move(state)) {}
DistributedTraining::~DistributedTraining() = default;

absl::StatusOr<std::unique_ptr<DistributedTraining>> DistributedTraining::Create(
    ddp::Communicator& group, int gpu, size_t bucket_cap_bytes) {
  absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(kShape, gpu);
  if (!device.ok()) return device.status();
  auto state = std::make_unique<State>(group, *std::move(device), bucket_cap_bytes);
  State& own = *state;
  absl::Status status = own.device->PutBatches(own.samples, own.begin, own.rows);
  if (!status.ok()) return status;
  status = PutParameters(*own.device, own.parameters, own.values, own.velocities);
  if (!status.ok()) return status;
  own.weights.assign(own.values.begin(), own.values.end());
  for (size_t i = 0; i < own.parameters.size(); ++i) {
    own.ddp.AddParameter(own.parameters[i].name, own.values[i], own.parameters[i].values.size(),
                         DType::kFloat32);
  }
  if (status = own.ddp.Finalize(); !status.ok()) return status;
  for (size_t i = 0; i < own.parameters.size(); ++i) {
    own.gradients.push_back(static_cast<float*>(own.ddp.GradientPtr(static_cast<int>(i))));
  }
  return std::unique_ptr<DistributedTraining>(new DistributedTraining(std::move(state)));
}

absl::StatusOr<StepRecord> DistributedTraining::Step() {
  State& own = *state_;
  Device& device = *own.device;
  PhaseClock clock(own.group.device_timer(), device.stream());
  const int batch = static_cast<int>(own.steps++ % kBatchesOfSamples);
  absl::Status status = own.ddp.ZeroGrad();
  if (status.ok()) status = device.Forward(device.Batch(batch), own.rows, own.weights);
  if (!status.ok()) return status;
  // The sum over the ranks is what counts, and their average is what comes: this makes up for it.
  const auto ranks = static_cast<float>(own.group.world_size());
  if (status = device.LossAndSlope(device.scores(), batch, ranks); !status.ok()) return status;
  clock.EndPhase("forward");
  absl::Status ready;
  status = device.Backward(device.scores(), own.weights, own.gradients,
                           [&](int parameter) { ready.Update(own.ddp.GradientReady(parameter)); });
  clock.EndPhase("backward");
  status.Update(ready);
  status.Update(own.ddp.Finish());
  if (!status.ok()) return status;
  clock.EndPhase("wait");
  for (size_t i = 0; i < own.values.size() && status.ok(); ++i) {
    status = device.Update(own.values[i], own.gradients[i], own.velocities[i],
                           own.parameters[i].values.size());
  }
  clock.EndPhase("update");
  if (status.ok()) status = device.Wait();
  StepRecord record;
  if (status.ok()) status = clock.Fill(record);
  if (!status.ok()) return status;

  if (own.group.world_size() == 1) return record;  // nothing travels
  const ddp::ReductionTimes times = own.ddp.last_reduction();
  const auto ms = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
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
  absl::StatusOr<double> loss = state_->device->Loss();
  if (!loss.ok()) return loss;
  absl::Status status =
      state_->group.host().AllReduce(&*loss, 1, DType::kFloat64, ReduceOp::kSum)->Wait();
  if (!status.ok()) return status;
  return loss;
}

absl::StatusOr<double> DistributedTraining::Largest(double mine) {
  absl::Status status =
      state_->group.host().AllReduce(&mine, 1, DType::kFloat64, ReduceOp::kMax)->Wait();
  if (!status.ok()) return status;
  return mine;
}

absl::Status DistributedTraining::Complete(Row& row) {
  State& own = *state_;
  ddp::Communicator& host = own.group.host();
  const int ranks = own.group.world_size();
  double means[] = {row.step_ms, row.communication_ms, row.exposed_ms};
  absl::Status status = host.AllReduce(means, 3, DType::kFloat64, ReduceOp::kAverage)->Wait();
  if (!status.ok()) return status;
  row.way = Way::kDistributed;
  row.ranks = ranks;
  row.step_ms = means[0];
  row.communication_ms = means[1];
  row.exposed_ms = means[2];
  const uint64_t weights = BytesOf(own.parameters);
  // Each rank gets the other ranks' part of its slice, and the slices of the others.
  row.bytes_moved = 2 * static_cast<uint64_t>(ranks - 1) * weights;
  // The gradients are not the device's.
  const auto mine = static_cast<int64_t>(own.device->bytes() + weights);
  std::vector<int64_t> all(ranks);
  status = host.AllGather(&mine, all.data(), 1, DType::kInt64)->Wait();
  row.memory_bytes.assign(all.begin(), all.end());
  return status;
}

int DistributedTraining::bucket_count() const { return state_->ddp.bucket_count(); }

}  // namespace ddprun::bench
