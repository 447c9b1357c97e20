// NCCL's calls that enqueue work, and their groups.
#include <utility>

#include "tests/gpu_double/log.h"
#include "tests/gpu_double/nccl_comm.h"
#include "tests/gpu_double/reduce.h"

namespace ddprun::gpu_double {
namespace {

struct Call {
  std::shared_ptr<Comm> comm;
  CudaStream stream;
  Task task;
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;
thread_local NcclResult group_error = kNcclSuccess;

// An operation of one communicator: a collective, or the sends and receives of a group.
struct Operation {
  CudaStream stream;
  std::vector<Task> tasks;
};

// Counts a captured operation until whoever has it is gone: the capture, the graph, its
// executables, their launches.
std::shared_ptr<void> Hold(const std::shared_ptr<Comm>& comm) {
  std::lock_guard<std::mutex> lock(comm->mutex);
  comm->held_operations++;
  return std::shared_ptr<void>(nullptr, [comm](void*) {
    std::lock_guard<std::mutex> lock(comm->mutex);
    comm->held_operations--;
    comm->changed.notify_all();
  });
}

// Puts the operation on its stream. Operations of one communicator run in the order of the calls,
// also on several streams; in a graph its lanes decide.
NcclResult Enqueue(const std::shared_ptr<Comm>& comm, const Operation& operation) {
  int stream = 0;
  bool is_capturing = false;
  const CudaResult found = InspectStream(operation.stream, comm->device, &stream, &is_capturing);
  if (found != kCudaSuccess) return kNcclUnhandledCudaError;
  std::shared_ptr<Mark> before, end;
  std::shared_ptr<void> hold;
  if (is_capturing) {
    hold = Hold(comm);
  } else {
    end = std::make_shared<Mark>();
    std::lock_guard<std::mutex> lock(comm->mutex);
    before = std::exchange(comm->newest_end, end);
    comm->operations++;
  }
  Log("nccl comm=%d rank=%d enqueue %s count=%zu stream=%d%s", comm->id, comm->rank,
      NameOf(operation.tasks.front().kind), operation.tasks.front().count, stream,
      is_capturing ? " captured" : "");
  const CudaResult result =
      Submit(operation.stream, [comm, tasks = operation.tasks, stream, before, end, hold] {
        if (before != nullptr) before->Wait();
        RunTasks(*comm, tasks, stream);
        if (end == nullptr) return;
        end->Reach();
        std::lock_guard<std::mutex> lock(comm->mutex);
        comm->operations--;
        comm->changed.notify_all();
      });
  return result == kCudaSuccess ? kNcclSuccess : kNcclUnhandledCudaError;
}

NcclResult EnqueueAll(const std::shared_ptr<Comm>& comm, const std::vector<Operation>& all) {
  for (const Operation& operation : all) {
    const NcclResult result = Enqueue(comm, operation);
    if (result == kNcclSuccess) continue;
    comm->SetError(result, "the stream is gone, of another device, or its capture is invalid");
    return result;
  }
  return kNcclSuccess;
}

NcclResult Issue(const std::shared_ptr<Comm>& comm, const std::vector<Operation>& operations) {
  if (comm->CallHangs()) return Refuse(kNcclInternalError, "aborted while it waited for a peer");
  return EnqueueAll(comm, operations);
}

// The calls of one group, by communicator in the order of first use.
NcclResult IssueAll(const std::vector<Call>& calls) {
  std::vector<std::shared_ptr<Comm>> comms;
  for (const Call& call : calls) {
    bool is_known = false;
    for (const auto& comm : comms) is_known |= comm == call.comm;
    if (!is_known) comms.push_back(call.comm);
  }
  NcclResult result = kNcclSuccess;
  for (const auto& comm : comms) {
    std::vector<Operation> operations;
    Operation pairs{};
    for (const Call& call : calls) {
      if (call.comm != comm) continue;
      if (!call.task.is_pair()) {
        operations.push_back({call.stream, {call.task}});
      } else {
        pairs.stream = call.stream;
        pairs.tasks.push_back(call.task);
      }
    }
    if (!pairs.tasks.empty()) operations.push_back(pairs);
    const NcclResult issued = Issue(comm, operations);
    if (issued != kNcclSuccess) result = issued;
  }
  return result;
}

bool IsRegistered(Comm& comm, const void* pointer, size_t bytes) {
  const auto address = reinterpret_cast<CudaPointer>(pointer);
  std::lock_guard<std::mutex> lock(comm.mutex);
  for (const auto& [handle, range] : comm.registrations) {
    if (address < range.address) continue;
    const size_t offset = address - range.address;
    if (offset <= range.bytes && bytes <= range.bytes - offset) return true;
  }
  return false;
}

// Bytes that one rank passes in and gets out.
void Measure(const Comm& comm, Task& task) {
  const size_t bytes = task.count * SizeOf(task.type);
  const auto world_size = static_cast<size_t>(comm.world_size);
  task.input_bytes = task.kind == Task::Kind::kReduceScatter ? bytes * world_size : bytes;
  task.output_bytes = task.kind == Task::Kind::kAllGather ? bytes * world_size : bytes;
  const bool is_deaf = task.kind == Task::Kind::kSend ||
                       (task.kind == Task::Kind::kReduce && task.root != comm.rank);
  const bool is_mute = task.kind == Task::Kind::kRecv ||
                       (task.kind == Task::Kind::kBroadcast && task.root != comm.rank);
  if (is_deaf) task.output_bytes = 0;
  if (is_mute) task.input_bytes = 0;
}

NcclResult CheckMemory(Comm& comm, Task& task) {
  Measure(comm, task);
  const auto find = [](const void* pointer, size_t bytes) {
    return bytes == 0 ? View() : FindMemory(reinterpret_cast<CudaPointer>(pointer), bytes);
  };
  task.input_view = find(task.input, task.input_bytes);
  task.output_view = find(task.output, task.output_bytes);
  const auto is_bad = [&](const View& view, size_t bytes) {
    if (bytes == 0) return false;
    return view.host == nullptr ||
           (view.allocation != nullptr && view.allocation->device != comm.device);
  };
  if (is_bad(task.input_view, task.input_bytes) || is_bad(task.output_view, task.output_bytes)) {
    return Refuse(kNcclInvalidArgument, std::string(NameOf(task.kind)) +
                                            ": a buffer is not memory of device " +
                                            std::to_string(comm.device) + ", or ends too early");
  }
  task.is_registered =
      (task.input_bytes == 0 || IsRegistered(comm, task.input, task.input_bytes)) &&
      (task.output_bytes == 0 || IsRegistered(comm, task.output, task.output_bytes)) &&
      task.count > 0;
  return kNcclSuccess;
}

NcclResult Check(const Call& call) {
  if (CheckContext() != kCudaSuccess) {
    return Refuse(kNcclUnhandledCudaError, "no current context on this thread");
  }
  if (call.comm == nullptr) return kNcclInvalidArgument;
  const NcclResult ready = call.comm->CheckReady();
  if (ready != kNcclSuccess) return ready;
  const Task& task = call.task;
  if (SizeOf(task.type) == 0) return Refuse(kNcclInvalidArgument, "unknown data type");
  if (task.op < kNcclSum || task.op > kNcclAvg) {
    return Refuse(kNcclInvalidArgument, "no reduction " + std::to_string(task.op));
  }
  if (task.root < 0 || task.root >= call.comm->world_size) {
    return Refuse(kNcclInvalidArgument, "no rank " + std::to_string(task.root));
  }
  return kNcclSuccess;
}

NcclResult Add(NcclComm handle, CudaStream stream, Task task) {
  Call call = {FindComm(handle), stream, std::move(task)};
  NcclResult result = Check(call);
  if (result == kNcclSuccess) result = CheckMemory(*call.comm, call.task);
  int id = 0;
  bool is_capturing = false;
  if (result == kNcclSuccess &&
      InspectStream(stream, call.comm->device, &id, &is_capturing) != kCudaSuccess) {
    result = Refuse(kNcclInvalidArgument, "no such stream on the communicator's device");
  }
  if (result != kNcclSuccess) {
    if (group_depth > 0) group_error = result;
    return result;
  }
  Log("nccl comm=%d rank=%d call %s count=%zu type=%s op=%d root=%d registered=%d stream=%d",
      call.comm->id, call.comm->rank, NameOf(call.task.kind), call.task.count,
      NameOf(call.task.type), call.task.op, call.task.root, call.task.is_registered, id);
  if (group_depth == 0) return IssueAll({std::move(call)});
  group_calls.push_back(std::move(call));
  return kNcclSuccess;
}

}  // namespace

NcclResult ncclAllReduce(const void* input, void* output, size_t count, NcclDataType type,
                         NcclRedOp op, NcclComm comm, CudaStream stream) {
  return Add(comm, stream, {Task::Kind::kAllReduce, input, output, count, type, op, 0});
}

NcclResult ncclBroadcast(const void* input, void* output, size_t count, NcclDataType type, int root,
                         NcclComm comm, CudaStream stream) {
  return Add(comm, stream, {Task::Kind::kBroadcast, input, output, count, type, kNcclSum, root});
}

NcclResult ncclReduce(const void* input, void* output, size_t count, NcclDataType type,
                      NcclRedOp op, int root, NcclComm comm, CudaStream stream) {
  return Add(comm, stream, {Task::Kind::kReduce, input, output, count, type, op, root});
}

NcclResult ncclAllGather(const void* input, void* output, size_t count, NcclDataType type,
                         NcclComm comm, CudaStream stream) {
  return Add(comm, stream, {Task::Kind::kAllGather, input, output, count, type, kNcclSum, 0});
}

NcclResult ncclReduceScatter(const void* input, void* output, size_t count, NcclDataType type,
                             NcclRedOp op, NcclComm comm, CudaStream stream) {
  return Add(comm, stream, {Task::Kind::kReduceScatter, input, output, count, type, op, 0});
}

NcclResult ncclSend(const void* input, size_t count, NcclDataType type, int peer, NcclComm comm,
                    CudaStream stream) {
  return Add(comm, stream, {Task::Kind::kSend, input, nullptr, count, type, kNcclSum, peer});
}

NcclResult ncclRecv(void* output, size_t count, NcclDataType type, int peer, NcclComm comm,
                    CudaStream stream) {
  return Add(comm, stream, {Task::Kind::kRecv, nullptr, output, count, type, kNcclSum, peer});
}

NcclResult ncclGroupStart() {
  group_depth++;
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() {
  if (group_depth == 0) return Refuse(kNcclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return kNcclSuccess;
  const std::vector<Call> calls = std::exchange(group_calls, {});
  const NcclResult error = std::exchange(group_error, kNcclSuccess);
  // As the real one: a call that failed takes its group with it.
  return error != kNcclSuccess ? error : IssueAll(calls);
}

}  // namespace ddprun::gpu_double
