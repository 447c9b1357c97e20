#include "examples/train/gpu/matrix_products.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace train {

namespace {

// What cuBLAS recommends for Hopper and newer; older GPUs want 4 MiB.
constexpr size_t kWorkspaceBytes = 32 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<MatrixProducts>> MatrixProducts::Create(const ddp::Gpu& gpu,
                                                                       const CublasApi& cublas,
                                                                       ddp::Stream stream) {
  auto products = std::unique_ptr<MatrixProducts>(new MatrixProducts(cublas));
  auto workspace = gpu.Allocate("cuBLAS's workspace", kWorkspaceBytes);
  if (!workspace.ok()) return workspace.status();
  products->workspace_ = *std::move(workspace);

  CublasHandle handle = nullptr;
  absl::Status status = CublasStatus(cublas, "cublasCreate", cublas.cublasCreate(&handle));
  if (!status.ok()) return status;
  products->handle_ = handle;
  status = CublasStatus(cublas, "cublasSetStream",
                        cublas.cublasSetStream(handle, static_cast<CublasStream>(stream)));
  if (!status.ok()) return status;
  // After the stream: setting that puts cuBLAS's own workspace back.
  status =
      CublasStatus(cublas, "cublasSetWorkspace",
                   cublas.cublasSetWorkspace(handle, products->workspace_.get(), kWorkspaceBytes));
  if (!status.ok()) return status;
  return products;
}

MatrixProducts::~MatrixProducts() {
  if (handle_ != nullptr) cublas_.cublasDestroy(handle_);
}

absl::Status MatrixProducts::Multiply(const char* what, const DeviceMatrix& a,
                                      const DeviceMatrix& b, float keep, float* result) const {
  const int rows = a.is_transposed ? a.columns : a.rows;
  const int inner = a.is_transposed ? a.rows : a.columns;
  const int columns = b.is_transposed ? b.rows : b.columns;
  if (inner != (b.is_transposed ? b.columns : b.rows) || rows <= 0 || inner <= 0 || columns <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": a matrix of ", rows, " x ", inner, " by one of ",
                     b.is_transposed ? b.columns : b.rows, " x ", columns));
  }
  const auto operation = [](const DeviceMatrix& matrix) {
    return matrix.is_transposed ? kCublasTransposed : kCublasPlain;
  };
  // cuBLAS reads matrices column by column: what it sees is every one's transpose, and
  // transpose(a b) = transpose(b) transpose(a).
  const float one = 1;
  const absl::Status status = CublasStatus(
      cublas_, "cublasSgemm",
      cublas_.cublasSgemm(handle_, operation(b), operation(a), columns, rows, inner, &one, b.data,
                          b.columns, a.data, a.columns, &keep, result, columns));
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace train
