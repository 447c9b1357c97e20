// Kernels of a .cu on the CPU: a test includes this, then the .cu, and runs what it holds. Only the
// language that our kernels use is here. Blocks run one after the other, and so do the threads of a
// block but where the kernel has a barrier: there each is a real thread, which tsan watches.
#ifndef DDPRUN_TESTS_SUPPORT_CUDA_EMULATION_H_
#define DDPRUN_TESTS_SUPPORT_CUDA_EMULATION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddprun::testing {

struct EmulatedIndex {
  unsigned x = 0, y = 0, z = 0;
};

// A kernel as a driver knows it: by addresses of arguments.
struct EmulatedKernel {
  std::vector<std::string> parameters;  // PTX types: "u64", "u32", "f32", "f64"
  std::function<void(void** arguments)> run;
  bool has_barrier = false;
};

// By name.
using EmulatedKernels = std::map<std::string, EmulatedKernel>;

// REQUIRES: without a barrier the kernel calls no __syncthreads.
void RunEmulated(const EmulatedKernel& kernel, EmulatedIndex grid, EmulatedIndex block,
                 void** arguments);

// The parameters of `.visible .entry <name>(...)` of a PTX text, as in EmulatedKernel; empty when
// it has no such function.
std::vector<std::string> PtxParameters(const std::string& ptx, const std::string& name);

template <typename T>
std::string PtxType() {
  return std::string(std::is_floating_point_v<T> ? "f" : "u").append(std::to_string(8 * sizeof(T)));
}

template <typename... Arguments>
EmulatedKernel Emulate(void (*kernel)(Arguments...), bool has_barrier = false) {
  const auto run = [kernel](void** arguments) {
    const auto call = [&]<size_t... I>(std::index_sequence<I...>) {
      kernel(*static_cast<Arguments*>(arguments[I])...);
    };
    call(std::index_sequence_for<Arguments...>());
  };
  return {.parameters = {PtxType<Arguments>()...}, .run = run, .has_barrier = has_barrier};
}

}  // namespace ddprun::testing

inline thread_local ddprun::testing::EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();

inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return std::atomic_ref(*to).fetch_add(value);
}

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) ushort4 {
  uint16_t x, y, z, w;
};

#define __global__
#define __device__
#define __shared__ static

#endif  // DDPRUN_TESTS_SUPPORT_CUDA_EMULATION_H_
