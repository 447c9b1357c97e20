// Streams, events and memory of the double.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/gpu_double/double_api.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"

namespace ddprun::gpu_double {
namespace {

constexpr unsigned kBlocking = 0;

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = kCudaEventDefault) { Api().cuEventCreate(&event_, flags); }
  ~TestEvent() { Api().cuEventDestroy_v2(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  CudaEvent get() const { return event_; }
  CudaResult Query() const { return Api().cuEventQuery(event_); }

 private:
  CudaEvent event_ = nullptr;
};

int Hold(const TestStream& stream) {
  int hold = 0;
  CHECK(Api().ddprun_double_hold(stream.get(), &hold) == kCudaSuccess);
  return hold;
}

bool Eventually(const std::function<bool()>& condition) { return testing::Eventually(condition); }

}  // namespace

TEST_CASE("stream: work waits for the work before it; query and synchronize tell") {
  UseDevice(0);
  TestStream stream;
  const DeviceBuffer buffer(std::string(4, 'a'));
  const int hold = Hold(stream);
  CHECK(Api().cuMemsetD8Async(buffer.address(), 'b', 4, stream.get()) == kCudaSuccess);
  CHECK(Api().cuStreamQuery(stream.get()) == kCudaErrorNotReady);
  CHECK(buffer.Read() == "aaaa");
  CHECK(Api().ddprun_double_release(hold) == kCudaSuccess);
  CHECK(stream.Synchronize() == kCudaSuccess);
  CHECK(Api().cuStreamQuery(stream.get()) == kCudaSuccess);
  CHECK(buffer.Read() == "bbbb");
}

TEST_CASE("event: complete before its first record and again when the stream gets there") {
  UseDevice(0);
  TestStream stream;
  TestEvent event;
  CHECK(event.Query() == kCudaSuccess);
  CHECK(Api().cuEventSynchronize(event.get()) == kCudaSuccess);
  const int hold = Hold(stream);
  CHECK(Api().cuEventRecord(event.get(), stream.get()) == kCudaSuccess);
  CHECK(event.Query() == kCudaErrorNotReady);
  Api().ddprun_double_release(hold);
  CHECK(Api().cuEventSynchronize(event.get()) == kCudaSuccess);
  CHECK(event.Query() == kCudaSuccess);
  CHECK(Api().cuEventRecordWithFlags(event.get(), stream.get(), kCudaEventRecordExternal) ==
        kCudaErrorInvalidValue);
}

TEST_CASE("wait: takes the record that was the newest at the call") {
  UseDevice(0);
  TestStream producer, consumer;
  TestEvent event;
  const DeviceBuffer buffer(std::string(4, 'a'));
  const int first = Hold(producer);
  Api().cuEventRecord(event.get(), producer.get());
  CHECK(Api().cuStreamWaitEvent(consumer.get(), event.get(), 0) == kCudaSuccess);
  Api().cuMemsetD8Async(buffer.address(), 'b', 4, consumer.get());
  // A later record of the event does not matter to the consumer.
  const int second = Hold(producer);
  Api().cuEventRecord(event.get(), producer.get());
  CHECK(Api().cuStreamQuery(consumer.get()) == kCudaErrorNotReady);
  CHECK(buffer.Read() == "aaaa");
  Api().ddprun_double_release(first);
  CHECK(consumer.Synchronize() == kCudaSuccess);
  CHECK(buffer.Read() == "bbbb");
  CHECK(event.Query() == kCudaErrorNotReady);
  Api().ddprun_double_release(second);
}

TEST_CASE("wait: an event that was never recorded holds nobody up") {
  UseDevice(0);
  TestStream stream;
  TestEvent event;
  CHECK(Api().cuStreamWaitEvent(stream.get(), event.get(), 0) == kCudaSuccess);
  CHECK(stream.Synchronize() == kCudaSuccess);
}

TEST_CASE("legacy stream: waits for earlier work in blocking streams, and for that alone") {
  UseDevice(2);
  const TestStream blocking(kBlocking), exempt;
  TestEvent event;
  const int of_exempt = Hold(exempt);
  CHECK(Api().cuEventRecord(event.get(), nullptr) == kCudaSuccess);
  CHECK(Api().cuStreamSynchronize(nullptr) == kCudaSuccess);
  CHECK(event.Query() == kCudaSuccess);
  const int of_blocking = Hold(blocking);
  CHECK(Api().cuEventRecord(event.get(), nullptr) == kCudaSuccess);
  const DeviceBuffer other(4);
  CHECK(Api().cuMemsetD8Async(other.address(), 'b', 4, nullptr) == kCudaSuccess);
  CHECK(Api().cuStreamQuery(nullptr) == kCudaErrorNotReady);
  Api().ddprun_double_release(of_blocking);
  CHECK(Api().cuStreamSynchronize(nullptr) == kCudaSuccess);
  CHECK(event.Query() == kCudaSuccess);
  CHECK(Api().cuStreamQuery(exempt.get()) == kCudaErrorNotReady);
  Api().ddprun_double_release(of_exempt);
}

TEST_CASE("legacy stream: later work in blocking streams waits for it, in others it does not") {
  UseDevice(2);
  const TestStream blocking(kBlocking), exempt;
  TestEvent of_blocking, of_exempt;
  int hold = 0;
  CHECK(Api().ddprun_double_hold(nullptr, &hold) == kCudaSuccess);
  CHECK(Api().cuEventRecord(of_blocking.get(), blocking.get()) == kCudaSuccess);
  CHECK(Api().cuEventRecord(of_exempt.get(), exempt.get()) == kCudaSuccess);
  CHECK(exempt.Synchronize() == kCudaSuccess);
  CHECK(of_exempt.Query() == kCudaSuccess);
  CHECK(of_blocking.Query() == kCudaErrorNotReady);
  Api().ddprun_double_release(hold);
  CHECK(blocking.Synchronize() == kCudaSuccess);
  CHECK(of_blocking.Query() == kCudaSuccess);
}

TEST_CASE("elapsed time: between two timing events that are complete") {
  UseDevice(0);
  TestStream stream;
  TestEvent begin, end, plain(kCudaEventDisableTiming), never;
  float ms = -1;
  Api().cuEventRecord(begin.get(), stream.get());
  Api().cuEventRecord(plain.get(), stream.get());
  const int hold = Hold(stream);
  Api().cuEventRecord(end.get(), stream.get());
  CHECK(Api().cuEventElapsedTime(&ms, begin.get(), end.get()) == kCudaErrorNotReady);
  Api().ddprun_double_release(hold);
  stream.Synchronize();
  CHECK(Api().cuEventElapsedTime(&ms, begin.get(), end.get()) == kCudaSuccess);
  CHECK(ms >= 0);
  CHECK(Api().cuEventElapsedTime(&ms, begin.get(), plain.get()) == kCudaErrorInvalidHandle);
  CHECK(Api().cuEventElapsedTime(&ms, begin.get(), never.get()) == kCudaErrorInvalidHandle);
}

TEST_CASE("handles: a destroyed one is refused, its work is still done") {
  UseDevice(0);
  const DeviceBuffer buffer(std::string(4, 'a'));
  CudaStream stream = nullptr;
  CudaEvent event = nullptr;
  Api().cuStreamCreateWithPriority(&stream, kCudaStreamNonBlocking, -5);
  Api().cuEventCreate(&event, 0);
  Api().cuMemsetD8Async(buffer.address(), 'b', 4, stream);
  CHECK(Api().cuStreamDestroy_v2(stream) == kCudaSuccess);
  CHECK(Api().cuEventRecord(event, stream) == kCudaErrorInvalidHandle);
  CHECK(Api().cuStreamSynchronize(stream) == kCudaErrorInvalidHandle);
  CHECK(Api().cuStreamDestroy_v2(stream) == kCudaErrorInvalidHandle);
  CHECK(Eventually([&] { return buffer.Read() == "bbbb"; }));
  CHECK(Api().cuEventDestroy_v2(event) == kCudaSuccess);
  CHECK(Api().cuEventQuery(event) == kCudaErrorInvalidHandle);
  CHECK(Api().cuEventDestroy_v2(event) == kCudaErrorInvalidHandle);
}

TEST_CASE("copies: to the device, on it and back; ranges are checked") {
  UseDevice(0);
  TestStream stream;
  const DeviceBuffer first(8), second(8);
  char pageable[8] = "1234567";
  void* pinned = nullptr;
  REQUIRE(Api().cuMemAllocHost_v2(&pinned, 8) == kCudaSuccess);
  const int hold = Hold(stream);
  CHECK(Api().cuMemcpyHtoDAsync_v2(first.address(), pageable, 8, stream.get()) == kCudaSuccess);
  std::memset(pageable, 0, 8);  // Already read.
  CHECK(Api().cuMemcpyDtoDAsync_v2(second.address(), first.address(), 8, stream.get()) ==
        kCudaSuccess);
  CHECK(Api().cuMemcpyDtoHAsync_v2(pinned, second.address(), 8, stream.get()) == kCudaSuccess);
  Api().ddprun_double_release(hold);
  stream.Synchronize();
  CHECK(std::string(static_cast<char*>(pinned)) == "1234567");
  CHECK(Api().cuMemcpyHtoDAsync_v2(first.address(), pageable, 9, stream.get()) ==
        kCudaErrorInvalidValue);
  CHECK(Api().cuMemcpyDtoDAsync_v2(second.address() + 4, first.address(), 8, stream.get()) ==
        kCudaErrorInvalidValue);
  CHECK(Api().cuMemFreeHost(pinned) == kCudaSuccess);
  CHECK(Api().cuMemFreeHost(pinned) == kCudaErrorInvalidValue);
}

TEST_CASE("pointers: the driver tells device memory from the host's") {
  UseDevice(3);
  const DeviceBuffer buffer(8);
  void* pinned = nullptr;
  REQUIRE(Api().cuMemAllocHost_v2(&pinned, 8) == kCudaSuccess);
  unsigned type = 0;
  int ordinal = -1;
  bool is_managed = true;
  const auto pinned_address = reinterpret_cast<CudaPointer>(pinned);
  const auto host_address = reinterpret_cast<CudaPointer>(&type);
  const auto get = Api().cuPointerGetAttribute;
  CHECK(get(&type, kCudaPointerAttributeMemoryType, buffer.address() + 7) == kCudaSuccess);
  CHECK(type == kCudaMemoryTypeDevice);
  CHECK(get(&ordinal, kCudaPointerAttributeDeviceOrdinal, buffer.address()) == kCudaSuccess);
  CHECK(ordinal == 3);
  CHECK(get(&is_managed, kCudaPointerAttributeIsManaged, buffer.address()) == kCudaSuccess);
  CHECK_FALSE(is_managed);
  CHECK(get(&type, kCudaPointerAttributeMemoryType, pinned_address) == kCudaSuccess);
  CHECK(type == kCudaMemoryTypeHost);
  CHECK(get(&type, kCudaPointerAttributeMemoryType, host_address) == kCudaErrorInvalidValue);
  CHECK(get(&type, kCudaPointerAttributeMemoryType, buffer.address() + 8) ==
        kCudaErrorInvalidValue);
  Api().cuMemFreeHost(pinned);
  CHECK(Api().cuMemFree_v2(pinned_address) == kCudaErrorInvalidValue);
}

TEST_CASE("kernels: those that the double does not know cannot run, and every error has a name") {
  UseDevice(0);
  CudaModule module = nullptr;
  CHECK(Api().cuModuleLoadData(&module, "ptx") == 801);
  CHECK(Api().cuModuleLoadData(&module, ".visible .entry strange(\n)") == 801);
  const char* text = nullptr;
  CHECK(Api().cuGetErrorName(801, &text) == kCudaSuccess);
  CHECK(std::string(text) == "CUDA_ERROR_NOT_SUPPORTED");
  CHECK(Api().cuGetErrorString(kCudaErrorOutOfMemory, &text) == kCudaSuccess);
  CHECK(std::string(text) == "out of memory");
  CHECK(Api().cuGetErrorName(12345, &text) == kCudaErrorInvalidValue);
}

TEST_CASE("memory: freeing waits for every stream of the device") {
  UseDevice(5);
  TestStream stream;
  const DeviceBuffer buffer(std::string(4, 'a'));
  const int hold = Hold(stream);
  Api().cuMemsetD8Async(buffer.address(), 'b', 4, stream.get());
  Api().ddprun_double_release(hold);
  CudaPointer other = 0;
  Api().cuMemAlloc_v2(&other, 4);
  CHECK(Api().cuMemFree_v2(other) == kCudaSuccess);
  CHECK(Api().cuStreamQuery(stream.get()) == kCudaSuccess);
}

TEST_CASE("leaks: named by kind until they are given back") {
  UseDevice(6);
  const std::string before = Api().ddprun_double_leaks();
  CudaEvent event = nullptr;
  Api().cuEventCreate(&event, 0);
  CHECK(Api().ddprun_double_leaks() == Contains("events=1"));
  Api().cuEventDestroy_v2(event);
  CHECK(std::string(Api().ddprun_double_leaks()) == before);
}

}  // namespace ddprun::gpu_double
