// Kernels: those that the double knows run on the CPU when their stream gets there.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/gpu/emulated_mlp.h"
#include "tests/gpu_double/driver.h"
#include "tests/gpu_double/log.h"
#include "tests/worker_runtime/gpu/emulated_kernels.h"

namespace ddprun::gpu_double {
namespace {

constexpr unsigned kMostThreads = 1024;  // of a block

const testing::EmulatedKernels& Known() {
  static const auto& known = *[] {
    auto* const kernels = new testing::EmulatedKernels(testing::EmulatedSums());
    kernels->merge(testing::EmulatedValues());
    kernels->merge(testing::EmulatedHashes());
    kernels->merge(testing::QuickMlp());
    return kernels;
  }();
  return known;
}

// Whether the double knows all kernels of the text, with their parameters.
bool IsKnown(const std::string& ptx) {
  const std::string entry = ".visible .entry ";
  size_t at = ptx.find(entry);
  if (at == std::string::npos) return false;
  for (; at != std::string::npos; at = ptx.find(entry, at + 1)) {
    const size_t begin = at + entry.size();
    const std::string name = ptx.substr(begin, ptx.find('(', begin) - begin);
    const auto found = Known().find(name);
    if (found == Known().end()) return false;
    if (testing::PtxParameters(ptx, name) != found->second.parameters) return false;
  }
  return true;
}

// The arguments of a launch, which the driver reads before it returns. What is an address of the
// device becomes the double's own, and is kept alive.
struct Arguments {
  std::vector<uint64_t> values;
  std::vector<View> views;
};

CudaResult ReadArguments(Driver& driver, const Function& function, void** parameters,
                         Arguments* arguments) {
  for (size_t i = 0; i < function.kernel->parameters.size(); ++i) {
    const std::string& type = function.kernel->parameters[i];
    uint64_t value = 0;
    std::memcpy(&value, parameters[i], type.ends_with("64") ? 8 : 4);
    if (type == "u64") {
      View view = FindMemory(driver, value, 1);
      if (view.allocation != nullptr && view.allocation->device != function.device) {
        return kCudaErrorInvalidValue;
      }
      if (view.host != nullptr) value = reinterpret_cast<uint64_t>(view.host);
      arguments->views.push_back(std::move(view));
    }
    arguments->values.push_back(value);
  }
  return kCudaSuccess;
}

}  // namespace

CudaResult cuModuleLoadData(CudaModule* module, const void* image) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  std::string ptx = static_cast<const char*>(image);
  if (!IsKnown(ptx)) return kNotSupported;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  *module = ToHandle<CudaModule>(driver.next_id++);
  driver.modules[*module] = std::move(ptx);
  return kCudaSuccess;
}

CudaResult cuModuleUnload(CudaModule module) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  if (driver.modules.erase(module) == 0) return kCudaErrorInvalidHandle;
  std::erase_if(driver.functions,
                [module](const auto& entry) { return entry.second.module == module; });
  return kCudaSuccess;
}

CudaResult cuModuleGetFunction(CudaFunction* function, CudaModule module, const char* name) {
  int device = 0;
  const CudaResult context = CurrentDevice(&device);
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const auto found = driver.modules.find(module);
  if (found == driver.modules.end()) return kCudaErrorInvalidHandle;
  if (testing::PtxParameters(found->second, name).empty()) return kNotFound;
  *function = ToHandle<CudaFunction>(driver.next_id++);
  driver.functions[*function] = {&Known().at(name), name, module, device};
  return kCudaSuccess;
}

CudaResult cuLaunchKernel(CudaFunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                          CudaStream stream_handle, void** parameters, void** extra) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  const uint64_t threads = uint64_t{1} * block_x * block_y * block_z;
  if (extra != nullptr || threads == 0 || threads > kMostThreads || grid_x == 0 || grid_y == 0 ||
      grid_z == 0) {
    return kCudaErrorInvalidValue;
  }
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, stream_handle, &result);
  if (stream == nullptr) return result;
  const auto found = driver.functions.find(handle);
  if (found == driver.functions.end() || found->second.device != stream->device) {
    return kCudaErrorInvalidHandle;
  }
  Arguments arguments;
  result = ReadArguments(driver, found->second, parameters, &arguments);
  if (result != kCudaSuccess) return result;
  Log("stream=%d launch %s", stream->id, found->second.name.c_str());
  return SubmitLocked(*stream, [kernel = found->second.kernel, arguments = std::move(arguments),
                                grid = testing::EmulatedIndex{grid_x, grid_y, grid_z},
                                block = testing::EmulatedIndex{block_x, block_y, block_z}] {
    std::vector<uint64_t> values = arguments.values;
    std::vector<void*> addresses;
    for (uint64_t& value : values) addresses.push_back(&value);
    RunEmulated(*kernel, grid, block, addresses.data());
  });
}

}  // namespace ddprun::gpu_double
