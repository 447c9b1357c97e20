#include "tests/worker_runtime/comm/nccl/gpu_script.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::internal::CudaPointer;
using ddp::internal::CudaStream;
using ddp::internal::kCudaSuccess;
using Floats = std::vector<float>;
using Kind = GpuScriptStep::Kind;

constexpr size_t kSizes[] = {3, 5, 2, 4};

// A gradient that is no average of others by chance; sums of three are exact.
Floats GradientOf(int rank, int number, int id) {
  Floats values;
  for (size_t i = 0; i < kSizes[id]; ++i) {
    values.push_back(static_cast<float>(100 * number + 10 * rank * rank + 3 * id) +
                     static_cast<float>(i) * 0.25f);
  }
  return values;
}

CudaPointer AddressOf(const float* data) { return reinterpret_cast<CudaPointer>(data); }

class GpuPlace final : public Place {
 public:
  GpuPlace() : backward_(NewStream()), optimizer_(NewStream()) {
    DDP_CHECK(Driver().cuEventCreate(&event_, ddp::internal::kCudaEventDisableTiming) ==
              kCudaSuccess);
  }
  ddp::Stream backward() const override { return backward_; }
  ddp::Stream optimizer() const override { return optimizer_; }
  float* Allocate(const Floats& values) override {
    arrays_.emplace_back(values);
    return arrays_.back().data();
  }
  void Write(float* to, const Floats& values) override {
    written_.push_back(values);
    DDP_CHECK(Driver().cuMemcpyHtoDAsync(AddressOf(to), written_.back().data(),
                                         values.size() * sizeof(float),
                                         static_cast<CudaStream>(backward_)) == kCudaSuccess);
  }
  Floats Read(const float* from, size_t count) override {
    Floats values(count);
    const auto on = static_cast<CudaStream>(optimizer_);
    DDP_CHECK(Driver().cuMemcpyDtoHAsync(values.data(), AddressOf(from), count * sizeof(float),
                                         on) == kCudaSuccess);
    DDP_CHECK(Driver().cuStreamSynchronize(on) == kCudaSuccess);
    return values;
  }
  void Copy(float* to, const float* from, size_t count) override {
    DDP_CHECK(Driver().cuMemcpyDtoDAsync(AddressOf(to), AddressOf(from), count * sizeof(float),
                                         static_cast<CudaStream>(optimizer_)) == kCudaSuccess);
  }
  void Hold(ddp::Stream stream) override { hold_ = HoldStream(stream); }
  void LetGo() override { ReleaseStream(hold_); }
  void EndPass() override { Follow(optimizer_, backward_); }
  void LetOptimizerFollow() override { Follow(backward_, optimizer_); }

 private:
  void Follow(ddp::Stream first, ddp::Stream second) const {
    DDP_CHECK(Driver().cuEventRecord(event_, static_cast<CudaStream>(first)) == kCudaSuccess);
    DDP_CHECK(Driver().cuStreamWaitEvent(static_cast<CudaStream>(second), event_, 0) ==
              kCudaSuccess);
  }

  const ddp::Stream backward_, optimizer_;
  ddp::internal::CudaEvent event_ = nullptr;
  std::deque<DeviceArray> arrays_;
  std::deque<Floats> written_;  // until the copies are done
  int hold_ = 0;
};

class HostPlace final : public Place {
 public:
  float* Allocate(const Floats& values) override {
    arrays_.push_back(values);
    return arrays_.back().data();
  }
  void Write(float* to, const Floats& values) override {
    std::memcpy(to, values.data(), values.size() * sizeof(float));
  }
  Floats Read(const float* from, size_t count) override { return {from, from + count}; }
  void Copy(float* to, const float* from, size_t count) override {
    std::memcpy(to, from, count * sizeof(float));
  }

 private:
  std::deque<Floats> arrays_;
};

ddp::DistributedDataParallelOptions WithSmallBuckets(ddp::DistributedDataParallelOptions options,
                                                     ddp::Stream stream) {
  options.bucket_cap_bytes = options.first_bucket_bytes = 24;
  options.stream = stream;
  return options;
}

}  // namespace

std::unique_ptr<Place> OnGpu() { return std::make_unique<GpuPlace>(); }
std::unique_ptr<Place> OnHost() { return std::make_unique<HostPlace>(); }

ScriptModel::ScriptModel(Place& place, ddp::Communicator& communicator, GpuScriptOptions options)
    : place_(place),
      options_(std::move(options)),
      ddp_(communicator, WithSmallBuckets(options_.ddp, place.backward())),
      buffer_(place.Allocate({0})) {
  ddp_.AddBuffer("buffer", buffer_, 1, DType::kFloat32);
  for (int id = 0; id < kParameters; ++id) {
    const std::string name = "weights." + std::to_string(id);
    weights_.push_back(place_.Allocate(Floats(size(id), 0)));
    if (!options_.owns_gradients) {
      ddp_.AddParameter(name, weights_.back(), size(id), DType::kFloat32);
      continue;
    }
    float* const own = place_.Allocate(Floats(size(id), 0));
    ddp_.AddParameter(name, weights_.back(), size(id), DType::kFloat32, {own, size(id)});
  }
}

size_t ScriptModel::size(int id) const { return kSizes[id]; }

absl::Status ScriptModel::Start() {
  absl::Status status = ddp_.Finalize();
  for (int id = 0; id < kParameters; ++id) {
    gradients_.push_back(static_cast<float*>(ddp_.GradientPtr(id)));
  }
  if (!status.ok() || !options_.has_hook) return status;
  return ddp_.RegisterCommHook([](const ddp::GradientBucket& bucket, ddp::Communicator& all) {
    return all.AllReduce(bucket.data, bucket.count, bucket.dtype, ddp::ReduceOp::kSum,
                         bucket.stream);
  });
}

void ScriptModel::SetGradient(int id, const Floats& values) {
  place_.Write(gradients_[static_cast<size_t>(id)], values);
}

Floats ScriptModel::Gradient(int id) {
  return place_.Read(gradients_[static_cast<size_t>(id)], size(id));
}

absl::Status ScriptModel::Backward(int rank, const std::string& used) {
  ++number_;
  for (const char digit : used) {
    const int id = digit - '0';
    SetGradient(id, GradientOf(rank, number_, id));
    if (absl::Status status = ddp_.GradientReady(id); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ScriptModel::Announce(const std::string& used) {
  absl::Status status;
  for (const char digit : used) {
    if (status.ok()) status = ddp_.GradientReady(digit - '0');
  }
  return status;
}

absl::Status ScriptModel::Pass(int rank, const std::string& used) {
  place_.Hold(place_.backward());
  absl::Status status = ddp_.BroadcastBuffers();
  place_.Write(buffer_, {static_cast<float>(10 * number_ + rank)});
  if (status.ok()) status = Backward(rank, used);
  if (status.ok()) status = ddp_.Finish(place_.optimizer());
  place_.LetGo();
  place_.EndPass();
  return status;
}

absl::StatusOr<Floats> RunGpuScript(Place& place, ddp::Communicator& communicator,
                                    const GpuScript& script, const GpuScriptOptions& options) {
  using Guard = ddp::DistributedDataParallel::JoinGuard;
  const int rank = communicator.rank();
  ScriptModel model(place, communicator, options);
  absl::Status status = model.Start();
  std::optional<Guard> join;
  if (status.ok() && options.joins) {
    auto joined = model.ddp().Join(options.divides_by_initial, place.optimizer());
    status = joined.status();
    if (status.ok()) join.emplace(*std::move(joined));
  }
  std::vector<std::pair<float*, size_t>> results;
  // Nothing waits for a device: a rank may be in the Join with its stream held.
  const auto note = [&](const float* values, size_t count) {
    results.emplace_back(place.Allocate(Floats(count, 0)), count);
    place.Copy(results.back().first, values, count);
  };
  bool has_batch = true;
  for (const GpuScriptStep& step : script) {
    if (!status.ok()) return status;
    if (step.kind == Kind::kZeroGrad) {
      if (has_batch) status = model.ddp().ZeroGrad();
      // A rank may find no batch then, and Wait() works on the optimizer's stream.
      place.LetOptimizerFollow();
      continue;
    }
    has_batch = has_batch && step.used[rank] != "-";
    if (!has_batch) continue;
    const auto guard = model.ddp().NoSync(step.kind == Kind::kNoSyncPass);
    status = model.Pass(rank, step.used[rank]);
    // Without synchronisation the optimizer's stream does not come behind backward.
    const bool is_average = status.ok() && step.kind == Kind::kPass;
    for (int id = 0; is_average && id < ScriptModel::kParameters; ++id) {
      note(model.gradient(id), model.size(id));
      if (join.has_value()) place.Copy(model.weights(id), model.gradient(id), model.size(id));
    }
    if (is_average) place.EndPass();
  }
  if (status.ok() && join.has_value()) {
    place.Hold(place.optimizer());
    for (int id = 0; id < ScriptModel::kParameters; ++id) {
      // The optimizer has still to do, with weights and with gradients.
      const float* last = place.Allocate(Floats(model.size(id), static_cast<float>(1000 + rank)));
      place.Copy(model.weights(id), last, model.size(id));
      place.Copy(model.gradient(id), last, model.size(id));
    }
    status = join->Wait();
    place.LetGo();
    for (int id = 0; id < ScriptModel::kParameters; ++id) {
      note(model.weights(id), model.size(id));
      note(model.gradient(id), model.size(id));
    }
    note(model.buffer(), 1);
  }
  if (!status.ok()) return status;
  Floats all;
  for (const auto& [values, count] : results) {
    const Floats read = place.Read(values, count);
    all.insert(all.end(), read.begin(), read.end());
  }
  return all;
}

bool IsSameInBoth(ddp::Communicator& communicator, const GpuScript& script,
                  const GpuScriptOptions& options) {
  const auto on_gpu = OnGpu(), on_host = OnHost();
  const auto mine = RunGpuScript(*on_gpu, communicator, script, options);
  const auto theirs = RunGpuScript(*on_host, communicator.host(), script, options);
  if (!mine.ok() || !theirs.ok()) {
    std::fprintf(stderr, "on the GPU %s, on the host %s\n", mine.status().ToString().c_str(),
                 theirs.status().ToString().c_str());
    return false;
  }
  if (mine->size() == theirs->size() &&
      std::memcmp(mine->data(), theirs->data(), mine->size() * sizeof(float)) == 0) {
    return true;
  }
  for (size_t i = 0; i < mine->size(); ++i) {
    std::fprintf(stderr, "%zu: %g on the GPU, %g on the host\n", i, (*mine)[i], (*theirs)[i]);
  }
  return false;
}

}  // namespace ddprun::testing
