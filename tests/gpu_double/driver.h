// The double's driver as its parts and the double of NCCL see it. One mutex guards all state here;
// streams run their operations outside it. Nothing is destroyed at the end of the process: threads
// may still run then.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_DRIVER_H_
#define DDPRUN_TESTS_GPU_DOUBLE_DRIVER_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu_double/exports.h"
#include "tests/gpu_double/queue.h"
#include "tests/support/cuda_emulation.h"

namespace ddprun::gpu_double {

// CUresult values that only the double needs by name.
inline constexpr CudaResult kNotInitialized = 3;
inline constexpr CudaResult kNotFound = 500;
inline constexpr CudaResult kContextIsDestroyed = 709;
inline constexpr CudaResult kNotSupported = 801;
inline constexpr CudaResult kCaptureInvalidated = 901;
inline constexpr CudaResult kCaptureMerge = 902;
inline constexpr CudaResult kCaptureUnmatched = 903;
inline constexpr CudaResult kCaptureUnjoined = 904;
inline constexpr CudaResult kCaptureIsolation = 905;
inline constexpr CudaResult kCaptureImplicit = 906;
inline constexpr CudaResult kCapturedEvent = 907;
inline constexpr CudaResult kCaptureWrongThread = 908;

struct Event;

// What one capture recorded, in the order of the calls. A lane is one stream's part.
struct Graph {
  struct Node {
    enum class Kind { kRun, kRecord, kRecordExternal, kWait };
    Kind kind;
    size_t lane;
    Queue::Op op;                  // kRun
    size_t recorded = 0;           // kWait: the index of the kRecord
    std::shared_ptr<Event> event;  // kRecordExternal
  };
  std::vector<Node> nodes;
  size_t lanes = 0;
};

struct Capture {
  int id;
  CudaStream origin;
  int mode;
  bool is_blocking;  // its origin synchronises with the legacy stream
  std::thread::id thread;
  bool is_invalid = false;
  bool is_over = false;
  Graph graph;
};

struct Event {
  int id;
  int device;
  bool has_timing;
  std::shared_ptr<Mark> mark;        // of the newest record; null before the first
  std::shared_ptr<Capture> capture;  // when the newest record was captured: its node there
  size_t node = 0;
};

struct Stream {
  int id;
  int device;
  bool is_blocking;
  std::unique_ptr<Queue> queue;
  std::shared_ptr<Capture> capture;  // while it captures
  size_t lane = 0;
};

// Memory of a device. The address that the program gets faults when the host touches it, as a
// device's does; the double goes through a second mapping. Freed with the last reference.
struct Allocation {
  Allocation(int device, size_t bytes);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  bool is_mapped() const { return host != nullptr; }

  int device;
  size_t bytes;
  size_t mapped_bytes;
  CudaPointer address = 0;
  char* host = nullptr;
};

// A range that the device can reach, kept alive while someone holds it.
struct View {
  char* host = nullptr;                    // null: no such memory
  std::shared_ptr<Allocation> allocation;  // null: pinned host memory
};

// A kernel of a module, which belongs to a device.
struct Function {
  const testing::EmulatedKernel* kernel;
  std::string name;
  CudaModule module;
  int device;
};

struct Driver {
  std::mutex mutex;
  int initialized_by = 0;                         // a pid
  std::vector<int> visible;                       // physical indices, by ordinal
  std::vector<int> retained;                      // by ordinal
  std::map<int, std::shared_ptr<Stream>> legacy;  // the null streams, by ordinal
  std::map<CudaStream, std::shared_ptr<Stream>> streams;
  std::map<CudaEvent, std::shared_ptr<Event>> events;
  std::map<CudaGraph, std::shared_ptr<Graph>> graphs;
  struct Executable {
    std::shared_ptr<Graph> graph;
    std::vector<std::shared_ptr<Queue>> lanes;
  };
  std::map<CudaGraphExec, std::shared_ptr<Executable>> executables;
  std::vector<std::shared_ptr<Capture>> captures;             // those that run
  std::map<CudaPointer, std::shared_ptr<Allocation>> memory;  // by address
  std::map<char*, size_t> pinned;                             // host memory, by address
  std::vector<size_t> used_bytes;                             // of memory, by ordinal
  std::map<int, std::shared_ptr<Mark>> holds;
  std::map<CudaModule, std::string> modules;  // their PTX
  std::map<CudaFunction, Function> functions;
  std::set<std::string> known_threads;  // empty: all may use it
  int next_id = 1;

  static Driver& Get();
};

// The calling thread's device, or an error as the result.
CudaResult CurrentDevice(int* device);
// The device whose primary context this is; -1: it is none.
int DeviceOf(CudaContext context);
// What all calls that use the current context check first.
CudaResult CheckContext();
// What cuMemFree does. Unless it `waits` for the device, memory that something still uses ends the
// process.
CudaResult FreeMemory(CudaPointer pointer, bool waits);
// "GPU-<hex>" or "MIG-<hex>", and bytes of a physical device.
CudaUuid UuidOf(int physical);
std::string UuidText(const CudaUuid& uuid);
// The PCI bus of a device by ordinal, which slices of one GPU share. REQUIRES: it exists.
std::string DeviceBusId(int device);

// Handles are numbers that are never given twice, so that a stale one is always found.
template <typename Handle>
Handle ToHandle(int id) {
  return reinterpret_cast<Handle>(0x10000 + static_cast<uintptr_t>(id) * 16);
}

// Below: REQUIRES the driver's mutex.

CudaResult CurrentDevice(const Driver& driver, int* device);
// The stream, or null with the error in `result`. A null handle is the legacy stream.
std::shared_ptr<Stream> FindStream(Driver& driver, CudaStream handle, CudaResult* result);
// Lets what is pushed next wait as CUDA orders the legacy stream and those that are blocking: the
// former waits for the latter and the other way round; non-blocking streams are exempt.
void OrderByLegacyStream(Driver& driver, const Stream& stream);
// Adds `op` to the stream's queue or capture.
CudaResult SubmitLocked(Stream& stream, Queue::Op op);
// An error when the thread may not make a call that a capture forbids; the capture is lost then.
CudaResult CheckCaptureAllows(Driver& driver);
// Marks that are reached when all streams of the device have run what they hold.
std::vector<std::shared_ptr<Mark>> MarkAllStreams(Driver& driver, int device);
// The memory [address, address + bytes), which must lie in one allocation.
View FindMemory(Driver& driver, CudaPointer address, size_t bytes);

// Above in one call each, for those without the mutex.

CudaResult Submit(CudaStream stream, Queue::Op op);
View FindMemory(CudaPointer address, size_t bytes);
// Whether the stream exists on `device`, in `id`, and whether it captures.
CudaResult InspectStream(CudaStream stream, int device, int* id, bool* is_capturing);

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_DRIVER_H_
