// What an operation does on its stream: the same steps on every rank, over the shared memory.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "tests/gpu_double/log.h"
#include "tests/gpu_double/nccl_comm.h"
#include "tests/gpu_double/reduce.h"

namespace ddprun::gpu_double {
namespace {

std::string Describe(int rank, const Announcement& call) {
  return "rank " + std::to_string(rank) + ": " + NameOf(static_cast<Task::Kind>(call.kind)) +
         " count=" + std::to_string(call.count) + " type=" + NameOf(call.type) +
         " op=" + std::to_string(call.op) + " root=" + std::to_string(call.root) +
         " registered=" + std::to_string(call.is_registered);
}

class Collective {
 public:
  Collective(Comm& comm, const Task& task) : comm_(comm), task_(task) {}

  // False when it was stopped or failed.
  bool Run() {
    if (!Agree()) return false;
    const char* input = task_.input_view.host;
    char* output = task_.output_view.host;
    const size_t bytes = task_.count * SizeOf(task_.type);
    switch (task_.kind) {
      case Task::Kind::kAllReduce:
        return ForChunks(bytes, [&](size_t at, size_t size) {
          return Exchange(input + at, size) && Sum(output + at, size);
        });
      case Task::Kind::kReduce:
        return ForChunks(bytes, [&](size_t at, size_t size) {
          return Exchange(input + at, size) && (comm_.rank != task_.root || Sum(output + at, size));
        });
      case Task::Kind::kBroadcast:
        return ForChunks(bytes, [&](size_t at, size_t size) {
          if (!Exchange(comm_.rank == task_.root ? input + at : nullptr, size)) return false;
          std::memmove(output + at, Received(task_.root), size);
          return true;
        });
      case Task::Kind::kAllGather:
        return ForChunks(bytes, [&](size_t at, size_t size) {
          if (!Exchange(input + at, size)) return false;
          for (int peer = 0; peer < comm_.world_size; ++peer) {
            std::memmove(output + static_cast<size_t>(peer) * bytes + at, Received(peer), size);
          }
          return true;
        });
      case Task::Kind::kReduceScatter:
        for (int owner = 0; owner < comm_.world_size; ++owner) {
          const char* segment = input + static_cast<size_t>(owner) * bytes;
          const bool is_done = ForChunks(bytes, [&](size_t at, size_t size) {
            return Exchange(segment + at, size) && (owner != comm_.rank || Sum(output + at, size));
          });
          if (!is_done) return false;
        }
        return true;
      case Task::Kind::kSend:
      case Task::Kind::kRecv:
        break;
    }
    return false;
  }

 private:
  template <typename Body>
  static bool ForChunks(size_t bytes, const Body& body) {
    for (size_t at = 0; at < bytes; at += kChunkBytes) {
      if (!body(at, std::min(kChunkBytes, bytes - at))) return false;
    }
    return true;
  }

  // Which of the two buffers the coming step uses.
  size_t Side() const { return comm_.steps & 1; }

  // Says that this rank's buffer is ready and waits for all others'. Nobody can be two steps ahead,
  // so the buffers of the step before may be filled again after the next call.
  bool Step() {
    const uint64_t step = ++comm_.steps;
    comm_.group->seat(comm_.rank).steps.store(step);
    comm_.group->Ring();
    return comm_.Await([&] {
      for (int peer = 0; peer < comm_.world_size; ++peer) {
        if (comm_.group->seat(peer).steps.load() < step) return false;
      }
      return true;
    });
  }

  // `input` null: this rank only listens.
  bool Exchange(const char* input, size_t size) {
    received_side_ = Side();
    if (input != nullptr) {
      std::memcpy(comm_.group->seat(comm_.rank).chunk[received_side_], input, size);
    }
    return Step();
  }

  const char* Received(int peer) { return comm_.group->seat(peer).chunk[received_side_]; }

  bool Sum(char* output, size_t size) {
    std::vector<const char*> inputs;
    for (int peer = 0; peer < comm_.world_size; ++peer) inputs.push_back(Received(peer));
    Reduce(inputs, output, size / SizeOf(task_.type), task_.type, task_.op,
           comm_.faults.rounds_average);
    return true;
  }

  // Whether all ranks make the same call. Real NCCL does not look; there it hangs or worse.
  bool Agree() {
    const size_t side = Side();
    const Announcement mine = {.kind = static_cast<int>(task_.kind),
                               .type = task_.type,
                               .op = task_.op,
                               .root = task_.root,
                               .count = task_.count,
                               .is_registered = task_.is_registered};
    comm_.group->seat(comm_.rank).announcement[side] = mine;
    if (!Step()) return false;
    const Announcement& first = comm_.group->seat(0).announcement[side];
    for (int peer = 1; peer < comm_.world_size; ++peer) {
      const Announcement& other = comm_.group->seat(peer).announcement[side];
      const bool is_same = first.kind == other.kind && first.type == other.type &&
                           first.op == other.op && first.root == other.root &&
                           first.count == other.count && first.is_registered == other.is_registered;
      const bool is_alike = first.kind == other.kind && first.root == other.root &&
                            first.count * SizeOf(first.type) == other.count * SizeOf(other.type);
      if (is_same || (comm_.faults.is_lenient && is_alike)) continue;
      // A blind rank sees nothing, as the real one, and waits for ever.
      if (!comm_.faults.is_blind) {
        comm_.SetError(kNcclInvalidUsage,
                       "mismatch: " + Describe(0, first) + "; " + Describe(peer, other));
      }
      comm_.Stall();
      return false;
    }
    return true;
  }

  Comm& comm_;
  const Task& task_;
  size_t received_side_ = 0;
};

// All sends and receives of one group: they progress together, whatever their order.
class Pairs {
 public:
  Pairs(Comm& comm, const std::vector<Task>& tasks) : comm_(comm) {
    for (const Task& task : tasks) transfers_.push_back({task, 0, false});
  }

  bool Run() {
    return comm_.Await([this] {
      // Again while something moved: a ring in between is for the peers.
      while (MoveAll()) {
      }
      return has_failed_ || std::all_of(transfers_.begin(), transfers_.end(),
                                        [](const Transfer& transfer) { return transfer.is_done; });
    }) && !has_failed_;
  }

 private:
  struct Transfer {
    const Task& task;
    size_t moved;
    bool is_done;
  };

  bool MoveAll() {
    bool has_moved = false;
    std::set<std::pair<Task::Kind, int>> taken;
    for (Transfer& transfer : transfers_) {
      if (transfer.is_done || has_failed_) continue;
      // Messages of one direction keep their order.
      if (!taken.emplace(transfer.task.kind, transfer.task.root).second) continue;
      has_moved |= transfer.task.kind == Task::Kind::kSend ? Send(transfer) : Receive(transfer);
    }
    return has_moved;
  }

  bool Send(Transfer& transfer) {
    Mail& mail = comm_.group->mail(comm_.rank, transfer.task.root);
    if (mail.written.load() != mail.read.load()) return false;
    mail.count = transfer.task.count;
    mail.type = transfer.task.type;
    const size_t size = Advance(transfer, transfer.task.input_bytes);
    if (size > 0) {
      std::memcpy(mail.chunk, transfer.task.input_view.host + transfer.moved - size, size);
    }
    mail.written.fetch_add(1);
    comm_.group->Ring();
    return true;
  }

  bool Receive(Transfer& transfer) {
    const Task& task = transfer.task;
    Mail& mail = comm_.group->mail(task.root, comm_.rank);
    if (mail.written.load() == mail.read.load()) return false;
    if (mail.count != task.count || mail.type != task.type) {
      has_failed_ = true;
      if (comm_.faults.is_blind) return false;
      comm_.SetError(kNcclInvalidUsage, "mismatch: rank " + std::to_string(task.root) +
                                            " sends count=" + std::to_string(mail.count) +
                                            " type=" + NameOf(mail.type) + ", rank " +
                                            std::to_string(comm_.rank) +
                                            " receives count=" + std::to_string(task.count) +
                                            " type=" + NameOf(task.type));
      return false;
    }
    const size_t size = Advance(transfer, task.output_bytes);
    if (size > 0) std::memcpy(task.output_view.host + transfer.moved - size, mail.chunk, size);
    mail.read.fetch_add(1);
    comm_.group->Ring();
    return true;
  }

  // Takes the next chunk of the message, of which there is one even when it is empty.
  static size_t Advance(Transfer& transfer, size_t bytes) {
    const size_t size = std::min(kMailBytes, bytes - transfer.moved);
    transfer.moved += size;
    transfer.is_done = transfer.moved == bytes;
    return size;
  }

  Comm& comm_;
  std::vector<Transfer> transfers_;
  bool has_failed_ = false;
};

// The faults of this operation; false when it must not take part.
bool PassFaults(Comm& comm, long number) {
  if (comm.faults.slow_ms > 0 && !comm.Sleep(comm.faults.slow_ms)) return false;
  if (comm.faults.async_error == number) {
    comm.SetError(kNcclSystemError, "injected: async_error=" + std::to_string(number));
  } else if (comm.faults.remote_error == number) {
    comm.SetError(kNcclRemoteError, "injected: remote_error=" + std::to_string(number));
  } else if (comm.faults.hang != number) {
    return true;
  }
  Log("nccl comm=%d rank=%d stalls op=%ld", comm.id, comm.rank, number);
  comm.Stall();
  return false;
}

// Whether the memory is still what it was at the call.
bool IsStillThere(const void* address, size_t bytes, const View& view) {
  if (view.allocation == nullptr) return true;
  const View now = FindMemory(reinterpret_cast<CudaPointer>(address), bytes);
  return now.allocation == view.allocation;
}

}  // namespace

const char* NameOf(Task::Kind kind) {
  switch (kind) {
    case Task::Kind::kAllReduce:
      return "allreduce";
    case Task::Kind::kBroadcast:
      return "broadcast";
    case Task::Kind::kAllGather:
      return "allgather";
    case Task::Kind::kReduceScatter:
      return "reducescatter";
    case Task::Kind::kReduce:
      return "reduce";
    case Task::Kind::kSend:
      return "send";
    case Task::Kind::kRecv:
      return "recv";
  }
  return "unknown";
}

void RunTasks(Comm& comm, const std::vector<Task>& tasks, int stream) {
  std::lock_guard<std::mutex> lock(comm.running);
  if (comm.must_stop()) return;
  const long number = ++comm.operations_begun;
  const Task& first = tasks.front();
  Log("nccl comm=%d rank=%d begin op=%ld %s count=%zu type=%s stream=%d", comm.id, comm.rank,
      number, NameOf(first.kind), first.count, NameOf(first.type), stream);
  for (const Task& task : tasks) {
    if (IsStillThere(task.input, task.input_bytes, task.input_view) &&
        IsStillThere(task.output, task.output_bytes, task.output_view)) {
      continue;
    }
    comm.SetError(kNcclUnhandledCudaError, "an illegal memory access was encountered");
    return comm.Stall();
  }
  if (!PassFaults(comm, number)) return;
  bool is_done = false;
  if (first.is_pair()) {
    is_done = Pairs(comm, tasks).Run();
    if (!is_done) comm.Stall();
  } else {
    is_done = Collective(comm, first).Run();
  }
  if (is_done && comm.faults.stays == number) {
    Log("nccl comm=%d rank=%d stays op=%ld", comm.id, comm.rank, number);
    return comm.Stall();
  }
  Log("nccl comm=%d rank=%d %s op=%ld %s", comm.id, comm.rank, is_done ? "end" : "give up", number,
      NameOf(first.kind));
}

}  // namespace ddprun::gpu_double
