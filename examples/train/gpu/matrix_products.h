// Matrix products on the GPU, by cuBLAS.
#ifndef DDPRUN_EXAMPLES_TRAIN_GPU_MATRIX_PRODUCTS_H_
#define DDPRUN_EXAMPLES_TRAIN_GPU_MATRIX_PRODUCTS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/gpu.h"
#include "examples/train/gpu/cublas.h"

namespace train {

// A matrix in device memory, row by row.
struct DeviceMatrix {
  const float* data = nullptr;
  int rows = 0;
  int columns = 0;
  bool is_transposed = false;  // it stands for its transpose
};

// One cuBLAS handle on one stream, in float32 throughout (no TF32), with memory of its own: cuBLAS
// then allocates nothing, so that a step can be captured into a graph, and equal calls give equal
// bits. Used by one thread, with the stream's context current.
class MatrixProducts {
 public:
  // Borrows the table and the stream.
  static absl::StatusOr<std::unique_ptr<MatrixProducts>> Create(const ddp::Gpu& gpu,
                                                                const CublasApi& cublas,
                                                                ddp::Stream stream);
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  // Queues result = a b + keep * result; `keep` of 0 does not read the result. `what` is for
  // errors. InvalidArgument where the sizes do not fit or one is 0. REQUIRES: the result, with as
  // many rows as a stands for and as many columns as b stands for, overlaps neither.
  absl::Status Multiply(const char* what, const DeviceMatrix& a, const DeviceMatrix& b, float keep,
                        float* result) const;

 private:
  explicit MatrixProducts(const CublasApi& cublas) : cublas_(cublas) {}

  const CublasApi& cublas_;
  ddp::DeviceMemory workspace_;
  CublasHandle handle_ = nullptr;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_GPU_MATRIX_PRODUCTS_H_
