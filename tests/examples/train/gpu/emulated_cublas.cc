#include "tests/examples/train/gpu/emulated_cublas.h"

#include <algorithm>

namespace ddprun::testing {

using namespace train;  // NOLINT: a table of its functions

namespace {

struct Handle {
  bool has_stream = false;
  bool has_workspace = false;
};

int live_handles = 0;

Handle* From(CublasHandle handle) { return reinterpret_cast<Handle*>(handle); }

// A matrix as cuBLAS sees it: column by column.
struct Columns {
  const float* data;
  int leading;
  bool is_transposed;

  float at(int row, int column) const {
    return is_transposed ? data[row * leading + column] : data[column * leading + row];
  }
};

CublasResult Sgemm(CublasHandle handle, CublasOperation transpose_a, CublasOperation transpose_b,
                   int m, int n, int k, const float* alpha, const float* a, int lda, const float* b,
                   int ldb, const float* beta, float* c, int ldc) {
  const Columns left{a, lda, transpose_a == kCublasTransposed};
  const Columns right{b, ldb, transpose_b == kCublasTransposed};
  const bool is_valid = From(handle)->has_stream && From(handle)->has_workspace && m > 0 && n > 0 &&
                        k > 0 && lda >= std::max(1, left.is_transposed ? k : m) &&
                        ldb >= std::max(1, right.is_transposed ? n : k) && ldc >= m;
  if (!is_valid) return kCublasInvalidValue;
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      double sum = 0;
      for (int i = 0; i < k; ++i) sum += static_cast<double>(left.at(row, i)) * right.at(i, column);
      float& result = c[column * ldc + row];
      result = *alpha * static_cast<float>(sum) + (*beta == 0 ? 0 : *beta * result);
    }
  }
  return kCublasSuccess;
}

}  // namespace

CublasApi EmulatedCublas() {
  CublasApi api{};
  api.cublasGetStatusName = [](CublasResult) { return "CUBLAS_STATUS"; };
  api.cublasGetStatusString = [](CublasResult) { return "as the double says"; };
  api.cublasCreate = [](CublasHandle* handle) {
    *handle = reinterpret_cast<CublasHandle>(new Handle);
    ++live_handles;
    return kCublasSuccess;
  };
  api.cublasDestroy = [](CublasHandle handle) {
    delete From(handle);
    --live_handles;
    return kCublasSuccess;
  };
  api.cublasSetStream = [](CublasHandle handle, CublasStream stream) {
    *From(handle) = {.has_stream = stream != nullptr};  // and the library's own workspace again
    return kCublasSuccess;
  };
  api.cublasSetWorkspace = [](CublasHandle handle, void* workspace, size_t bytes) {
    From(handle)->has_workspace = workspace != nullptr && bytes > 0;
    return kCublasSuccess;
  };
  api.cublasSgemm = Sgemm;
  return api;
}

int LiveCublasHandles() { return live_handles; }

}  // namespace ddprun::testing
