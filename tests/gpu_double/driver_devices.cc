// Which devices there are, and the thread's context.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/gpu_double/driver.h"
#include "tests/gpu_double/log.h"
#include "tests/gpu_double/settings.h"

namespace ddprun::gpu_double {
namespace {

thread_local CudaContext current_context = nullptr;
std::atomic<bool> is_silent = false;

// Slices that each GPU is cut into; 0: its devices are whole GPUs.
int SlicesPerGpu() { return static_cast<int>(NumberSetting("DDPRUN_DOUBLE_MIG", 0)); }
bool AreMig() { return SlicesPerGpu() != 0; }

// The number of the GPU that a physical device is, or is a slice of.
int GpuOf(int physical) { return AreMig() ? physical / SlicesPerGpu() : physical; }

std::string BusIdOf(int physical) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", 0x10 + GpuOf(physical));
  return text;
}

CudaContext ContextOf(int device) { return ToHandle<CudaContext>(device); }

// The physical index that one entry of CUDA_VISIBLE_DEVICES names, -1 for none.
int FindDevice(const std::string& entry, int count) {
  if (entry.rfind("GPU-", 0) == 0 || entry.rfind("MIG-", 0) == 0) {
    int found = -1;
    for (int index = 0; index < count; ++index) {
      if (UuidText(UuidOf(index)).rfind(entry, 0) != 0) continue;
      if (found >= 0) return -1;  // An ambiguous prefix names nothing.
      found = index;
    }
    return found;
  }
  char* end = nullptr;
  const long index = std::strtol(entry.c_str(), &end, 10);
  const bool is_number = end != entry.c_str() && *end == '\0';
  return is_number && index >= 0 && index < count ? static_cast<int>(index) : -1;
}

// As CUDA reads it: the first entry that names no device ends the list; one device twice is an
// error that leaves none.
std::vector<int> VisibleDevices() {
  const int count = static_cast<int>(NumberSetting("DDPRUN_DOUBLE_GPUS", 8));
  std::vector<int> visible;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int index = 0; index < count; ++index) visible.push_back(index);
    return visible;
  }
  std::stringstream entries(list);
  std::string entry;
  while (std::getline(entries, entry, ',')) {
    const int index = FindDevice(entry, count);
    if (index < 0) break;
    if (std::find(visible.begin(), visible.end(), index) != visible.end()) return {};
    visible.push_back(index);
  }
  return visible;
}

CudaResult CheckDevice(Driver& driver, CudaDevice device) {
  if (driver.initialized_by != getpid()) return kNotInitialized;
  const bool exists = device >= 0 && static_cast<size_t>(device) < driver.visible.size();
  return exists ? kCudaSuccess : kCudaErrorInvalidDevice;
}

// CheckDevice() for calls that change nothing.
CudaResult CheckDevice(CudaDevice device) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  return CheckDevice(driver, device);
}

}  // namespace

Driver& Driver::Get() {
  static Driver& driver = *new Driver();
  return driver;
}

CudaUuid UuidOf(int physical) {
  CudaUuid uuid;
  // Machines that a test plays have other devices.
  const std::string host = TextSetting("DDPRUN_DOUBLE_HOST", "");
  for (int i = 0; i < 16; ++i) {
    uuid.bytes[i] = static_cast<char>(0x11 * i + physical);
    if (i > 0 && !host.empty()) uuid.bytes[i] ^= host[static_cast<size_t>(i) % host.size()];
  }
  uuid.bytes[0] = static_cast<char>(0xa0 + physical);
  return uuid;
}

std::string UuidText(const CudaUuid& uuid) {
  std::string text = AreMig() ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

std::string DeviceBusId(int device) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  return BusIdOf(driver.visible[static_cast<size_t>(device)]);
}

void ddprun_double_fall_silent() { is_silent = true; }

void ddprun_double_refuse_threads() {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    driver.known_threads.insert(entry.path().filename());
  }
}

CudaResult CurrentDevice(int* device) {
  if (is_silent) Mark().Wait();
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  return CurrentDevice(driver, device);
}

CudaResult CurrentDevice(const Driver& driver, int* device) {
  if (driver.initialized_by != getpid()) return kNotInitialized;
  if (current_context == nullptr) return kCudaErrorInvalidContext;
  for (size_t i = 0; i < driver.retained.size(); ++i) {
    if (current_context != ContextOf(static_cast<int>(i))) continue;
    *device = static_cast<int>(i);
    return driver.retained[i] > 0 ? kCudaSuccess : kContextIsDestroyed;
  }
  return kCudaErrorInvalidContext;
}

int DeviceOf(CudaContext context) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  for (size_t i = 0; i < driver.retained.size(); ++i) {
    const int device = static_cast<int>(i);
    if (context == ContextOf(device) && driver.retained[i] > 0) return device;
  }
  return -1;
}

CudaResult CheckContext() {
  int unused = 0;
  return CurrentDevice(&unused);
}

CudaResult cuInit(unsigned flags) {
  if (flags != 0) return kCudaErrorInvalidValue;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  // A child of a process that used CUDA cannot.
  if (driver.initialized_by > 0) {
    return driver.initialized_by == getpid() ? kCudaSuccess : kNotInitialized;
  }
  const Faults faults = Faults::Of(-1);
  if (faults.cuinit.has_value()) return static_cast<CudaResult>(*faults.cuinit);
  driver.visible = VisibleDevices();
  if (driver.visible.empty()) return kCudaErrorNoDevice;
  driver.retained.assign(driver.visible.size(), 0);
  driver.used_bytes.assign(driver.visible.size(), 0);
  driver.initialized_by = getpid();
  Log("init devices=%zu", driver.visible.size());
  return kCudaSuccess;
}

CudaResult cuDriverGetVersion(int* version) {
  if (version == nullptr) return kCudaErrorInvalidValue;
  *version = static_cast<int>(NumberSetting("DDPRUN_DOUBLE_DRIVER", 13000));
  return kCudaSuccess;
}

CudaResult cuDeviceGetCount(int* count) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  if (driver.initialized_by != getpid()) return kNotInitialized;
  *count = static_cast<int>(driver.visible.size());
  return kCudaSuccess;
}

CudaResult cuDeviceGet(CudaDevice* device, int ordinal) {
  const CudaResult result = CheckDevice(ordinal);
  if (result == kCudaSuccess) *device = ordinal;
  return result;
}

CudaResult cuDeviceGetName(char* name, int size, CudaDevice device) {
  const CudaResult result = CheckDevice(device);
  if (result != kCudaSuccess) return result;
  std::snprintf(name, static_cast<size_t>(size), "ddprun test double%s",
                AreMig() ? " MIG 1g.10gb" : "");
  return kCudaSuccess;
}

CudaResult cuDeviceGetUuid(CudaUuid* uuid, CudaDevice device) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult result = CheckDevice(driver, device);
  if (result != kCudaSuccess) return result;
  *uuid = UuidOf(GpuOf(driver.visible[static_cast<size_t>(device)]));
  if (AreMig()) uuid->bytes[15] ^= 1;  // that of the whole GPU, which no slice has
  return kCudaSuccess;
}

CudaResult cuDeviceGetUuid_v2(CudaUuid* uuid, CudaDevice device) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult result = CheckDevice(driver, device);
  if (result == kCudaSuccess) *uuid = UuidOf(driver.visible[static_cast<size_t>(device)]);
  return result;
}

CudaResult cuDeviceGetPCIBusId(char* bus_id, int size, CudaDevice device) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult result = CheckDevice(driver, device);
  if (result != kCudaSuccess) return result;
  const std::string text = BusIdOf(driver.visible[static_cast<size_t>(device)]);
  std::snprintf(bus_id, static_cast<size_t>(size), "%s", text.c_str());
  return kCudaSuccess;
}

CudaResult cuDeviceGetAttribute(int* value, int attribute, CudaDevice device) {
  const CudaResult result = CheckDevice(device);
  if (result != kCudaSuccess) return result;
  *value = attribute == kCudaDeviceAttributeMultiprocessorCount      ? 132
           : attribute == kCudaDeviceAttributeComputeCapabilityMajor ? 9
                                                                     : 0;
  return kCudaSuccess;
}

CudaResult cuDeviceTotalMem_v2(size_t* bytes, CudaDevice device) {
  const CudaResult result = CheckDevice(device);
  if (result != kCudaSuccess) return result;
  *bytes = static_cast<size_t>(NumberSetting("DDPRUN_DOUBLE_MEMORY", 80L << 30));
  return kCudaSuccess;
}

CudaResult cuDevicePrimaryCtxRetain(CudaContext* context, CudaDevice device) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult result = CheckDevice(driver, device);
  if (result != kCudaSuccess) return result;
  driver.retained[static_cast<size_t>(device)]++;
  *context = ContextOf(device);
  return kCudaSuccess;
}

CudaResult cuDevicePrimaryCtxRelease_v2(CudaDevice device) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const CudaResult result = CheckDevice(driver, device);
  if (result != kCudaSuccess) return result;
  int& retained = driver.retained[static_cast<size_t>(device)];
  if (retained == 0) return kCudaErrorInvalidContext;
  retained--;
  return kCudaSuccess;
}

CudaResult cuCtxSetCurrent(CudaContext context) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  if (driver.initialized_by != getpid()) return kNotInitialized;
  const std::set<std::string>& known = driver.known_threads;
  if (!known.empty() && !known.contains(std::to_string(gettid()))) return kContextIsDestroyed;
  bool exists = context == nullptr;
  for (size_t i = 0; i < driver.retained.size(); ++i) {
    exists |= context == ContextOf(static_cast<int>(i)) && driver.retained[i] > 0;
  }
  if (!exists) return kCudaErrorInvalidContext;
  current_context = context;
  return kCudaSuccess;
}

CudaResult cuCtxGetCurrent(CudaContext* context) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  if (driver.initialized_by != getpid()) return kNotInitialized;
  *context = current_context;
  return kCudaSuccess;
}

CudaResult cuDeviceCanAccessPeer(int* can_access, CudaDevice device, CudaDevice peer) {
  for (const CudaDevice each : {device, peer}) {
    if (const CudaResult result = CheckDevice(each); result != kCudaSuccess) return result;
  }
  *can_access = device != peer ? 1 : 0;
  return kCudaSuccess;
}

CudaResult cuCtxEnablePeerAccess(CudaContext peer, unsigned flags) {
  int device = 0;
  const CudaResult context = CurrentDevice(&device);
  if (context != kCudaSuccess) return context;
  if (flags != 0) return kCudaErrorInvalidValue;
  const int other = DeviceOf(peer);
  if (other < 0 || other == device) return kCudaErrorInvalidContext;
  Log("device=%d reaches device=%d", device, other);
  return kCudaSuccess;
}

}  // namespace ddprun::gpu_double
