#include <span>
#include <tuple>
#include <utility>

#include "bench/training.h"
#include "ddp/data_parallel.h"
#include "ddp/gpu.h"

namespace ddprun::bench {

using ddp::DType;

// One of the devices, and what it works on. Alone it takes the batch as it lies there; otherwise
// the samples of its chunk, and the slopes of their scores, are sent to it.
struct Replica {
  std::unique_ptr<Device> device;
  std::vector<const float*> weights;  // by parameter
  std::vector<float*> gradients;
  float* chunk = nullptr;
  float* slopes = nullptr;
};

struct ReplicatedTraining::State {
  State(int replica_count, ddp::DeviceType type)
      : parameters(InitialParameters(kShape)),
        samples(MakeSamples(kShape, kBatchesOfSamples * kGlobalBatch)),
        replicas(replica_count),
        is_on_gpus(type == ddp::DeviceType::kCuda),
        data_parallel(std::make_unique<ddp::DataParallel>(
            ddp::DataParallelOptions{.device_type = type, .replicas = replica_count})) {}

  // Frees what each GPU has where its context is current.
  ~State() {
    data_parallel.reset();  // it borrows the parameters
    for (size_t i = 0; i < replicas.size() && is_on_gpus; ++i) {
      if (Enter(i).ok()) replicas[i] = {};
    }
  }
  absl::Status Open();
  absl::Status Connect();
  absl::Status Enter(size_t replica) const {
    return is_on_gpus ? ddp::Gpu::Use(static_cast<int>(replica)).status() : absl::OkStatus();
  }
  absl::Status SendChunks(const float* rows, int columns, float* Replica::*to);
  const float* InputsOf(const Replica& replica, int batch) const {
    return replicas.size() == 1 ? replica.device->Batch(batch) : replica.chunk;
  }

  const std::vector<MlpParameter> parameters;  // what training starts from
  const Samples samples;
  std::vector<Replica> replicas;
  const bool is_on_gpus;
  std::vector<float*> values, velocities;  // on device 0
  float* scores = nullptr;                 // on device 0, of the whole batch
  int64_t steps = 0;
  std::unique_ptr<ddp::DataParallel> data_parallel;
};

// Puts on every device what it needs, and the model on device 0.
absl::Status ReplicatedTraining::State::Open() {
  const std::vector<ddp::Chunk> chunks = data_parallel->Scatter(kGlobalBatch);
  for (size_t i = replicas.size(); i-- > 0;) {  // device 0 is the last, and stays current
    Replica& replica = replicas[i];
    absl::StatusOr<std::unique_ptr<Device>> device =
        OpenDevice(kShape, is_on_gpus ? static_cast<int>(i) : -1);
    if (!device.ok()) return device.status();
    replica.device = *std::move(device);
    if (replicas.size() == 1 || i >= chunks.size()) continue;
    const auto rows = static_cast<size_t>(chunks[i].end - chunks[i].begin);
    for (const auto& [what, columns, to] : {std::tuple("a chunk", kShape.inputs, &replica.chunk),
                                            {"its slopes", kShape.classes, &replica.slopes}}) {
      const absl::StatusOr<float*> made =
          replica.device->Put(what, std::vector<float>(rows * columns));
      if (!made.ok()) return made.status();
      *to = *made;
    }
  }
  Device& first = *replicas[0].device;
  absl::Status status = first.PutBatches(samples, 0, kGlobalBatch);
  if (status.ok()) status = PutParameters(first, parameters, values, velocities);
  if (!status.ok()) return status;
  const absl::StatusOr<float*> all =
      first.Put("all scores", std::vector<float>(size_t{kGlobalBatch} * kShape.classes));
  if (all.ok()) scores = *all;
  return all.status();
}

absl::Status ReplicatedTraining::State::Connect() {
  const int count = static_cast<int>(parameters.size());
  for (int id = 0; id < count; ++id) {
    data_parallel->AddParameter(parameters[id].name, values[id], parameters[id].values.size(),
                                DType::kFloat32);
  }
  if (absl::Status status = data_parallel->Finalize(); !status.ok()) return status;
  for (int i = 0; i < static_cast<int>(replicas.size()); ++i) {
    if (is_on_gpus) replicas[i].device->UseStream(data_parallel->DeviceStream(i));
    for (int id = 0; id < count; ++id) {
      replicas[i].weights.push_back(static_cast<float*>(data_parallel->ParameterPtr(id, i)));
      replicas[i].gradients.push_back(static_cast<float*>(data_parallel->GradientPtr(id, i)));
    }
  }
  return absl::OkStatus();
}

// Rows of device 0 to the replicas that take part.
absl::Status ReplicatedTraining::State::SendChunks(const float* rows, int columns,
                                                   float* Replica::*to) {
  if (replicas.size() == 1) return absl::OkStatus();
  std::vector<void*> places;
  for (const Replica& replica : replicas) {
    if (replica.*to != nullptr) places.push_back(replica.*to);
  }
  return data_parallel->ScatterRows(rows, columns * sizeof(float), places);
}

ReplicatedTraining::ReplicatedTraining(std::unique_ptr<State> state) : state_(std::move(state)) {}
ReplicatedTraining::~ReplicatedTraining() = default;

absl::StatusOr<std::unique_ptr<ReplicatedTraining>> ReplicatedTraining::Create(
    int replicas, ddp::DeviceType type) {
  auto state = std::make_unique<State>(replicas, type);
  absl::Status status = state->Open();
  if (status.ok()) status = state->Connect();
  if (!status.ok()) return status;
  return std::unique_ptr<ReplicatedTraining>(new ReplicatedTraining(std::move(state)));
}

absl::StatusOr<StepRecord> ReplicatedTraining::Step() {
  State& own = *state_;
  ddp::DataParallel& dp = *own.data_parallel;
  Device& first = *own.replicas[0].device;
  PhaseClock clock;  // every call ends when its devices have done it
  const int batch = static_cast<int>(own.steps++ % kBatchesOfSamples);
  constexpr int kClasses = kShape.classes;
  const std::vector<ddp::Chunk> chunks = dp.Scatter(kGlobalBatch);
  absl::Status status = dp.ZeroGrad();
  status.Update(own.SendChunks(first.Batch(batch), kShape.inputs, &Replica::chunk));
  status.Update(dp.Replicate());
  if (!status.ok()) return status;
  clock.EndPhase("replicate");
  status.Update(dp.ParallelApply([&](int i) {
    Replica& replica = own.replicas[i];
    return replica.device->Forward(own.InputsOf(replica, batch),
                                   static_cast<int>(chunks[i].end - chunks[i].begin),
                                   replica.weights);
  }));
  if (!status.ok()) return status;
  clock.EndPhase("forward");
  std::vector<const void*> outputs;
  for (size_t i = 0; i < chunks.size(); ++i) outputs.push_back(own.replicas[i].device->scores());
  status.Update(dp.Gather(outputs, kClasses * sizeof(float), own.scores));
  if (!status.ok()) return status;
  clock.EndPhase("gather");
  status = first.LossAndSlope(own.scores, batch, /*factor=*/1);
  if (status.ok()) status = first.Wait();
  if (!status.ok()) return status;
  clock.EndPhase("loss");
  status.Update(own.SendChunks(own.scores, kClasses, &Replica::slopes));
  status.Update(dp.ParallelApply([&](int i) {
    Replica& replica = own.replicas[i];
    absl::Status ready;
    absl::Status done = replica.device->Backward(
        own.replicas.size() == 1 ? own.scores : replica.slopes, replica.weights, replica.gradients,
        [&](int parameter) { ready.Update(dp.GradientReady(parameter, i)); });
    done.Update(ready);
    return done;
  }));
  clock.EndPhase("backward");
  const auto backward_end = PhaseClock::Clock::now();
  status.Update(dp.Finish());
  if (!status.ok()) return status;
  clock.EndPhase("reduce");
  for (size_t i = 0; i < own.values.size() && status.ok(); ++i) {
    status = first.Update(own.values[i], own.replicas[0].gradients[i], own.velocities[i],
                          own.parameters[i].values.size());
  }
  if (status.ok()) status = first.Wait();
  clock.EndPhase("update");
  StepRecord record;
  if (status.ok()) status = clock.Fill(record);
  if (!status.ok()) return status;
  record.backward_end_ms = clock.At(backward_end);
  // Alone it copies nothing between devices.
  if (chunks.size() > 1) {
    const ddp::DataParallelTimes times = dp.last_step();
    record.communication_ms = std::chrono::duration<double, std::milli>(
                                  times.scatter + times.replicate + times.gather + times.reduce)
                                  .count();
    record.exposed_ms = record.communication_ms;
  }
  return record;
}

absl::StatusOr<double> ReplicatedTraining::Loss() { return state_->replicas[0].device->Loss(); }
absl::StatusOr<double> ReplicatedTraining::Largest(double mine) { return mine; }

absl::Status ReplicatedTraining::Complete(Row& row) {
  State& own = *state_;
  const int replicas = static_cast<int>(own.replicas.size());
  row.way = Way::kDataParallel;
  row.ranks = replicas;
  row.bytes_moved = own.data_parallel->last_step().bytes_moved;
  for (int i = 0; i < replicas; ++i) {
    row.memory_bytes.push_back(own.replicas[i].device->bytes() + own.data_parallel->bytes_on(i));
  }
  row.memory_bytes[0] -= BytesOf(own.parameters);  // counted by both
  return absl::OkStatus();
}

}  // namespace ddprun::bench
