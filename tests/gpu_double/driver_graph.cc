// Capture of streams into graphs, and their replay: each captured stream is a lane, a queue of its
// own, so that a dependency which the program forgot shows in the replay as it does on a device.
#include <algorithm>
#include <utility>

#include "tests/gpu_double/driver.h"
#include "tests/gpu_double/log.h"

namespace ddprun::gpu_double {
namespace {

using Kind = Graph::Node::Kind;

// cuda.h: every thread starts in the global mode.
thread_local int thread_mode = kCudaCaptureModeGlobal;

// Whether all work can be reached from the end of lane 0, going back in time: what
// cuStreamEndCapture demands of the streams that joined.
bool IsJoined(const Graph& graph) {
  // By lane: how much of it lies before the end of lane 0.
  std::vector<size_t> joined(graph.lanes, 0);
  joined[0] = graph.nodes.size();
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Graph::Node& node = graph.nodes[i];
      if (node.kind != Kind::kWait || i >= joined[node.lane]) continue;
      size_t& reached = joined[graph.nodes[node.recorded].lane];
      if (reached > node.recorded) continue;
      reached = node.recorded + 1;
      has_grown = true;
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Graph::Node& node = graph.nodes[i];
    const bool is_work = node.kind == Kind::kRun || node.kind == Kind::kRecordExternal;
    if (is_work && i >= joined[node.lane]) return false;
  }
  return true;
}

void LeaveCapture(Driver& driver, const std::shared_ptr<Capture>& capture) {
  capture->is_over = true;
  for (const auto& [handle, stream] : driver.streams) {
    if (stream->capture == capture) stream->capture = nullptr;
  }
  driver.captures.erase(std::find(driver.captures.begin(), driver.captures.end(), capture));
}

// Pushes one replay of the graph to its lanes; returns the marks of their ends.
std::vector<std::shared_ptr<Mark>> Replay(const Driver::Executable& executable,
                                          const std::shared_ptr<Mark>& start) {
  for (const auto& lane : executable.lanes) lane->Push([start] { start->Wait(); });
  std::map<size_t, std::shared_ptr<Mark>> marks;
  const std::vector<Graph::Node>& nodes = executable.graph->nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Graph::Node& node = nodes[i];
    Queue& lane = *executable.lanes[node.lane];
    switch (node.kind) {
      case Kind::kRun:
        lane.Push(node.op);
        break;
      case Kind::kRecord:
        marks[i] = lane.PushMark();
        break;
      case Kind::kRecordExternal:
        node.event->capture = nullptr;
        node.event->mark = lane.PushMark();
        break;
      case Kind::kWait:
        lane.Push([mark = marks[node.recorded]] { mark->Wait(); });
        break;
    }
  }
  std::vector<std::shared_ptr<Mark>> ends;
  for (const auto& lane : executable.lanes) ends.push_back(lane->PushMark());
  return ends;
}

}  // namespace

// cuda.h, cuThreadExchangeStreamCaptureMode.
CudaResult CheckCaptureAllows(Driver& driver) {
  for (const auto& capture : driver.captures) {
    const bool is_mine = capture->thread == std::this_thread::get_id();
    const bool is_forbidden =
        thread_mode != kCudaCaptureModeRelaxed &&
        ((is_mine && capture->mode != kCudaCaptureModeRelaxed) ||
         (thread_mode == kCudaCaptureModeGlobal && capture->mode == kCudaCaptureModeGlobal));
    if (!is_forbidden) continue;
    Log("capture=%d forbidden call", capture->id);
    capture->is_invalid = true;
    return kCudaErrorStreamCaptureUnsupported;
  }
  return kCudaSuccess;
}

CudaResult cuThreadExchangeStreamCaptureMode(int* mode) {
  if (mode == nullptr || *mode < 0 || *mode > kCudaCaptureModeRelaxed) {
    return kCudaErrorInvalidValue;
  }
  std::swap(*mode, thread_mode);
  return kCudaSuccess;
}

CudaResult cuStreamIsCapturing(CudaStream handle, int* status) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, handle, &result);
  if (stream == nullptr) return result;
  *status = stream->capture == nullptr    ? kCudaCaptureStatusNone
            : stream->capture->is_invalid ? kCudaCaptureStatusInvalidated
                                          : kCudaCaptureStatusActive;
  return kCudaSuccess;
}

CudaResult cuStreamBeginCapture_v2(CudaStream handle, int mode) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  if (mode < 0 || mode > kCudaCaptureModeRelaxed) return kCudaErrorInvalidValue;
  if (handle == nullptr) return kCudaErrorStreamCaptureUnsupported;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, handle, &result);
  if (stream == nullptr) return result;
  if (stream->capture != nullptr) return kCudaErrorInvalidValue;
  auto capture = std::make_shared<Capture>();
  capture->id = driver.next_id++;
  capture->origin = handle;
  capture->mode = mode;
  capture->is_blocking = stream->is_blocking;
  capture->thread = std::this_thread::get_id();
  capture->graph.lanes = 1;
  stream->capture = capture;
  stream->lane = 0;
  driver.captures.push_back(capture);
  Log("stream=%d begin capture=%d mode=%d", stream->id, capture->id, mode);
  return kCudaSuccess;
}

CudaResult cuStreamEndCapture(CudaStream handle, CudaGraph* graph) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  if (graph == nullptr) return kCudaErrorInvalidValue;
  *graph = nullptr;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, handle, &result);
  if (stream == nullptr) return result;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return kCudaErrorStreamCaptureUnsupported;
  if (capture->origin != handle) {
    capture->is_invalid = true;
    return kCaptureUnmatched;
  }
  const bool is_other_thread = capture->thread != std::this_thread::get_id();
  if (is_other_thread && capture->mode != kCudaCaptureModeRelaxed) return kCaptureWrongThread;
  LeaveCapture(driver, capture);
  // Events keep the capture, and must not keep what it recorded.
  Graph recorded = std::move(capture->graph);
  result = capture->is_invalid   ? kCaptureInvalidated
           : !IsJoined(recorded) ? kCaptureUnjoined
                                 : kCudaSuccess;
  Log("stream=%d end capture=%d nodes=%zu lanes=%zu result=%d", stream->id, capture->id,
      recorded.nodes.size(), recorded.lanes, result);
  if (result != kCudaSuccess) return result;
  *graph = ToHandle<CudaGraph>(driver.next_id++);
  driver.graphs[*graph] = std::make_shared<Graph>(std::move(recorded));
  return kCudaSuccess;
}

CudaResult cuGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph,
                                       unsigned long long flags) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  if (exec == nullptr || flags != 0) return kCudaErrorInvalidValue;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const auto found = driver.graphs.find(graph);
  if (found == driver.graphs.end()) return kCudaErrorInvalidValue;
  auto executable = std::make_shared<Driver::Executable>();
  executable->graph = found->second;
  for (size_t i = 0; i < found->second->lanes; ++i) executable->lanes.push_back(Queue::Start());
  *exec = ToHandle<CudaGraphExec>(driver.next_id++);
  driver.executables[*exec] = executable;
  return kCudaSuccess;
}

CudaResult cuGraphLaunch(CudaGraphExec exec, CudaStream handle) {
  const CudaResult context = CheckContext();
  if (context != kCudaSuccess) return context;
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  const auto found = driver.executables.find(exec);
  if (found == driver.executables.end()) return kCudaErrorInvalidValue;
  CudaResult result;
  const std::shared_ptr<Stream> stream = FindStream(driver, handle, &result);
  if (stream == nullptr) return result;
  // A graph inside a graph is allowed by CUDA; the double has no use for it.
  if (stream->capture != nullptr) return kNotSupported;
  Log("stream=%d launch graph", stream->id);
  OrderByLegacyStream(driver, *stream);
  const std::shared_ptr<Mark> start = stream->queue->PushMark();
  // The lanes live until the replay is over, whatever is destroyed before.
  stream->queue->Push(
      [ends = Replay(*found->second, start), keep = found->second, id = stream->id] {
        for (const auto& end : ends) end->Wait();
        Log("stream=%d end graph", id);
      });
  return kCudaSuccess;
}

CudaResult cuGraphExecDestroy(CudaGraphExec exec) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  return driver.executables.erase(exec) == 1 ? kCudaSuccess : kCudaErrorInvalidValue;
}

CudaResult cuGraphDestroy(CudaGraph graph) {
  Driver& driver = Driver::Get();
  std::lock_guard<std::mutex> lock(driver.mutex);
  return driver.graphs.erase(graph) == 1 ? kCudaSuccess : kCudaErrorInvalidValue;
}

}  // namespace ddprun::gpu_double
