#include "bench/device.h"

#include <utility>

#include "bench/gpu/cuda_device.h"

namespace ddprun::bench {
namespace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(const MlpShape& shape) : shape_(shape), mlp_(shape) {}

  absl::StatusOr<float*> Put(const char*, std::span<const float> values) override {
    bytes_ += values.size_bytes();
    return memory_.emplace_back(values.begin(), values.end()).data();
  }

  absl::Status PutBatches(const Samples& samples, int begin, int rows) override {
    samples_ = &samples;
    begin_ = begin;
    rows_ = rows;
    // A program that loads its samples holds a batch of them.
    bytes_ += static_cast<size_t>(rows) * shape_.inputs * sizeof(float);
    return absl::OkStatus();
  }

  const float* Batch(int batch) const override {
    return samples_->inputs.data() + FirstRow(batch) * shape_.inputs;
  }

  absl::Status Forward(const float* inputs, int rows,
                       std::span<const float* const> weights) override {
    mlp_.Forward(inputs, rows, weights);
    return absl::OkStatus();
  }

  float* scores() override { return mlp_.scores(); }

  absl::Status LossAndSlope(float* scores, int batch, float factor) override {
    const auto labels = std::span(samples_->labels).subspan(FirstRow(batch), rows_);
    loss_ = bench::LossAndSlope(scores, labels, shape_.classes, kGlobalBatch);
    for (int i = 0; i < rows_ * shape_.classes; ++i) scores[i] *= factor;
    return absl::OkStatus();
  }

  absl::StatusOr<double> Loss() override { return loss_; }

  absl::Status Backward(const float* slopes, std::span<const float* const> weights,
                        std::span<float* const> gradients,
                        const std::function<void(int)>& ready) override {
    mlp_.Backward(slopes, weights, gradients, ready);
    return absl::OkStatus();
  }

  absl::Status Update(float* values, const float* gradient, float* velocity,
                      size_t count) override {
    bench::Update({values, count}, {gradient, count}, {velocity, count});
    return absl::OkStatus();
  }

  size_t bytes() const override { return bytes_ + mlp_.bytes(); }

 private:
  size_t FirstRow(int batch) const { return static_cast<size_t>(batch) * kGlobalBatch + begin_; }

  const MlpShape shape_;
  Mlp mlp_;
  std::vector<std::vector<float>> memory_;
  const Samples* samples_ = nullptr;
  int begin_ = 0, rows_ = 0;
  size_t bytes_ = 0;
  double loss_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const MlpShape& shape, int gpu) {
  if (gpu < 0) return std::make_unique<HostDevice>(shape);
  const absl::StatusOr<ddp::Gpu> opened = ddp::Gpu::Use(gpu);
  if (!opened.ok()) return opened.status();
  return MakeCudaDevice(*opened, shape);
}

absl::Status PutParameters(Device& device, const std::vector<MlpParameter>& parameters,
                           std::vector<float*>& values, std::vector<float*>& velocities) {
  for (const MlpParameter& parameter : parameters) {
    const absl::StatusOr<float*> value = device.Put(parameter.name.c_str(), parameter.values);
    if (!value.ok()) return value.status();
    const absl::StatusOr<float*> velocity =
        device.Put("a parameter's momentum", std::vector<float>(parameter.values.size()));
    if (!velocity.ok()) return velocity.status();
    values.push_back(*value);
    velocities.push_back(*velocity);
  }
  return absl::OkStatus();
}

size_t BytesOf(const std::vector<MlpParameter>& parameters) {
  size_t bytes = 0;
  for (const MlpParameter& parameter : parameters) bytes += parameter.values.size() * sizeof(float);
  return bytes;
}

}  // namespace ddprun::bench
