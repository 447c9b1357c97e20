// The double as its own tests use it: opened like the real libraries, one table for both.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_DOUBLE_API_H_
#define DDPRUN_TESTS_GPU_DOUBLE_DOUBLE_API_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu_double/exports.h"

namespace ddprun::gpu_double {

#define DDPRUN_DOUBLE_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
struct DoubleApi {
  DDPRUN_DOUBLE_CUDA_FUNCTIONS(DDPRUN_DOUBLE_MEMBER)
  DDPRUN_DOUBLE_NCCL_FUNCTIONS(DDPRUN_DOUBLE_MEMBER)
  DDPRUN_DOUBLE_OWN_FUNCTIONS(DDPRUN_DOUBLE_MEMBER)
};
#undef DDPRUN_DOUBLE_MEMBER

// Opens lib<name>.so; functions that it lacks are null.
DoubleApi OpenDouble(const std::string& name);
// libgpu_double.so.
const DoubleApi& Api();

// Sets variables of the environment for a while; "" removes. No thread may read it meanwhile, so
// it comes before the first use of the double in a case.
class ScopedEnv {
 public:
  using Env = std::map<std::string, std::string>;
  explicit ScopedEnv(const Env& env);
  ~ScopedEnv();
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  Env before_;
};

// Initialises the driver and makes device's primary context current on this thread.
void UseDevice(int device);

// A stream of the current device, and memory on it, given back at the end.
class TestStream {
 public:
  explicit TestStream(unsigned flags = kCudaStreamNonBlocking);
  ~TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  CudaStream get() const { return stream_; }
  CudaResult Synchronize() const { return Api().cuStreamSynchronize(stream_); }

 private:
  CudaStream stream_ = nullptr;
};

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes);
  // Holds a copy of `content`.
  explicit DeviceBuffer(const std::string& content);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  CudaPointer address() const { return address_; }
  void* pointer() const { return reinterpret_cast<void*>(address_); }
  // Of the buffer, by the legacy stream.
  std::string Read() const;

 private:
  size_t bytes_;
  CudaPointer address_ = 0;
};

// Runs `body(rank)` on a thread per rank, each with its own device, and returns when all are done.
void RunRanks(int world_size, const std::function<void(int rank)>& body);
// Forks a process per rank; returns their exit codes, 128 + n for signal n. REQUIRES: the caller
// has not used the double.
std::vector<int> RunRankProcesses(int world_size, const std::function<int(int rank)>& body);

// A communicator made by all ranks of RunRanks().
class TestComm {
 public:
  TestComm(const NcclUniqueId& id, int world_size, int rank);
  // Aborts what End() has not destroyed.
  ~TestComm();
  TestComm(const TestComm&) = delete;
  TestComm& operator=(const TestComm&) = delete;
  NcclComm get() const { return comm_; }
  // How the init ended.
  NcclResult joined() const { return joined_; }
  // The asynchronous error now.
  NcclResult Error() const;
  // Finalizes and destroys.
  NcclResult End();

 private:
  NcclComm comm_ = nullptr;
  NcclResult joined_;
};

NcclUniqueId NewId();

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_DOUBLE_API_H_
