// Streams: each a thread that runs what was submitted, in order.
#include <algorithm>
#include <utility>

#include "tests/gpu_double/driver.h"
#include "tests/gpu_double/log.h"

namespace ddprun::gpu_double {
namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

std::shared_ptr<Stream> NewStream(Driver& driver, int device, bool is_blocking) {
  auto stream = std::make_shared<Stream>();
  stream->id = driver.next_id++;
  stream->device = device;
  stream->is_blocking = is_blocking;
  stream->queue = Queue::Start();
  return stream;
}

// The stream, refusing one that captures: its work has not been done, so waiting is a mistake.
std::shared_ptr<Stream> FindWaitable(Driver& driver, CudaStream handle, CudaResult* result) {
  std::shared_ptr<Stream> stream = FindStream(driver, handle, result);
  if (stream == nullptr || stream->capture == nullptr) return stream;
  Log("stream=%d forbidden in capture: query or synchronize", stream->id);
  stream->capture->is_invalid = true;
  *result = kCudaErrorStreamCaptureUnsupported;
  return nullptr;
}

}  // namespace

std::shared_ptr<Stream> FindStream(Driver& driver, CudaStream handle, CudaResult* result) {
  *result = kCudaSuccess;
  if (handle != nullptr) {
    const auto found = driver.streams.find(handle);
    if (found != driver.streams.end()) return found->second;
    *result = kCudaErrorInvalidHandle;
    return nullptr;
  }
  int device = 0;
  *result = CurrentDevice(driver, &device);
  if (*result != kCudaSuccess) return nullptr;
  for (const auto& capture : driver.captures) {
    if (!capture->is_blocking) continue;
    capture->is_invalid = true;
    *result = kCaptureImplicit;
    return nullptr;
  }
  std::shared_ptr<Stream>& stream = driver.legacy[device];
  if (stream == nullptr) stream = NewStream(driver, device, /*is_blocking=*/true);
  return stream;
}

void OrderByLegacyStream(Driver& driver, const Stream& stream) {
  if (!stream.is_blocking) return;
  const auto wait_for = [&stream](Queue& other) {
    if (!other.is_idle()) stream.queue->Push([mark = other.PushMark()] { mark->Wait(); });
  };
  const auto found = driver.legacy.find(stream.device);
  if (found == driver.legacy.end()) return;
  if (found->second.get() != &stream) return wait_for(*found->second->queue);
  for (const auto& [handle, other] : driver.streams) {
    if (other->is_blocking && other->device == stream.device) wait_for(*other->queue);
  }
}

CudaResult SubmitLocked(Stream& stream, Queue::Op op) {
  if (stream.capture == nullptr) {
    OrderByLegacyStream(Driver::Get(), stream);
    stream.queue->Push(std::move(op));
    return kCudaSuccess;
  }
  if (stream.capture->is_invalid) return kCaptureInvalidated;
  stream.capture->graph.nodes.push_back(
      {.kind = Graph::Node::Kind::kRun, .lane = stream.lane, .op = std::move(op)});
  return kCudaSuccess;
}

CudaResult Submit(CudaStream handle, Queue::Op op) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, handle, &result);
  return stream == nullptr ? result : SubmitLocked(*stream, std::move(op));
}

CudaResult InspectStream(CudaStream handle, int device, int* id, bool* is_capturing) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, handle, &result);
  if (stream == nullptr) return result;
  if (stream->device != device) return kCudaErrorInvalidDevice;
  *id = stream->id;
  *is_capturing = stream->capture != nullptr;
  return kCudaSuccess;
}

CudaResult ddprun_double_hold(CudaStream handle, int* hold) {
  const auto mark = std::make_shared<Mark>();
  {
    Driver& driver = Driver::Get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    *hold = driver.next_id++;
    driver.holds[*hold] = mark;
  }
  return Submit(handle, [mark] { mark->Wait(); });
}

CudaResult ddprun_double_release(int hold) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const auto found = driver.holds.find(hold);
  if (found == driver.holds.end()) return kCudaErrorInvalidHandle;
  found->second->Reach();
  driver.holds.erase(found);
  return kCudaSuccess;
}

CudaResult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return kCudaSuccess;
}

CudaResult cuStreamCreateWithPriority(CudaStream* handle, unsigned flags, int priority) {
  int device = 0;
  const CudaResult context = CurrentDevice(&device);
  if (context != kCudaSuccess) return context;
  if (handle == nullptr || flags > kCudaStreamNonBlocking) return kCudaErrorInvalidValue;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const auto stream = NewStream(driver, device, (flags & kCudaStreamNonBlocking) == 0);
  *handle = ToHandle<CudaStream>(stream->id);
  driver.streams[*handle] = stream;
  Log("stream=%d create device=%d flags=%u priority=%d", stream->id, device, flags,
      std::clamp(priority, kGreatestPriority, kLeastPriority));
  return kCudaSuccess;
}

CudaResult cuStreamDestroy_v2(CudaStream handle) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const auto found = driver.streams.find(handle);
  if (found == driver.streams.end()) return kCudaErrorInvalidHandle;
  if (found->second->capture != nullptr) found->second->capture->is_invalid = true;
  Log("stream=%d destroy", found->second->id);
  driver.streams.erase(found);
  return kCudaSuccess;
}

CudaResult cuStreamQuery(CudaStream handle) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindWaitable(driver, handle, &result);
  if (stream == nullptr) return result;
  return stream->queue->is_idle() ? kCudaSuccess : kCudaErrorNotReady;
}

CudaResult cuStreamSynchronize(CudaStream handle) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  std::shared_ptr<Mark> mark;
  {
    Driver& driver = Driver::Get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    CudaResult result;
    const std::shared_ptr<Stream> stream = FindWaitable(driver, handle, &result);
    if (stream == nullptr) return result;
    const CudaResult allowed = CheckCaptureAllows(driver);
    if (allowed != kCudaSuccess) return allowed;
    Log("stream=%d synchronize", stream->id);
    OrderByLegacyStream(driver, *stream);
    mark = stream->queue->PushMark();
  }
  mark->Wait();
  return kCudaSuccess;
}

std::vector<std::shared_ptr<Mark>> MarkAllStreams(Driver& driver, int device) {
  std::vector<std::shared_ptr<Mark>> marks;
  for (const auto& [handle, stream] : driver.streams) {
    if (stream->device == device) marks.push_back(stream->queue->PushMark());
  }
  const auto legacy = driver.legacy.find(device);
  if (legacy != driver.legacy.end()) marks.push_back(legacy->second->queue->PushMark());
  return marks;
}

}  // namespace ddprun::gpu_double
