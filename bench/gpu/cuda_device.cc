#include "bench/gpu/cuda_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/gpu/mlp_kernels.h"
#include "bench/gpu/mlp_ptx.h"
#include "worker_runtime/gpu/await_stream.h"

namespace ddprun::bench {
namespace {

using ddp::DeviceMemory;
using ddp::Kernel;
using ddp::LaunchShape;
using ddp::ShapeFor;

class CudaDevice final : public Device {
 public:
  CudaDevice(const ddp::Gpu& gpu, const MlpShape& shape) : gpu_(gpu), shape_(shape) {}

  absl::Status Open() {
    absl::StatusOr<ddp::OwnedStream> made = gpu_.MakeStream("the stream of the bench");
    if (!made.ok()) return made.status();
    own_stream_ = *std::move(made);
    stream_ = own_stream_.get();
    absl::StatusOr<ddp::OwnedModule> module = gpu_.LoadPtx("mlp.cu", kMlpPtx);
    if (!module.ok()) return module.status();
    module_ = *std::move(module);
    absl::Status status;
    const auto find = [&](const char* name, auto* kernel) {
      status.Update(gpu_.FindKernel(module_, name, kernel));
    };
    find("multiply", &multiply_);
    find("add_transposed_product", &add_transposed_product_);
    find("multiply_by_transposed", &multiply_by_transposed_);
    find("add_bias", &add_bias_);
    find("softmax_slope", &softmax_slope_);
    find("add_column_sums", &add_column_sums_);
    find("relu_slope", &relu_slope_);
    find("momentum_update", &momentum_update_);
    return status;
  }

  absl::StatusOr<float*> Put(const char* what, std::span<const float> values) override {
    return PutAny(what, values);
  }

  absl::Status PutBatches(const Samples& samples, int begin, int rows) override {
    const auto width = static_cast<size_t>(shape_.inputs);
    std::vector<float> inputs;
    std::vector<uint8_t> labels;
    for (int batch = 0; batch < kBatchesOfSamples; ++batch) {
      const size_t first = static_cast<size_t>(batch) * kGlobalBatch + begin;
      const auto from = samples.inputs.begin() + static_cast<ptrdiff_t>(first * width);
      inputs.insert(inputs.end(), from, from + static_cast<ptrdiff_t>(rows * width));
      const auto label = samples.labels.begin() + static_cast<ptrdiff_t>(first);
      labels.insert(labels.end(), label, label + rows);
    }
    batch_rows_ = rows;
    const absl::StatusOr<float*> put_inputs = PutAny<float>("the samples", inputs);
    if (!put_inputs.ok()) return put_inputs.status();
    inputs_ = *put_inputs;
    const absl::StatusOr<uint8_t*> put_labels = PutAny<uint8_t>("the labels", labels);
    if (!put_labels.ok()) return put_labels.status();
    labels_ = *put_labels;
    losses_ = std::vector<double>(rows);
    const absl::StatusOr<double*> losses = PutAny<double>("the losses of the rows", losses_);
    if (losses.ok()) device_losses_ = *losses;
    return losses.status();
  }

  const float* Batch(int batch) const override {
    return inputs_ + static_cast<size_t>(batch) * batch_rows_ * shape_.inputs;
  }

  absl::Status Forward(const float* inputs, int rows,
                       std::span<const float* const> weights) override {
    absl::Status status = MakeRoom(rows);
    rows_ = rows;
    last_inputs_ = inputs;
    const float* input = inputs;
    for (int layer = 0; layer <= shape_.hidden_layers && status.ok(); ++layer) {
      const LayerSize size = SizeOf(shape_, layer);
      float* const output = outputs_[layer];
      status =
          Product(multiply_, input, weights[2 * layer], output, rows, size.outputs, size.inputs);
      if (!status.ok()) break;
      const int64_t count = int64_t{rows} * size.outputs;
      status = add_bias_.Launch(stream_, ShapeFor(count), output, weights[2 * layer + 1], count,
                                size.outputs, layer < shape_.hidden_layers ? 1 : 0);
      input = output;
    }
    return status;
  }

  float* scores() override { return outputs_.empty() ? nullptr : outputs_.back(); }

  absl::Status LossAndSlope(float* scores, int batch, float factor) override {
    return softmax_slope_.Launch(
        stream_, ShapeFor(batch_rows_), scores, labels_ + static_cast<size_t>(batch) * batch_rows_,
        device_losses_, batch_rows_, shape_.classes, static_cast<float>(kGlobalBatch), factor);
  }

  absl::StatusOr<double> Loss() override {
    absl::Status status = gpu_.CopyToHost("the losses of the rows", losses_.data(), device_losses_,
                                          losses_.size() * sizeof(double), stream_);
    if (status.ok()) status = Wait();
    if (!status.ok()) return status;
    double loss = 0;
    for (const double of_row : losses_) loss += of_row;
    return loss / kGlobalBatch;
  }

  absl::Status Backward(const float* slopes, std::span<const float* const> weights,
                        std::span<float* const> gradients,
                        const std::function<void(int)>& ready) override {
    const float* slope = slopes;
    for (int layer = shape_.hidden_layers; layer >= 0; --layer) {
      const LayerSize size = SizeOf(shape_, layer);
      const float* input = layer == 0 ? last_inputs_ : outputs_[layer - 1];
      absl::Status status = add_column_sums_.Launch(stream_, ColumnShape(size.outputs), slope,
                                                    rows_, size.outputs, gradients[2 * layer + 1]);
      if (!status.ok()) return status;
      ready(2 * layer + 1);
      status = Product(add_transposed_product_, input, slope, gradients[2 * layer], size.inputs,
                       size.outputs, rows_);
      if (!status.ok()) return status;
      ready(2 * layer);
      if (layer == 0) break;
      // The layers take turns with two buffers: one is read while the other is written.
      float* const next = slopes_[layer % 2];
      status = Product(multiply_by_transposed_, slope, weights[2 * layer], next, rows_, size.inputs,
                       size.outputs);
      const int64_t count = int64_t{rows_} * size.inputs;
      if (status.ok()) status = relu_slope_.Launch(stream_, ShapeFor(count), next, input, count);
      if (!status.ok()) return status;
      slope = next;
    }
    return absl::OkStatus();
  }

  absl::Status Update(float* values, const float* gradient, float* velocity,
                      size_t count) override {
    return momentum_update_.Launch(stream_, ShapeFor(static_cast<int64_t>(count)), values, gradient,
                                   velocity, static_cast<int64_t>(count), kLearningRate, kMomentum);
  }

  ddp::Stream stream() const override { return stream_; }
  void UseStream(ddp::Stream stream) override { stream_ = stream; }
  absl::Status Wait() override {
    return ddp::internal::AwaitStream(gpu_, "train the network", stream_, kGroupTimeout);
  }
  size_t bytes() const override { return bytes_; }

 private:
  // Few threads for each block, so that more of the GPU takes part.
  static LaunchShape ColumnShape(int columns) {
    return {.blocks = static_cast<unsigned>((columns + 31) / 32), .threads_x = 32};
  }

  absl::Status Product(const Kernel<MultiplyMatrices>& kernel, const float* a, const float* b,
                       float* c, int rows, int columns, int inner) const {
    const auto tiles = [](int count) { return static_cast<unsigned>((count + kTile - 1) / kTile); };
    return kernel.Launch(
        stream_, {.blocks = tiles(rows) * tiles(columns), .threads_x = kTile, .threads_y = kTile},
        a, b, c, rows, columns, inner);
  }

  absl::StatusOr<void*> Allocate(const char* what, size_t bytes) {
    absl::StatusOr<DeviceMemory> memory = gpu_.Allocate(what, bytes);
    if (!memory.ok()) return memory.status();
    bytes_ += bytes;
    return memory_.emplace_back(*std::move(memory)).get();
  }

  template <typename T>
  absl::StatusOr<T*> PutAny(const char* what, std::span<const T> values) {
    const absl::StatusOr<void*> memory = Allocate(what, values.size_bytes());
    if (!memory.ok()) return memory.status();
    absl::Status status =
        gpu_.CopyToDevice(what, *memory, values.data(), values.size_bytes(), stream_);
    if (status.ok()) status = Wait();  // the values may go now
    if (!status.ok()) return status;
    return static_cast<T*>(*memory);
  }

  // For the activations of the first batch; none has more rows.
  absl::Status MakeRoom(int rows) {
    if (rows <= room_) return absl::OkStatus();
    if (room_ > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of ", rows, " rows after one of ", room_));
    }
    const size_t row_bytes = static_cast<size_t>(rows) * sizeof(float);
    for (int layer = 0; layer <= shape_.hidden_layers; ++layer) {
      const absl::StatusOr<void*> made =
          Allocate("a layer's outputs", row_bytes * SizeOf(shape_, layer).outputs);
      if (!made.ok()) return made.status();
      outputs_.push_back(static_cast<float*>(*made));
    }
    for (float*& slope : slopes_) {
      const absl::StatusOr<void*> made =
          Allocate("the slope of a layer's outputs", row_bytes * shape_.hidden);
      if (!made.ok()) return made.status();
      slope = static_cast<float*>(*made);
    }
    room_ = rows;
    return absl::OkStatus();
  }

  const ddp::Gpu gpu_;
  const MlpShape shape_;
  ddp::OwnedStream own_stream_;
  ddp::Stream stream_ = nullptr;
  ddp::OwnedModule module_;
  Kernel<MultiplyMatrices> multiply_, add_transposed_product_, multiply_by_transposed_;
  Kernel<AddBias> add_bias_;
  Kernel<SoftmaxSlope> softmax_slope_;
  Kernel<AddColumnSums> add_column_sums_;
  Kernel<ReluSlope> relu_slope_;
  Kernel<MomentumUpdate> momentum_update_;
  std::vector<DeviceMemory> memory_;
  size_t bytes_ = 0;
  int batch_rows_ = 0;
  const float* inputs_ = nullptr;  // of all batches
  const uint8_t* labels_ = nullptr;
  double* device_losses_ = nullptr;  // of the rows of the last batch
  std::vector<double> losses_;
  int room_ = 0, rows_ = 0;
  const float* last_inputs_ = nullptr;
  std::vector<float*> outputs_;  // by layer
  float* slopes_[2] = {};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const ddp::Gpu& gpu, const MlpShape& shape) {
  auto device = std::make_unique<CudaDevice>(gpu, shape);
  if (absl::Status status = device->Open(); !status.ok()) return status;
  return device;
}

}  // namespace ddprun::bench
