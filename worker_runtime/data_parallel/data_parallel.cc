#include "ddp/data_parallel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/bucketizer.h"
#include "worker_runtime/data_parallel/device_thread.h"
#include "worker_runtime/data_parallel/replica_device.h"
#include "worker_runtime/model_tensors.h"

namespace ddp {
namespace {

using Clock = std::chrono::steady_clock;
using internal::kGradientAlignment;
using internal::ModelTensor;
using internal::ReplicaDevice;

size_t BytesOf(const ModelTensor& tensor) { return tensor.count * SizeOf(tensor.dtype); }

char* At(void* memory, size_t offset) { return static_cast<char*>(memory) + offset; }

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

}  // namespace

DataParallel::DataParallel(DataParallelOptions options) : options_(options) {}

DataParallel::~DataParallel() = default;

int DataParallel::AddParameter(const std::string& name, void* data, size_t count, DType dtype) {
  is_late_parameter_ |= !replicas_.empty();
  parameters_.push_back({.name = name, .data = data, .count = count, .dtype = dtype});
  return static_cast<int>(parameters_.size()) - 1;
}

void DataParallel::LayOut() {
  bytes_ = 0;
  offsets_.clear();
  runs_.clear();
  for (const ModelTensor& parameter : parameters_) {
    offsets_.push_back(bytes_);
    if (runs_.empty() || runs_.back().dtype != parameter.dtype) {
      runs_.push_back({.dtype = parameter.dtype, .offset = bytes_});
    }
    Run& run = runs_.back();
    run.count = (bytes_ - run.offset) / SizeOf(run.dtype) + parameter.count;
    bytes_ +=
        (BytesOf(parameter) + kGradientAlignment - 1) / kGradientAlignment * kGradientAlignment;
  }
}

size_t DataParallel::BytesOfAll() const {
  size_t bytes = 0;
  for (const ModelTensor& parameter : parameters_) bytes += BytesOf(parameter);
  return bytes;
}

absl::Status DataParallel::MakeReplica(std::unique_ptr<ReplicaDevice> device) {
  const int index = static_cast<int>(replicas_.size());
  Replica& made = replicas_.emplace_back();
  made.device = std::move(device);
  made.is_ready.assign(parameters_.size(), 0);
  absl::StatusOr<std::unique_ptr<internal::DeviceThread>> thread =
      internal::DeviceThread::Start(index, options_.replicas);
  if (!thread.ok()) return thread.status();
  made.thread = *std::move(thread);
  made.thread->Begin([this, &made, index] {
    if (absl::Status status = made.device->Enter(); !status.ok()) return status;
    if (index == 0) {
      if (absl::Status status = CheckParameterMemory(); !status.ok()) return status;
    }
    for (void** memory : {&made.parameters, &made.gradients}) {
      if (index == 0 && memory == &made.parameters) continue;
      const absl::StatusOr<void*> allocated = made.device->Allocate(bytes_);
      if (!allocated.ok()) return allocated.status();
      *memory = *allocated;
    }
    return absl::OkStatus();
  });
  return made.thread->Wait();
}

// On the thread of device 0.
absl::Status DataParallel::CheckParameterMemory() const {
  for (const ModelTensor& parameter : parameters_) {
    if (parameter.count == 0) continue;
    const absl::StatusOr<bool> is_own = replicas_[0].device->Owns(parameter.data);
    const std::string name = absl::StrCat("parameter '", parameter.name, "': ");
    if (!is_own.ok()) return Prefixed(name, is_own.status());
    if (*is_own) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, "it is memory of the host; copy it to GPU 0 and register it there"));
  }
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
  if (absl::Status status = internal::CheckTensors(parameters_, /*buffers=*/{}); !status.ok())
    return status;
  LayOut();
  const auto copies = static_cast<size_t>(2 * options_.replicas - 1);
  absl::StatusOr<internal::ReplicaDevices> devices =
      options_.device_type == DeviceType::kCuda
          ? internal::OpenCudaDevices(options_.replicas)
          : internal::MakeHostDevices(options_.replicas,
                                      bytes_ > SIZE_MAX / copies ? SIZE_MAX : bytes_ * copies);
  if (!devices.ok()) return devices.status();
  for (int replica = 0; replica < options_.replicas; ++replica) {
    absl::Status status = MakeReplica(std::move((*devices)[static_cast<size_t>(replica)]));
    if (status.ok()) continue;
    replicas_.clear();
    return Prefixed(absl::StrCat("DataParallel, replica ", replica, ": "), status);
  }
  return absl::OkStatus();
}

std::vector<Chunk> DataParallel::Scatter(int64_t batch) {
  chunks_.clear();
  is_replicated_ = false;
  this_step_ = {};
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
  absl::Status status = RunOnDevices(active(), [this](int replica) {
    Replica& here = replicas_[static_cast<size_t>(replica)];
    std::fill(here.is_ready.begin(), here.is_ready.end(), 0);
    if (replica == 0) return absl::OkStatus();
    for (size_t id = 0; id < parameters_.size(); ++id) {
      absl::Status copied = here.device->Copy(At(here.parameters, offsets_[id]),
                                              {replicas_[0].device.get(), parameters_[id].data},
                                              BytesOf(parameters_[id]));
      if (!copied.ok()) {
        return Prefixed(absl::StrCat("copy parameter '", parameters_[id].name, "': "), copied);
      }
    }
    return here.device->Zero(here.gradients, bytes_);
  });
  if (!status.ok()) return status;
  this_step_.bytes_moved += BytesOfAll() * static_cast<size_t>(active() - 1);
  this_step_.replicate = Clock::now() - begin;
  is_replicated_ = true;
  return absl::OkStatus();
}

absl::Status DataParallel::CheckNotRunning() const {
  if (!is_running_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "DataParallel: a body has called what only the thread that runs them may call; it may call "
      "ParameterPtr(), GradientPtr(), GradientReady() and DeviceStream()");
}

// On the threads of the first `count` devices; waits for all and for what they began, whatever
// becomes of each: the memory that they use may go afterwards.
absl::Status DataParallel::RunOnDevices(int count,
                                        const std::function<absl::Status(int replica)>& body) {
  if (absl::Status status = CheckNotRunning(); !status.ok()) return status;
  is_running_ = true;
  for (int replica = 0; replica < count; ++replica) {
    Replica& here = replicas_[static_cast<size_t>(replica)];
    here.thread->Begin([&body, &here, replica] {
      absl::Status status = body(replica);
      status.Update(here.device->Wait());
      return status;
    });
  }
  absl::Status first;
  for (int replica = 0; replica < count; ++replica) {
    absl::Status status = replicas_[static_cast<size_t>(replica)].thread->Wait();
    if (status.ok() || !first.ok()) continue;
    first = Prefixed(absl::StrCat("replica ", replica, ": "), status);
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
  return RunOnDevices(active(), body);
}

bool DataParallel::IsKnown(int id, int replica) const {
  return id >= 0 && static_cast<size_t>(id) < parameters_.size() && replica >= 0 &&
         static_cast<size_t>(replica) < replicas_.size() &&
         static_cast<size_t>(id) < replicas_[0].is_ready.size();
}

void* DataParallel::ParameterPtr(int id, int replica) const {
  if (!IsKnown(id, replica)) return nullptr;
  if (replica == 0) return parameters_[static_cast<size_t>(id)].data;
  return At(replicas_[static_cast<size_t>(replica)].parameters, offsets_[static_cast<size_t>(id)]);
}

void* DataParallel::GradientPtr(int id, int replica) const {
  if (!IsKnown(id, replica)) return nullptr;
  return At(replicas_[static_cast<size_t>(replica)].gradients, offsets_[static_cast<size_t>(id)]);
}

Stream DataParallel::DeviceStream(int replica) const {
  if (replica < 0 || static_cast<size_t>(replica) >= replicas_.size()) return nullptr;
  return replicas_[static_cast<size_t>(replica)].device->stream();
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

absl::Status DataParallel::CheckRows(const char* call, size_t parts, const char* part) const {
  if (replicas_.empty()) {
    return absl::FailedPreconditionError("DataParallel: call Finalize() first");
  }
  if (parts == chunks_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(call, " of ", parts, " ", part, "s, but ",
                                                 chunks_.size(), " replicas take part"));
}

absl::Status DataParallel::ScatterRows(const void* input, size_t row_bytes,
                                       std::span<void* const> outputs) {
  absl::Status status = CheckRows("ScatterRows", outputs.size(), "output");
  if (!status.ok() || row_bytes == 0) return status;
  if (input == nullptr || std::find(outputs.begin(), outputs.end(), nullptr) != outputs.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ScatterRows: ", input == nullptr ? "the input" : "an output of a replica",
                     " has no memory"));
  }
  const Clock::time_point begin = Clock::now();
  uint64_t moved = 0;
  status = RunOnDevices(active(), [&](int replica) -> absl::Status {
    const Replica& here = replicas_[static_cast<size_t>(replica)];
    const Chunk& chunk = chunks_[static_cast<size_t>(replica)];
    const absl::StatusOr<bool> is_on_device = replicas_[0].device->Owns(input);
    if (!is_on_device.ok()) return is_on_device.status();
    const char* rows =
        static_cast<const char*>(input) + static_cast<size_t>(chunk.begin) * row_bytes;
    const size_t bytes = static_cast<size_t>(chunk.end - chunk.begin) * row_bytes;
    if (replica == 0) moved = *is_on_device ? 0 : bytes;
    return here.device->Copy(outputs[static_cast<size_t>(replica)],
                             {*is_on_device ? replicas_[0].device.get() : nullptr, rows}, bytes);
  });
  if (!status.ok()) return status;
  for (size_t i = 1; i < chunks_.size(); ++i) {
    moved += static_cast<size_t>(chunks_[i].end - chunks_[i].begin) * row_bytes;
  }
  this_step_.bytes_moved += moved;
  this_step_.scatter += Clock::now() - begin;
  return absl::OkStatus();
}

absl::Status DataParallel::Gather(std::span<const void* const> inputs, size_t row_bytes,
                                  void* output) {
  absl::Status status = CheckRows("Gather", inputs.size(), "output");
  if (!status.ok() || row_bytes == 0 || inputs.empty()) return status;
  if (output == nullptr || std::find(inputs.begin(), inputs.end(), nullptr) != inputs.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Gather: ", output == nullptr ? "the output" : "an output of a replica", " has no memory"));
  }
  const Clock::time_point begin = Clock::now();
  const auto bytes_of = [&](size_t i) {
    return static_cast<size_t>(chunks_[i].end - chunks_[i].begin) * row_bytes;
  };
  // Device 0's work.
  status = RunOnDevices(1, [&](int) {
    absl::Status copied;
    for (size_t i = 0; i < inputs.size() && copied.ok(); ++i) {
      copied =
          replicas_[0].device->Copy(At(output, static_cast<size_t>(chunks_[i].begin) * row_bytes),
                                    {replicas_[i].device.get(), inputs[i]}, bytes_of(i));
    }
    return copied;
  });
  if (!status.ok()) return status;
  for (size_t i = 1; i < inputs.size(); ++i) this_step_.bytes_moved += bytes_of(i);
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
  // The sums are device 0's work.
  absl::Status status = RunOnDevices(1, [this](int) {
    absl::Status added;
    for (const Run& run : runs_) {
      std::vector<ReplicaDevice::Place> parts;
      for (size_t replica = 1; replica < chunks_.size(); ++replica) {
        const Replica& other = replicas_[replica];
        parts.push_back({other.device.get(), At(other.gradients, run.offset)});
      }
      if (run.count == 0 || parts.empty() || !added.ok()) continue;
      added = replicas_[0].device->Add(run.dtype, At(replicas_[0].gradients, run.offset), parts,
                                       run.count);
    }
    return added;
  });
  if (!status.ok()) return status;
  this_step_.bytes_moved += BytesOfAll() * static_cast<size_t>(active() - 1);
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
  return RunOnDevices(
      1, [this](int) { return replicas_[0].device->Zero(replicas_[0].gradients, bytes_); });
}

size_t DataParallel::bytes_on(int replica) const {
  if (replica < 0 || static_cast<size_t>(replica) >= replicas_.size()) return 0;
  return 2 * bytes_;
}

}  // namespace ddp
