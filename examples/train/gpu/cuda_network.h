// The network on a GPU: kernels of layers.cu, matrix products by cuBLAS.
#ifndef DDPRUN_EXAMPLES_TRAIN_GPU_CUDA_NETWORK_H_
#define DDPRUN_EXAMPLES_TRAIN_GPU_CUDA_NETWORK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ddp/gpu.h"
#include "examples/train/gpu/cublas.h"
#include "examples/train/gpu/layers.h"
#include "examples/train/gpu/matrix_products.h"
#include "examples/train/network.h"

namespace train {

// Everything is queued on one stream; the host waits only in TakeTally, when a set of images or a
// larger batch is met for the first time, and when it is kStages batches ahead. Starts from the
// same weights as CpuNetwork. The device's primary context is current on the calling thread from
// Create to the end.
class CudaNetwork : public Network {
 public:
  // Borrows the table.
  static absl::StatusOr<std::unique_ptr<CudaNetwork>> Create(const ddp::Gpu& gpu,
                                                             const CublasApi& cublas, int inputs,
                                                             int hidden, uint64_t seed);
  // Waits for what is queued, 5 s at most; what the device still uses then is not freed.
  ~CudaNetwork() override;

  // Addresses of device memory.
  std::vector<Parameter>& parameters() override { return parameters_; }
  // The set is copied to the device when it is first seen and not looked at again.
  absl::Status Forward(const ImageSet& images, std::span<const int64_t> indices) override;
  // Forward in two parts. A graph of a step begins with the second: what it captures computes on
  // whatever was loaded last, as long as the set and the number of images stay the same.
  absl::Status Load(const ImageSet& images, std::span<const int64_t> indices);
  absl::Status ForwardLoaded();
  absl::Status Backward(float scale, const std::function<void(int)>& ready) override;
  absl::Status Update(const Weights& weights, float learning_rate) override;
  absl::StatusOr<float*> MakeZeros(const char* what, size_t count) override;
  absl::StatusOr<Tally> TakeTally() override;
  // Where gradients are computed: what `ready` announces is complete when this stream gets there.
  ddp::Stream stream() const override { return stream_.get(); }
  absl::Status CopyOut(const float* device, float* host, size_t count) override;
  absl::Status CopyIn(const float* host, float* device, size_t count) override;

 private:
  // How many batches' indices may be on their way to the device.
  static constexpr size_t kStages = 8;

  struct DeviceImages {
    ddp::DeviceMemory pixels, labels;
  };
  // The indices of one batch in pinned memory, not to be overwritten before `copied`.
  struct Stage {
    ddp::PinnedMemory indices;
    ddp::OwnedEvent copied;
  };
  // What forward leaves for backward, for up to `capacity` images.
  struct Batch {
    int64_t capacity = 0;
    ddp::DeviceMemory indices, labels;
    ddp::DeviceMemory input, hidden, probabilities, slope, hidden_slope;
  };
  struct Kernels {
    ddp::Kernel<GatherImages> gather_images;
    ddp::Kernel<AddBiasRelu> add_bias_relu;
    ddp::Kernel<SoftmaxLoss> softmax_loss;
    ddp::Kernel<ScoreSlope> score_slope;
    ddp::Kernel<ReluSlope> relu_slope;
    ddp::Kernel<AddColumnSums> add_column_sums;
    ddp::Kernel<MomentumUpdate> momentum_update;
  };

  CudaNetwork(const ddp::Gpu& gpu, int inputs, int hidden)
      : gpu_(gpu), inputs_(inputs), hidden_(hidden) {}

  bool IsDrained() const;
  absl::Status LoadKernels();
  absl::Status MakeParameters(uint64_t seed);
  absl::Status MakeTally();
  absl::Status Grow(int64_t rows);
  absl::StatusOr<const DeviceImages*> Upload(const ImageSet& images);
  absl::Status StageIndices(std::span<const int64_t> indices);
  absl::Status CopyToDevice(const char* what, void* to, const void* from, size_t bytes);
  absl::Status Fill(const char* what, void* to, size_t bytes);
  absl::Status Synchronize(const char* what);
  absl::Status SumColumns(const float* matrix, int columns, float* sums);
  DeviceMatrix Matrix(int parameter, int rows, int columns) const;

  const ddp::Gpu gpu_;
  const int inputs_;
  const int hidden_;

  // Freed in the reverse order, the stream last.
  ddp::OwnedStream stream_;
  ddp::OwnedModule module_;
  Kernels kernels_;
  std::unique_ptr<MatrixProducts> products_;
  std::vector<ddp::DeviceMemory> memory_;  // of the parameters, and from MakeZeros()
  std::vector<Parameter> parameters_;
  ddp::DeviceMemory tally_;
  ddp::PinnedMemory tally_copy_;
  std::map<const ImageSet*, DeviceImages> images_;
  std::array<Stage, kStages> stages_;
  size_t next_stage_ = 0;
  Batch batch_;
  // What was loaded last.
  const DeviceImages* set_ = nullptr;
  int rows_ = 0;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_GPU_CUDA_NETWORK_H_
