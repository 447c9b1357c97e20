#include "examples/train/gpu/cuda_network.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/train/gpu/layers_ptx.h"
#include "examples/train/initial_weights.h"

namespace train {

using ddp::DeviceMemory;
using ddp::LaunchShape;
using ddp::ShapeFor;

namespace {

// How long what is queued may take at the end: a batch takes milliseconds.
constexpr std::chrono::seconds kDrain(5);

template <typename T>
T* As(const DeviceMemory& memory) {
  return static_cast<T*>(memory.get());
}

// The result of an allocation to where it belongs.
template <typename T>
absl::Status Assign(absl::StatusOr<T> made, T* to) {
  if (made.ok()) *to = *std::move(made);
  return made.status();
}

// For kernels whose blocks do whole rows.
LaunchShape ShapeForRows(int rows) { return {.blocks = static_cast<unsigned>(rows)}; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaNetwork>> CudaNetwork::Create(const ddp::Gpu& gpu,
                                                                 const CublasApi& cublas,
                                                                 int inputs, int hidden,
                                                                 uint64_t seed) {
  auto network = std::unique_ptr<CudaNetwork>(new CudaNetwork(gpu, inputs, hidden));
  absl::Status status = Assign(gpu.MakeStream("the network's stream"), &network->stream_);
  if (status.ok()) status = network->LoadKernels();
  if (status.ok()) {
    status =
        Assign(MatrixProducts::Create(gpu, cublas, network->stream_.get()), &network->products_);
  }
  if (status.ok()) status = network->MakeParameters(seed);
  if (status.ok()) status = network->MakeTally();
  for (Stage& stage : network->stages_) {
    if (!status.ok()) return status;
    status = Assign(gpu.MakeEvent("the event behind a batch's copy"), &stage.copied);
  }
  if (!status.ok()) return status;
  return network;
}

CudaNetwork::~CudaNetwork() {
  if (stream_ == nullptr || IsDrained()) return;
  std::fprintf(stderr,
               "train: the GPU has not ended its work within %lld s; its memory is left to the end "
               "of the process\n",
               static_cast<long long>(kDrain.count()));
  // Freeing anything would wait for the device. Reachable: the sanitizers look for leaks.
  static auto* const left = new std::vector<std::shared_ptr<void>>();
  left->emplace_back(
      new auto(std::tuple(std::move(stream_), std::move(module_), std::move(products_),
                          std::move(memory_), std::move(tally_), std::move(tally_copy_),
                          std::move(images_), std::move(stages_), std::move(batch_))));
}

// Whether the stream has come to its end, or to an error, within kDrain. The driver's own wait has
// no deadline, and a collective that hangs on the device has none either.
bool CudaNetwork::IsDrained() const {
  const auto deadline = std::chrono::steady_clock::now() + kDrain;
  while (gpu_.IsBusy(stream_.get())) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

absl::Status CudaNetwork::LoadKernels() {
  absl::Status status = Assign(gpu_.LoadPtx("layers.cu", kLayersPtx), &module_);
  if (!status.ok()) return status;
  const auto find = [&](const char* name, auto* kernel) {
    status.Update(gpu_.FindKernel(module_, name, kernel));
  };
  find("gather_images", &kernels_.gather_images);
  find("add_bias_relu", &kernels_.add_bias_relu);
  find("softmax_loss", &kernels_.softmax_loss);
  find("score_slope", &kernels_.score_slope);
  find("relu_slope", &kernels_.relu_slope);
  find("add_column_sums", &kernels_.add_column_sums);
  find("momentum_update", &kernels_.momentum_update);
  return status;
}

absl::Status CudaNetwork::MakeParameters(uint64_t seed) {
  const std::vector<InitialWeights> initial = MakeInitialWeights(inputs_, hidden_, seed);
  for (const InitialWeights& weights : initial) {
    const size_t bytes = weights.values.size() * sizeof(float);
    absl::StatusOr<DeviceMemory> values = gpu_.Allocate(weights.name, bytes);
    if (!values.ok()) return values.status();
    absl::Status status =
        CopyToDevice(weights.name.c_str(), values->get(), weights.values.data(), bytes);
    if (!status.ok()) return status;
    parameters_.push_back(
        {.name = weights.name, .count = weights.values.size(), .values = As<float>(*values)});
    memory_.push_back(*std::move(values));
  }
  return Synchronize("copy the weights");  // `initial` goes now
}

absl::Status CudaNetwork::MakeTally() {
  absl::Status status = Assign(gpu_.Allocate("the sum of losses", sizeof(DeviceTally)), &tally_);
  status.Update(
      Assign(gpu_.AllocatePinned("the sum of losses", sizeof(DeviceTally)), &tally_copy_));
  if (status.ok()) status = Fill("the sum of losses", tally_.get(), sizeof(DeviceTally));
  return status;
}

// Makes room for `rows` images; an upper bound is soon found and stays.
absl::Status CudaNetwork::Grow(int64_t rows) {
  if (rows <= batch_.capacity) return absl::OkStatus();
  absl::Status status = Synchronize("make room for a larger batch");
  if (!status.ok()) return status;
  batch_ = Batch();
  const size_t count = static_cast<size_t>(rows);
  const auto allocate = [&](const char* what, size_t bytes_per_row, DeviceMemory* memory) {
    if (status.ok()) status = Assign(gpu_.Allocate(what, count * bytes_per_row), memory);
  };
  allocate("a batch's indices", sizeof(int64_t), &batch_.indices);
  allocate("a batch's labels", sizeof(uint8_t), &batch_.labels);
  allocate("a batch's images", inputs_ * sizeof(float), &batch_.input);
  allocate("a batch's hidden layer", hidden_ * sizeof(float), &batch_.hidden);
  allocate("a batch's probabilities", kClasses * sizeof(float), &batch_.probabilities);
  allocate("the slope of a batch's scores", kClasses * sizeof(float), &batch_.slope);
  allocate("the slope of a batch's hidden layer", hidden_ * sizeof(float), &batch_.hidden_slope);
  for (Stage& stage : stages_) {
    if (!status.ok()) return status;
    status =
        Assign(gpu_.AllocatePinned("a batch's indices", count * sizeof(int64_t)), &stage.indices);
  }
  if (status.ok()) batch_.capacity = rows;
  return status;
}

absl::StatusOr<const CudaNetwork::DeviceImages*> CudaNetwork::Upload(const ImageSet& images) {
  const auto known = images_.find(&images);
  if (known != images_.end()) return &known->second;
  if (images.pixels_per_image() != inputs_) {
    return absl::InvalidArgumentError(absl::StrCat("images of ", images.pixels_per_image(),
                                                   " pixels for a network of ", inputs_));
  }
  DeviceImages copy;
  absl::Status status = Assign(gpu_.Allocate("the images", images.pixels.size()), &copy.pixels);
  status.Update(Assign(gpu_.Allocate("the labels", images.labels.size()), &copy.labels));
  if (!status.ok()) return status;
  status.Update(
      CopyToDevice("the images", copy.pixels.get(), images.pixels.data(), images.pixels.size()));
  status.Update(
      CopyToDevice("the labels", copy.labels.get(), images.labels.data(), images.labels.size()));
  // The caller may free the set from now on.
  status.Update(Synchronize("copy the images"));
  if (!status.ok()) return status;
  return &images_.emplace(&images, std::move(copy)).first->second;
}

absl::Status CudaNetwork::StageIndices(std::span<const int64_t> indices) {
  Stage& stage = stages_[next_stage_];
  next_stage_ = (next_stage_ + 1) % kStages;
  // An event that was never recorded is complete.
  absl::Status status = gpu_.Synchronize("an earlier batch", stage.copied);
  if (!status.ok()) return status;
  std::memcpy(stage.indices.get(), indices.data(), indices.size_bytes());
  status = CopyToDevice("a batch's indices", batch_.indices.get(), stage.indices.get(),
                        indices.size_bytes());
  if (!status.ok()) return status;
  return gpu_.Record(stage.copied, stream_.get());
}

absl::Status CudaNetwork::Forward(const ImageSet& images, std::span<const int64_t> indices) {
  absl::Status status = Load(images, indices);
  return status.ok() ? ForwardLoaded() : status;
}

absl::Status CudaNetwork::Load(const ImageSet& images, std::span<const int64_t> indices) {
  rows_ = 0;
  if (indices.empty()) return absl::OkStatus();
  const absl::StatusOr<const DeviceImages*> set = Upload(images);
  if (!set.ok()) return set.status();
  set_ = *set;
  absl::Status status = Grow(static_cast<int64_t>(indices.size()));
  if (status.ok()) status = StageIndices(indices);
  if (status.ok()) rows_ = static_cast<int>(indices.size());
  return status;
}

absl::Status CudaNetwork::ForwardLoaded() {
  if (rows_ == 0) return absl::OkStatus();
  const DeviceMatrix input{.data = As<float>(batch_.input), .rows = rows_, .columns = inputs_};
  const DeviceMatrix hidden{.data = As<float>(batch_.hidden), .rows = rows_, .columns = hidden_};
  float* probabilities = As<float>(batch_.probabilities);
  absl::Status status =
      kernels_.gather_images.Launch(stream_.get(), ShapeForRows(rows_), As<uint8_t>(set_->pixels),
                                    As<uint8_t>(set_->labels), As<int64_t>(batch_.indices), rows_,
                                    inputs_, As<float>(batch_.input), As<uint8_t>(batch_.labels));
  if (!status.ok()) return status;
  status = products_->Multiply("the hidden layer", input, Matrix(kHiddenWeight, inputs_, hidden_),
                               0, As<float>(batch_.hidden));
  if (!status.ok()) return status;
  status =
      kernels_.add_bias_relu.Launch(stream_.get(), ShapeForRows(rows_), As<float>(batch_.hidden),
                                    parameters_[kHiddenBias].values, rows_, hidden_);
  if (!status.ok()) return status;
  status = products_->Multiply("the scores", hidden, Matrix(kOutputWeight, hidden_, kClasses), 0,
                               probabilities);
  if (!status.ok()) return status;
  status = kernels_.softmax_loss.Launch(stream_.get(), {.blocks = 1, .threads_x = kTallyThreads},
                                        probabilities, parameters_[kOutputBias].values,
                                        As<uint8_t>(batch_.labels), rows_, kClasses,
                                        As<DeviceTally>(tally_));
  return status;
}

absl::Status CudaNetwork::Backward(float scale, const std::function<void(int)>& ready) {
  for (const Parameter& parameter : parameters_) {
    if (parameter.gradient == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(parameter.name, " has no gradient to add to"));
    }
  }
  if (rows_ == 0) {  // nothing to add
    for (const int parameter : {kOutputBias, kOutputWeight, kHiddenBias, kHiddenWeight}) {
      ready(parameter);
    }
    return absl::OkStatus();
  }
  const auto gradient = [this](int parameter) { return parameters_[parameter].gradient; };
  const DeviceMatrix slope{.data = As<float>(batch_.slope), .rows = rows_, .columns = kClasses};
  const DeviceMatrix hidden_slope{
      .data = As<float>(batch_.hidden_slope), .rows = rows_, .columns = hidden_};
  const auto transposed = [this](const DeviceMemory& memory, int columns) {
    return DeviceMatrix{As<float>(memory), rows_, columns, /*is_transposed=*/true};
  };
  DeviceMatrix output_weight = Matrix(kOutputWeight, hidden_, kClasses);
  output_weight.is_transposed = true;

  absl::Status status = kernels_.score_slope.Launch(
      stream_.get(), ShapeFor(int64_t{rows_} * kClasses), As<float>(batch_.probabilities),
      As<uint8_t>(batch_.labels), rows_, kClasses, scale, As<float>(batch_.slope));
  if (status.ok()) status = SumColumns(slope.data, kClasses, gradient(kOutputBias));
  if (!status.ok()) return status;
  ready(kOutputBias);

  status = products_->Multiply("the gradient of output.weight", transposed(batch_.hidden, hidden_),
                               slope, 1, gradient(kOutputWeight));
  if (!status.ok()) return status;
  ready(kOutputWeight);

  status = products_->Multiply("the slope of the hidden layer", slope, output_weight, 0,
                               As<float>(batch_.hidden_slope));
  if (!status.ok()) return status;
  const int64_t count = int64_t{rows_} * hidden_;
  status =
      kernels_.relu_slope.Launch(stream_.get(), ShapeFor(count), As<float>(batch_.hidden_slope),
                                 As<float>(batch_.hidden), count);
  if (status.ok()) status = SumColumns(hidden_slope.data, hidden_, gradient(kHiddenBias));
  if (!status.ok()) return status;
  ready(kHiddenBias);

  status = products_->Multiply("the gradient of hidden.weight", transposed(batch_.input, inputs_),
                               hidden_slope, 1, gradient(kHiddenWeight));
  if (status.ok()) ready(kHiddenWeight);
  return status;
}

absl::Status CudaNetwork::Update(const Weights& weights, float learning_rate) {
  const int64_t count = static_cast<int64_t>(weights.count);
  return kernels_.momentum_update.Launch(stream_.get(), ShapeFor(count), weights.values,
                                         weights.velocity, weights.gradient, count, learning_rate);
}

absl::StatusOr<float*> CudaNetwork::MakeZeros(const char* what, size_t count) {
  if (count == 0) return nullptr;
  absl::StatusOr<DeviceMemory> zeros = gpu_.Allocate(what, count * sizeof(float));
  if (!zeros.ok()) return zeros.status();
  absl::Status status = Fill(what, zeros->get(), count * sizeof(float));
  if (!status.ok()) return status;
  memory_.push_back(*std::move(zeros));
  return As<float>(memory_.back());
}

absl::StatusOr<Tally> CudaNetwork::TakeTally() {
  absl::Status status = gpu_.CopyToHost("the sum of losses", tally_copy_.get(), tally_.get(),
                                        sizeof(DeviceTally), stream_.get());
  if (status.ok()) status = Fill("the sum of losses", tally_.get(), sizeof(DeviceTally));
  if (status.ok()) status = Synchronize("read the sum of losses");
  if (!status.ok()) return status;
  const DeviceTally& copy = *static_cast<const DeviceTally*>(tally_copy_.get());
  return Tally{.loss = copy.loss, .correct = copy.correct};
}

absl::Status CudaNetwork::CopyOut(const float* device, float* host, size_t count) {
  absl::Status status =
      gpu_.CopyToHost("weights", host, device, count * sizeof(float), stream_.get());
  return status.ok() ? Synchronize("copy weights to the host") : status;
}

absl::Status CudaNetwork::CopyIn(const float* host, float* device, size_t count) {
  absl::Status status = CopyToDevice("weights", device, host, count * sizeof(float));
  return status.ok() ? Synchronize("copy weights from the host") : status;
}

absl::Status CudaNetwork::CopyToDevice(const char* what, void* to, const void* from, size_t bytes) {
  return gpu_.CopyToDevice(what, to, from, bytes, stream_.get());
}

absl::Status CudaNetwork::Fill(const char* what, void* to, size_t bytes) {
  return gpu_.Fill(what, to, 0, bytes, stream_.get());
}

absl::Status CudaNetwork::Synchronize(const char* what) {
  return gpu_.Synchronize(what, stream_.get());
}

absl::Status CudaNetwork::SumColumns(const float* matrix, int columns, float* sums) {
  const unsigned blocks = (static_cast<unsigned>(columns) + kColumnWidth - 1) / kColumnWidth;
  return kernels_.add_column_sums.Launch(
      stream_.get(), {.blocks = blocks, .threads_x = kColumnWidth, .threads_y = kColumnLanes},
      matrix, rows_, columns, sums);
}

DeviceMatrix CudaNetwork::Matrix(int parameter, int rows, int columns) const {
  return {.data = parameters_[parameter].values, .rows = rows, .columns = columns};
}

}  // namespace train
