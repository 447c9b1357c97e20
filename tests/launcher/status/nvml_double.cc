// A double of NVML for tests: two GPUs, of which the second is in trouble. DDPRUN_TEST_NVML says
// what is wrong with the library: "" nothing, "init_fails", "init_hangs", "look_hangs" (at the
// second look), "all_fail", "lost" (the second GPU), "none" (no GPU), "crowded" (many processes).
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "launcher/status/nvml_api.h"

using ddprun::launcher::NvmlDevice;
using ddprun::launcher::NvmlEvent;
using ddprun::launcher::NvmlEventSet;
using ddprun::launcher::NvmlMemory;
using ddprun::launcher::NvmlProcess;
using ddprun::launcher::NvmlUtilisation;

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kSize = 7, kNotLoaded = 9, kTimeout = 10, kLost = 15;
constexpr unsigned long long kGiB = 1ull << 30;

bool Is(const char* trouble) {
  const char* set = std::getenv("DDPRUN_TEST_NVML");
  return set != nullptr && std::strcmp(set, trouble) == 0;
}

[[noreturn]] void Hang() {
  while (true) pause();
}

char gpus[2];
std::atomic<int> looks, told;  // since the initialisation
int IndexOf(NvmlDevice device) { return device == reinterpret_cast<NvmlDevice>(&gpus[0]) ? 0 : 1; }

int Answer(NvmlDevice device) {
  if (Is("all_fail")) return kNotSupported;
  return Is("lost") && IndexOf(device) == 1 ? kLost : kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  looks = told = 0;
  if (Is("init_hangs")) Hang();
  return Is("init_fails") ? kNotLoaded : kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = Is("none") ? 0 : 2;
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* device) {
  *device = reinterpret_cast<NvmlDevice>(&gpus[index]);
  return kSuccess;
}

int nvmlDeviceGetName(NvmlDevice, char* name, unsigned length) {
  std::strncpy(name, "NVIDIA H100\x1b[2J", length);
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(NvmlDevice device, NvmlUtilisation* utilisation) {
  if (Is("look_hangs") && ++looks > 2) Hang();
  *utilisation = {IndexOf(device) == 0 ? 97u : 40u, 12};
  return Answer(device);
}

int nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  *memory = {80 * kGiB, 20 * kGiB, 60 * kGiB};
  return Answer(device);
}

int nvmlDeviceGetTemperature(NvmlDevice device, int sensor, unsigned* celsius) {
  *celsius = IndexOf(device) == 0 ? 55 : 91;
  return sensor == 0 ? Answer(device) : kNotSupported;
}

#ifdef OLD_NVML
int nvmlDeviceGetCurrentClocksThrottleReasons(NvmlDevice device, unsigned long long* reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(NvmlDevice device, unsigned long long* reasons) {
#endif
  *reasons = IndexOf(device) == 0 ? 0x1 | 0x4 : 0x8 | 0x40;
  return Answer(device);
}

#ifdef OLD_NVML
int nvmlDeviceGetComputeRunningProcesses_v2(NvmlDevice device, unsigned* count,
                                            NvmlProcess* processes) {
#else
int nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned* count,
                                            NvmlProcess* processes) {
#endif
  const unsigned room = *count;
  *count = Is("crowded") ? 100 : 2;
  if (room < *count) return kSize;
  const unsigned first = IndexOf(device) == 0 ? 1000 : 2000;
  for (unsigned i = 0; i < *count; ++i) processes[i] = {first + i, kGiB, ~0u, ~0u};
  processes[1].used_memory = ~0ull;
  return Answer(device);
}

#ifndef OLD_NVML
int nvmlEventSetCreate(NvmlEventSet* set) {
  static char events;
  *set = reinterpret_cast<NvmlEventSet>(&events);
  return kSuccess;
}

int nvmlDeviceRegisterEvents(NvmlDevice, unsigned long long types, NvmlEventSet) {
  return types == 8 ? kSuccess : kNotSupported;
}

int nvmlEventSetWait_v2(NvmlEventSet, NvmlEvent* event, unsigned timeout_ms) {
  constexpr unsigned long long kXids[] = {45, 79, 79, 94};
  if (timeout_ms != 0) Hang();
  const int number = told++;
  if (number >= 4) return kTimeout;
  *event = {reinterpret_cast<NvmlDevice>(&gpus[1]), 8, kXids[number], ~0u, ~0u};
  return kSuccess;
}
#endif

}  // extern "C"
