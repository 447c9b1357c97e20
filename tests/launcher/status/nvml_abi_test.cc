// What we declared of NVML, against NVIDIA's own header.
#include <doctest/doctest.h>

#include <cstddef>

#include "launcher/status/gpu_words.h"
#include "launcher/status/nvml_api.h"
#include "tests/support/skip.h"
#include "tests/worker_runtime/gpu/abi_alike.h"

#if __has_include(<nvml.h>)
#include <nvml.h>
#define HAS_NVML 1
#endif

namespace ddprun::launcher {
namespace {

#if HAS_NVML
// What newer headers would have replaced is what all drivers have.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define SAME_PLACE(ours, our_member, theirs, their_member)             \
  CHECK(offsetof(ours, our_member) == offsetof(theirs, their_member)); \
  CHECK(sizeof(ours::our_member) == sizeof(theirs::their_member))

TEST_CASE("nvml abi: our functions are the header's") {
  using ddp::internal::CallAlike;
  CHECK(CallAlike<decltype(NvmlApi::init), decltype(&nvmlInit_v2)>::value);
  CHECK(CallAlike<decltype(NvmlApi::count), decltype(&nvmlDeviceGetCount_v2)>::value);
  CHECK(CallAlike<decltype(NvmlApi::find), decltype(&nvmlDeviceGetHandleByIndex_v2)>::value);
  CHECK(CallAlike<decltype(NvmlApi::name), decltype(&nvmlDeviceGetName)>::value);
  CHECK(CallAlike<decltype(NvmlApi::utilisation), decltype(&nvmlDeviceGetUtilizationRates)>::value);
  CHECK(CallAlike<decltype(NvmlApi::memory), decltype(&nvmlDeviceGetMemoryInfo)>::value);
  CHECK(CallAlike<decltype(NvmlApi::temperature), decltype(&nvmlDeviceGetTemperature)>::value);
  CHECK(CallAlike<decltype(NvmlApi::clock_reasons),
                  decltype(&nvmlDeviceGetCurrentClocksThrottleReasons)>::value);
  CHECK(CallAlike<decltype(NvmlApi::processes),
                  decltype(&nvmlDeviceGetComputeRunningProcesses_v3)>::value);
  CHECK(CallAlike<decltype(NvmlApi::index), decltype(&nvmlDeviceGetIndex)>::value);
  CHECK(CallAlike<decltype(NvmlApi::make_events), decltype(&nvmlEventSetCreate)>::value);
  CHECK(CallAlike<decltype(NvmlApi::register_events), decltype(&nvmlDeviceRegisterEvents)>::value);
  CHECK(CallAlike<decltype(NvmlApi::wait), decltype(&nvmlEventSetWait_v2)>::value);
}

TEST_CASE("nvml abi: our structs are the header's") {
  SAME_PLACE(NvmlUtilisation, gpu, nvmlUtilization_t, gpu);
  SAME_PLACE(NvmlMemory, total, nvmlMemory_t, total);
  SAME_PLACE(NvmlMemory, free, nvmlMemory_t, free);
  SAME_PLACE(NvmlMemory, used, nvmlMemory_t, used);
  SAME_PLACE(NvmlProcess, pid, nvmlProcessInfo_t, pid);
  SAME_PLACE(NvmlProcess, used_memory, nvmlProcessInfo_t, usedGpuMemory);
  SAME_PLACE(NvmlEvent, device, nvmlEventData_t, device);
  SAME_PLACE(NvmlEvent, type, nvmlEventData_t, eventType);
  SAME_PLACE(NvmlEvent, data, nvmlEventData_t, eventData);
}

TEST_CASE("nvml abi: our numbers are the header's") {
  CHECK(kNvmlSuccess == NVML_SUCCESS);
  CHECK(kNvmlInsufficientSize == NVML_ERROR_INSUFFICIENT_SIZE);
  CHECK(kNvmlGpuIsLost == NVML_ERROR_GPU_IS_LOST);
  CHECK(kNvmlXidEvent == nvmlEventTypeXidCriticalError);
  CHECK(kNvmlNotAvailable == static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE));
  CHECK(kNvmlGpuTemperature == NVML_TEMPERATURE_GPU);
  CHECK(kSoftwarePowerCap == nvmlClocksThrottleReasonSwPowerCap);
  CHECK(kHardwareSlowdown == nvmlClocksThrottleReasonHwSlowdown);
  CHECK(kSyncBoost == nvmlClocksThrottleReasonSyncBoost);
  CHECK(kSoftwareThermal == nvmlClocksThrottleReasonSwThermalSlowdown);
  CHECK(kHardwareThermal == nvmlClocksThrottleReasonHwThermalSlowdown);
  CHECK(kHardwarePowerBrake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
}
#else
TEST_CASE("nvml abi: our functions, structs and numbers are the header's") {
  return testing::SkipTest("no nvml.h is here (it comes with a CUDA toolkit)");
}
#endif

}  // namespace
}  // namespace ddprun::launcher
