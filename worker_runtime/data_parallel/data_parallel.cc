#include "ddp/data_parallel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/bucketizer.h"
#include "worker_runtime/comm/free_memory.h"
#include "worker_runtime/comm/heap_buffer.h"
#include "worker_runtime/comm/kernels.h"
#include "worker_runtime/data_parallel/device_thread.h"
#include "worker_runtime/model_tensors.h"

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using internal::kGradientAlignment;
using internal::ModelTensor;

size_t BytesOf(const ModelTensor& tensor) { return tensor.count * SizeOf(tensor.dtype); }

char* At(const Buffer& buffer, size_t offset) { return static_cast<char*>(buffer.data()) + offset; }

}  // namespace

DataParallel::DataParallel(DataParallelOptions options) : options_(options) {}

DataParallel::~DataParallel() = default;

int DataParallel::AddParameter(const std::string& name, void* data, size_t count, DType dtype) {
  is_late_parameter_ |= !replicas_.empty();
  parameters_.push_back({.name = name, .data = data, .count = count, .dtype = dtype});
  return static_cast<int>(parameters_.size()) - 1;
}

// Returns the bytes of all parameters.
size_t DataParallel::LayOut() {
  size_t bytes = 0;
  offsets_.clear();
  for (const ModelTensor& parameter : parameters_) {
    offsets_.push_back(bytes);
    bytes +=
        (BytesOf(parameter) + kGradientAlignment - 1) / kGradientAlignment * kGradientAlignment;
  }
  return bytes;
}

absl::Status DataParallel::MakeReplica(int replica, size_t bytes) {
  Replica& made = replicas_.emplace_back();
  if (replica > 0) {
    absl::StatusOr<std::unique_ptr<Buffer>> copy = internal::AllocateHeapBuffer(bytes);
    if (!copy.ok()) return copy.status();
    made.parameters = *std::move(copy);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> gradients = internal::AllocateHeapBuffer(bytes);
  if (!gradients.ok()) return gradients.status();
  made.gradients = *std::move(gradients);
  made.is_ready.assign(parameters_.size(), 0);
  absl::StatusOr<std::unique_ptr<internal::DeviceThread>> thread =
      internal::DeviceThread::Start(replica, options_.replicas);
  if (!thread.ok()) return thread.status();
  made.thread = *std::move(thread);
  return absl::OkStatus();
}

absl::Status DataParallel::Finalize() {
  if (!replicas_.empty()) {
    return absl::FailedPreconditionError("DataParallel: Finalize() was called before");
  }
  if (options_.replicas < 1 || options_.replicas > kMaxReplicas) {
    return absl::InvalidArgumentError(absl::StrCat("DataParallel with ", options_.replicas,
                                                   " replicas: give 1 to ", kMaxReplicas));
  }
  if (options_.device_type != DeviceType::kCpu) {
    return absl::UnimplementedError(
        "DataParallel on GPUs: only the CPU is supported; DistributedDataParallel trains on GPUs");
  }
  if (absl::Status status = internal::CheckTensors(parameters_, /*buffers=*/{}); !status.ok())
    return status;
  const size_t bytes = LayOut();
  // All together: none takes its part before it is used.
  const auto copies = static_cast<size_t>(2 * options_.replicas - 1);
  absl::Status room =
      internal::CheckFreeMemory(bytes > SIZE_MAX / copies ? SIZE_MAX : bytes * copies,
                                absl::StrCat("DataParallel with ", options_.replicas, " replicas"));
  if (!room.ok()) return room;
  for (int replica = 0; replica < options_.replicas; ++replica) {
    absl::Status status = MakeReplica(replica, bytes);
    if (status.ok()) continue;
    replicas_.clear();
    return absl::Status(status.code(),
                        absl::StrCat("DataParallel, replica ", replica, ": ", status.message()));
  }
  return absl::OkStatus();
}

std::vector<Chunk> DataParallel::Scatter(int64_t batch) {
  chunks_.clear();
  is_replicated_ = false;
  if (batch > 0 && options_.replicas >= 1) {
    const int64_t size = (batch - 1) / options_.replicas + 1;
    for (int64_t begin = 0, end = 0; begin < batch; begin = end) {
      end = begin + std::min(size, batch - begin);
      chunks_.push_back({.begin = begin, .end = end});
    }
  }
  return chunks_;
}

absl::Status DataParallel::Replicate() {
  if (replicas_.empty()) {
    return absl::FailedPreconditionError("DataParallel: call Finalize() first");
  }
  if (is_late_parameter_) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter '", parameters_.back().name, "' was registered after Finalize()"));
  }
  if (chunks_.empty()) {
    return absl::FailedPreconditionError(
        "DataParallel: no pass has begun; call Scatter() with a batch of at least one sample");
  }
  const Clock::time_point begin = Clock::now();
  this_step_ = {};
  absl::Status status = RunOnDevices([this](int replica) {
    Replica& here = replicas_[static_cast<size_t>(replica)];
    std::fill(here.is_ready.begin(), here.is_ready.end(), 0);
    if (replica == 0) return absl::OkStatus();
    for (size_t id = 0; id < parameters_.size(); ++id) {
      const size_t bytes = BytesOf(parameters_[id]);
      if (bytes == 0) continue;
      std::memcpy(At(*here.parameters, offsets_[id]), parameters_[id].data, bytes);
    }
    return here.gradients->Zero(nullptr);
  });
  if (!status.ok()) return status;
  for (const ModelTensor& parameter : parameters_) {
    this_step_.bytes_moved += BytesOf(parameter) * static_cast<size_t>(active() - 1);
  }
  this_step_.replicate = Clock::now() - begin;
  is_replicated_ = true;
  return absl::OkStatus();
}

absl::Status DataParallel::CheckNotRunning() const {
  if (!is_running_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "DataParallel: a body has called what only the thread that runs them may call; it may call "
      "ParameterPtr(), GradientPtr() and GradientReady()");
}

// On the threads of all devices of this pass; waits for all, whatever becomes of each.
absl::Status DataParallel::RunOnDevices(const std::function<absl::Status(int replica)>& body) {
  if (absl::Status status = CheckNotRunning(); !status.ok()) return status;
  is_running_ = true;
  for (int replica = 0; replica < active(); ++replica) {
    replicas_[static_cast<size_t>(replica)].thread->Begin(
        [&body, replica] { return body(replica); });
  }
  absl::Status first;
  for (int replica = 0; replica < active(); ++replica) {
    absl::Status status = replicas_[static_cast<size_t>(replica)].thread->Wait();
    if (status.ok() || !first.ok()) continue;
    first = absl::Status(status.code(), absl::StrCat("replica ", replica, ": ", status.message()));
  }
  is_running_ = false;
  return first;
}

absl::Status DataParallel::ParallelApply(const std::function<absl::Status(int replica)>& body) {
  if (!is_replicated_) {
    return absl::FailedPreconditionError(
        "DataParallel: ParallelApply() outside of a pass; call Scatter() and Replicate() first");
  }
  if (body == nullptr) return absl::InvalidArgumentError("DataParallel: the body is empty");
  return RunOnDevices(body);
}

bool DataParallel::IsKnown(int id, int replica) const {
  return id >= 0 && static_cast<size_t>(id) < parameters_.size() && replica >= 0 &&
         static_cast<size_t>(replica) < replicas_.size() &&
         static_cast<size_t>(id) < replicas_[0].is_ready.size();
}

void* DataParallel::ParameterPtr(int id, int replica) const {
  if (!IsKnown(id, replica)) return nullptr;
  if (replica == 0) return parameters_[static_cast<size_t>(id)].data;
  return At(*replicas_[static_cast<size_t>(replica)].parameters, offsets_[static_cast<size_t>(id)]);
}

void* DataParallel::GradientPtr(int id, int replica) const {
  if (!IsKnown(id, replica)) return nullptr;
  return At(*replicas_[static_cast<size_t>(replica)].gradients, offsets_[static_cast<size_t>(id)]);
}

absl::Status DataParallel::GradientReady(int id, int replica) {
  if (!IsKnown(id, replica)) {
    return absl::InvalidArgumentError(
        absl::StrCat("GradientReady(", id, ", ", replica, "): there are ", parameters_.size(),
                     " parameters and ", replicas_.size(), " replicas, counted from 0"));
  }
  const std::string& name = parameters_[static_cast<size_t>(id)].name;
  if (!is_replicated_ || replica >= active()) {
    return absl::FailedPreconditionError(absl::StrCat("gradient '", name, "' of replica ", replica,
                                                      ": it has no part in this pass"));
  }
  char& is_ready = replicas_[static_cast<size_t>(replica)].is_ready[static_cast<size_t>(id)];
  if (is_ready != 0) {
    return absl::FailedPreconditionError(absl::StrCat("gradient '", name, "' of replica ", replica,
                                                      " was marked ready twice in one pass"));
  }
  is_ready = 1;
  return absl::OkStatus();
}

absl::Status DataParallel::Gather(std::span<const void* const> inputs, size_t row_bytes,
                                  void* output) {
  if (inputs.size() != chunks_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("Gather of ", inputs.size(), " outputs, but ",
                                                   chunks_.size(), " replicas take part"));
  }
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < inputs.size() && row_bytes > 0; ++i) {
    if (inputs[i] == nullptr || output == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("Gather: ", output == nullptr ? "the output" : "an output of a replica",
                       " has no memory"));
    }
  }
  for (size_t i = 0; i < inputs.size() && row_bytes > 0; ++i) {
    const size_t bytes = static_cast<size_t>(chunks_[i].end - chunks_[i].begin) * row_bytes;
    std::memcpy(static_cast<char*>(output) + static_cast<size_t>(chunks_[i].begin) * row_bytes,
                inputs[i], bytes);
    if (i > 0) this_step_.bytes_moved += bytes;
  }
  this_step_.gather += Clock::now() - begin;
  return absl::OkStatus();
}

absl::Status DataParallel::CheckAllReady() const {
  for (int replica = 0; replica < active(); ++replica) {
    const std::vector<char>& is_ready = replicas_[static_cast<size_t>(replica)].is_ready;
    for (size_t id = 0; id < is_ready.size(); ++id) {
      if (is_ready[id] != 0) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "gradient '", parameters_[id].name, "' of replica ", replica, " was not marked ready"));
    }
  }
  return absl::OkStatus();
}

absl::Status DataParallel::Finish() {
  if (!is_replicated_) {
    return absl::FailedPreconditionError(
        "DataParallel: Finish() outside of a pass; call Scatter() and Replicate() first");
  }
  if (absl::Status status = CheckNotRunning(); !status.ok()) return status;
  if (absl::Status status = CheckAllReady(); !status.ok()) return status;
  const Clock::time_point begin = Clock::now();
  // On device 0's thread, as the sums are device 0's work.
  replicas_[0].thread->Begin([this] {
    const internal::Kernels& kernels = internal::BestKernels();
    std::vector<const void*> inputs(static_cast<size_t>(active()));
    for (size_t id = 0; id < parameters_.size(); ++id) {
      if (parameters_[id].count == 0 || active() == 1) continue;
      for (size_t replica = 0; replica < inputs.size(); ++replica) {
        inputs[replica] = At(*replicas_[replica].gradients, offsets_[id]);
      }
      void* sum = At(*replicas_[0].gradients, offsets_[id]);
      kernels.reduce(ReduceOp::kSum, parameters_[id].dtype, inputs.data(), active(), &sum, 1,
                     parameters_[id].count, /*divisor=*/1);
    }
    return absl::OkStatus();
  });
  if (absl::Status status = replicas_[0].thread->Wait(); !status.ok()) return status;
  for (const ModelTensor& parameter : parameters_) {
    this_step_.bytes_moved += BytesOf(parameter) * static_cast<size_t>(active() - 1);
  }
  this_step_.reduce = Clock::now() - begin;
  last_step_ = this_step_;
  chunks_.clear();
  is_replicated_ = false;
  return absl::OkStatus();
}

absl::Status DataParallel::ZeroGrad() {
  if (replicas_.empty()) {
    return absl::FailedPreconditionError("DataParallel: call Finalize() first");
  }
  return replicas_[0].gradients->Zero(nullptr);
}

size_t DataParallel::bytes_on(int replica) const {
  if (replica < 0 || static_cast<size_t>(replica) >= replicas_.size()) return 0;
  return 2 * replicas_[static_cast<size_t>(replica)].gradients->bytes();
}

}  // namespace ddp
