// Events: marks in streams.
#include <chrono>

#include "tests/gpu_double/driver.h"
#include "tests/gpu_double/log.h"

namespace ddprun::gpu_double {
namespace {

using Kind = Graph::Node::Kind;

std::shared_ptr<Event> FindEvent(Driver& driver, CudaEvent handle) {
  const auto found = driver.events.find(handle);
  return found != driver.events.end() ? found->second : nullptr;
}

// The event when the host may ask for its state, else null and why. An event that was recorded
// inside a capture has none.
std::shared_ptr<Event> FindAskable(Driver& driver, CudaEvent handle, CudaResult* result) {
  const std::shared_ptr<Event> event = FindEvent(driver, handle);
  *result = event == nullptr ? kCudaErrorInvalidHandle : kCudaSuccess;
  if (event != nullptr && event->capture != nullptr) {
    Log("event=%d forbidden: it was captured", event->id);
    event->capture->is_invalid = true;
    *result = kCapturedEvent;
  } else if (event != nullptr) {
    *result = CheckCaptureAllows(driver);
  }
  return *result == kCudaSuccess ? event : nullptr;
}

CudaResult Record(CudaEvent handle, CudaStream stream_handle, bool is_external) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, stream_handle, &result);
  if (stream == nullptr) return result;
  const std::shared_ptr<Event> event = FindEvent(driver, handle);
  if (event == nullptr || event->device != stream->device) return kCudaErrorInvalidHandle;
  if (is_external && stream->capture == nullptr) return kCudaErrorInvalidValue;
  Log("stream=%d record event=%d%s", stream->id, event->id, is_external ? " external" : "");
  if (stream->capture == nullptr) {
    event->capture = nullptr;
    event->mark = std::make_shared<Mark>();
    OrderByLegacyStream(driver, *stream);
    stream->queue->Push(
        [stream = stream->id, id = event->id] { Log("stream=%d reach event=%d", stream, id); },
        event->mark);
    return kCudaSuccess;
  }
  Capture& capture = *stream->capture;
  if (capture.is_invalid) return kCaptureInvalidated;
  Graph::Node node{.kind = is_external ? Kind::kRecordExternal : Kind::kRecord,
                   .lane = stream->lane};
  if (is_external) {
    node.event = event;
  } else {
    event->capture = stream->capture;
    event->node = capture.graph.nodes.size();
  }
  capture.graph.nodes.push_back(std::move(node));
  return kCudaSuccess;
}

// A wait for an event that was recorded in a capture: it draws the stream into the capture.
CudaResult WaitCaptured(Stream& stream, const Event& event) {
  if (event.capture->is_over) return kCapturedEvent;
  if (event.capture->is_invalid) return kCaptureInvalidated;
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    stream.lane = event.capture->graph.lanes++;
    Log("stream=%d joins capture=%d", stream.id, stream.capture->id);
  }
  if (stream.capture != event.capture) {
    stream.capture->is_invalid = true;
    event.capture->is_invalid = true;
    return kCaptureMerge;
  }
  stream.capture->graph.nodes.push_back(
      {.kind = Kind::kWait, .lane = stream.lane, .recorded = event.node});
  return kCudaSuccess;
}

}  // namespace

CudaResult cuEventCreate(CudaEvent* handle, unsigned flags) {
  int device = 0;
  const CudaResult context = CurrentDevice(&device);
  if (context != kCudaSuccess) return context;
  // 1 is blocking sync, 4 interprocess.
  if (handle == nullptr || flags > 7) return kCudaErrorInvalidValue;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  auto event = std::make_shared<Event>();
  event->id = driver.next_id++;
  event->device = device;
  event->has_timing = (flags & kCudaEventDisableTiming) == 0;
  *handle = ToHandle<CudaEvent>(event->id);
  driver.events[*handle] = event;
  return kCudaSuccess;
}

CudaResult cuEventDestroy_v2(CudaEvent handle) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  return driver.events.erase(handle) == 1 ? kCudaSuccess : kCudaErrorInvalidHandle;
}

CudaResult cuEventRecord(CudaEvent event, CudaStream stream) {
  return cuEventRecordWithFlags(event, stream, kCudaEventRecordDefault);
}

CudaResult cuEventRecordWithFlags(CudaEvent event, CudaStream stream, unsigned flags) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  if (flags > kCudaEventRecordExternal) return kCudaErrorInvalidValue;
  return Record(event, stream, flags == kCudaEventRecordExternal);
}

CudaResult cuStreamWaitEvent(CudaStream stream_handle, CudaEvent handle, unsigned flags) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  if (flags != 0) return kCudaErrorInvalidValue;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, stream_handle, &result);
  if (stream == nullptr) return result;
  const std::shared_ptr<Event> event = FindEvent(driver, handle);
  if (event == nullptr) return kCudaErrorInvalidHandle;
  Log("stream=%d wait event=%d", stream->id, event->id);
  if (event->capture != nullptr) return WaitCaptured(*stream, *event);
  if (event->mark == nullptr) return kCudaSuccess;  // Never recorded: nothing to wait for.
  if (stream->capture != nullptr) {
    stream->capture->is_invalid = true;
    return kCaptureIsolation;
  }
  return SubmitLocked(*stream, [mark = event->mark, stream = stream->id, id = event->id] {
    mark->Wait();
    Log("stream=%d pass event=%d", stream, id);
  });
}

CudaResult cuEventQuery(CudaEvent handle) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Event> event = FindAskable(driver, handle, &result);
  if (event == nullptr) return result;
  const bool is_done = event->mark == nullptr || event->mark->is_reached();
  return is_done ? kCudaSuccess : kCudaErrorNotReady;
}

CudaResult cuEventSynchronize(CudaEvent handle) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  std::shared_ptr<Mark> mark;
  {
    Driver& driver = Driver::Get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    CudaResult result;
    const std::shared_ptr<Event> event = FindAskable(driver, handle, &result);
    if (event == nullptr) return result;
    Log("event=%d synchronize", event->id);
    mark = event->mark;
  }
  if (mark != nullptr) mark->Wait();
  return kCudaSuccess;
}

CudaResult cuEventElapsedTime(float* milliseconds, CudaEvent begin, CudaEvent end) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Event> first = FindAskable(driver, begin, &result);
  if (first == nullptr) return result;
  const std::shared_ptr<Event> second = FindAskable(driver, end, &result);
  if (second == nullptr) return result;
  const bool can_time = first->has_timing && second->has_timing && first->mark != nullptr &&
                        second->mark != nullptr && first->device == second->device;
  if (!can_time) return kCudaErrorInvalidHandle;
  if (!first->mark->is_reached() || !second->mark->is_reached()) return kCudaErrorNotReady;
  using Milliseconds = std::chrono::duration<float, std::milli>;
  *milliseconds = Milliseconds(second->mark->time() - first->mark->time()).count();
  return kCudaSuccess;
}

CudaResult cuEventElapsedTime_v2(float* milliseconds, CudaEvent begin, CudaEvent end) {
  return cuEventElapsedTime(milliseconds, begin, end);
}

}  // namespace ddprun::gpu_double
