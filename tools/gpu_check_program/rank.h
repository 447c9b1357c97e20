// What the rows' programs share: a rank on its GPU, and how it tells its results.
#ifndef DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RANK_H_
#define DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RANK_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddp/process_group.h"
#include "worker_runtime/gpu/cuda_api.h"

namespace ddprun::gpu_check {

// Ends the program with EXIT_FAILURE and one line on stderr unless `status` is ok.
void MustBeOk(const std::string& what, const absl::Status& status);

// Results travel as lines of stdout, which the parent reads (child.h).
void PrintValue(const std::string& name, double value);
void PrintText(const std::string& name, const std::string& text);

// A group on GPUs, also of one rank without a launcher; 120 s are enough for every operation here.
std::unique_ptr<ddp::ProcessGroup> JoinGroup(ddp::Backend backend);

// The driver, called so that an error ends the program. The device becomes this thread's.
class Gpu {
 public:
  explicit Gpu(int ordinal);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const ddp::internal::CudaApi& api() const { return api_; }
  ddp::internal::CudaStream stream() const { return stream_; }
  void* Allocate(size_t bytes);  // freed with the process
  void Copy(void* to, const void* from, size_t bytes);
  void Write(void* to, const void* from, size_t bytes);
  void Read(void* to, const void* from, size_t bytes);
  // Until all that is on the stream is done.
  void Synchronize();
  void Check(const char* call, ddp::internal::CudaResult result);

 private:
  const ddp::internal::CudaApi& api_;
  ddp::internal::CudaStream stream_ = nullptr;
};

double Median(std::vector<double> values);

}  // namespace ddprun::gpu_check

#endif  // DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RANK_H_
