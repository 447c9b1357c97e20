// TcpEngine's operations. Each follows one pattern: the node's ranks make their input visible, a
// lane's rank exchanges it with the other nodes, and all take the result.
#include <algorithm>
#include <memory>
#include <utility>

#include "worker_runtime/comm/exchange.h"
#include "worker_runtime/comm/heap_buffer.h"
#include "worker_runtime/comm/slice.h"
#include "worker_runtime/comm/tcp/tcp_engine.h"

namespace ddp::internal {

absl::Status TcpEngine::Barrier(const Op& op) {
  const uint32_t step = NextStep();
  absl::Status status = Enter(op, step, true);
  if (status.ok() && IsFirst()) status = chain_.Synchronize(op);
  return status.ok() ? Finish(op, step) : status;
}

absl::Status TcpEngine::AllReduce(const Op& op) {
  if (domain_ == nullptr) return SumOnLane(op, op.count, {op.input}, {op.output}, true);
  const Location location = domain_->Locate(op.output, op.bytes());
  const uint32_t step = NextStep();
  absl::Status status = domain_->Agree(op, location, step);
  if (!status.ok()) return status;
  return domain_->IsSameLocation(step) ? AllReduceInPlace(op, location) : AllReduceStaged(op);
}

absl::Status TcpEngine::AllReduceInPlace(const Op& op, const Location& location) {
  if (IsOnLane()) {
    const size_t size = SizeOf(op.dtype);
    const Slice slice = SliceOf(op.count, size, place_.lanes, place_.index);
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (int i = 0; i < domain_->size(); ++i) {
      char* data = At(domain_->Resolve(i, location), slice.begin, size);
      inputs.push_back(data);
      outputs.push_back(data);
    }
    absl::Status status = SumOnLane(op, slice.count, std::move(inputs), std::move(outputs), true);
    if (!status.ok()) return status;
  }
  const uint32_t step = NextStep();
  domain_->PostArrived(step);
  return domain_->Finish(op, step);
}

// A lane's stream is the same bytes in the same order whether a node works in place or in chunks,
// so nodes may differ in that. A chunk holds a run of every lane's slice, in whole pieces: a
// neighbour that works in place would wait for the rest of a piece.
absl::Status TcpEngine::AllReduceStaged(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t lanes = static_cast<size_t>(place_.lanes);
  const size_t piece = ReduceStreams::kPieceBytes / AccumulatorSize(op.dtype);
  const size_t run = kStagingBytes / size / lanes / piece * piece;
  const size_t longest = SliceOf(op.count, size, place_.lanes, 0).count;
  for (size_t begin = 0; begin < longest; begin += run) {
    const uint32_t step = NextStep();
    // Lane `lane`'s part of this chunk: where in the data, where in staging.
    const auto part = [&](size_t lane) {
      const Slice slice = SliceOf(op.count, size, place_.lanes, static_cast<int>(lane));
      const size_t skipped = std::min(begin, slice.count);
      return Slice{slice.begin + skipped, std::min(run, slice.count - skipped)};
    };
    char* input = domain_->input(place_.index, step);
    for (size_t lane = 0; lane < lanes; ++lane) {
      Copy(At(input, lane * run, size), At(op.input, part(lane).begin, size),
           part(lane).count * size);
    }
    absl::Status status = domain_->Meet(op, step);
    const size_t mine = static_cast<size_t>(place_.index);
    if (status.ok() && IsOnLane() && (begin == 0 || part(mine).count != 0)) {
      std::vector<const void*> inputs;
      for (int i = 0; i < domain_->size(); ++i) {
        inputs.push_back(At(domain_->input(i, step), mine * run, size));
      }
      status = SumOnLane(op, part(mine).count, std::move(inputs),
                         {domain_->result(place_.index, step)}, begin == 0);
    }
    if (status.ok()) status = Finish(op, step);
    if (!status.ok()) return status;
    for (size_t lane = 0; lane < lanes; ++lane) {
      Copy(At(op.output, part(lane).begin, size), domain_->result(static_cast<int>(lane), step),
           part(lane).count * size);
    }
  }
  return absl::OkStatus();
}

absl::Status TcpEngine::Broadcast(const Op& op) {
  if (op.root < 0 || op.root >= world_size() || op.count == 0) return Barrier(op);
  const size_t size = SizeOf(op.dtype);
  const size_t chunk = domain_ == nullptr ? op.count : kStagingBytes / size;
  const int root_index = LocalIndex(op.root);
  for (size_t begin = 0; begin < op.count; begin += chunk) {
    const size_t bytes = std::min(chunk, op.count - begin) * size;
    char* data = At(op.output, begin, size);
    const uint32_t step = NextStep();
    char* shared = domain_ == nullptr ? data
                   : root_index >= 0  ? Input(root_index, step)
                                      : Result(step);
    if (rank_ == op.root) Copy(shared, data, bytes);
    absl::Status status = Enter(op, step, begin == 0);
    if (IsFirst()) {
      if (status.ok() && begin == 0) status = chain_.Synchronize(op);
      if (status.ok()) status = SpreadFrom(op, op.root, shared, bytes);
    }
    if (status.ok()) status = Finish(op, step);
    if (!status.ok()) return status;
    if (rank_ != op.root) Copy(data, shared, bytes);
  }
  return absl::OkStatus();
}

absl::Status TcpEngine::Collect(const Op& op, const void* input, void* output, size_t bytes) {
  if (bytes == 0) return Barrier(op);
  const size_t ranks = static_cast<size_t>(world_size());
  // Blocks go rank by rank, chunk by chunk, on all nodes alike; without staging anywhere there is
  // no reason for chunks.
  const size_t chunk = is_flat_ ? bytes : PartBytes(ranks);
  for (size_t begin = 0; begin < bytes; begin += chunk) {
    const size_t count = std::min(chunk, bytes - begin);
    const uint32_t step = NextStep();
    const char* mine = At(input, begin, 1);
    Copy(domain_ == nullptr ? At(output, static_cast<size_t>(rank_) * bytes + begin, 1)
                            : Input(place_.index, step),
         mine, count);
    // Where rank `from`'s block is, or comes to be.
    const auto block = [&](int from) {
      const size_t place = static_cast<size_t>(from);
      if (domain_ == nullptr) return At(output, place * bytes + begin, 1);
      const int index = LocalIndex(from);
      return index >= 0 ? Input(index, step) : Result(step) + place * count;
    };
    absl::Status status = Enter(op, step, begin == 0);
    if (IsFirst()) {
      if (status.ok() && begin == 0) status = chain_.Synchronize(op);
      for (int from = 0; status.ok() && from < world_size(); ++from) {
        status = SpreadFrom(op, from, block(from), count);
      }
    }
    if (status.ok()) status = Finish(op, step);
    if (!status.ok()) return status;
    for (int from = 0; domain_ != nullptr && from < world_size(); ++from) {
      Copy(At(output, static_cast<size_t>(from) * bytes + begin, 1), block(from), count);
    }
  }
  return absl::OkStatus();
}

absl::Status TcpEngine::ReduceScatter(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t ranks = static_cast<size_t>(world_size());
  const size_t chunk = kStagingBytes / size / ranks;
  for (size_t begin = 0; begin < op.count; begin += chunk) {
    const size_t count = std::min(chunk, op.count - begin);
    const uint32_t step = NextStep();
    char* packed = Input(place_.index, step);
    for (size_t to = 0; to < ranks; ++to) {
      Copy(At(packed, to * count, size), At(op.input, to * op.count + begin, size), count * size);
    }
    absl::Status status = Enter(op, step, begin == 0);
    if (status.ok() && IsFirst()) {
      std::vector<const void*> inputs;
      for (size_t i = 0; i < place_.ranks.size(); ++i) {
        inputs.push_back(Input(static_cast<int>(i), step));
      }
      status = SumOnLane(op, ranks * count, std::move(inputs), {Result(step)}, begin == 0);
    }
    if (status.ok()) status = Finish(op, step);
    if (!status.ok()) return status;
    Copy(At(op.output, begin, size), At(Result(step), static_cast<size_t>(rank_) * count, size),
         count * size);
  }
  return absl::OkStatus();
}

// The results pass all nodes on their way back; the root's takes them.
absl::Status TcpEngine::Reduce(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t chunk = kStagingBytes / size;
  for (size_t begin = 0; begin < op.count; begin += chunk) {
    const size_t count = std::min(chunk, op.count - begin);
    const uint32_t step = NextStep();
    Copy(Input(place_.index, step), At(op.input, begin, size), count * size);
    absl::Status status = Enter(op, step, begin == 0);
    if (status.ok() && IsFirst()) {
      std::vector<const void*> inputs;
      for (size_t i = 0; i < place_.ranks.size(); ++i) {
        inputs.push_back(Input(static_cast<int>(i), step));
      }
      status = SumOnLane(op, count, std::move(inputs), {Result(step)}, begin == 0);
    }
    if (status.ok()) status = Finish(op, step);
    if (!status.ok()) return status;
    if (rank_ == op.root) Copy(At(op.output, begin, size), Result(step), count * size);
  }
  return absl::OkStatus();
}

// Message by message, in one order on all nodes, so that none waits for one that waits for it.
// Within a node a part goes through the sender's staging; what comes from another node is put into
// the second half of the receiver's.
absl::Status TcpEngine::PassParts(const Op& op) {
  Exchange exchange(op, rank_, world_size());
  const bool is_pair = op.kind == OpKind::kSendReceive;
  if (is_pair) {
    std::vector<OpRecord> records(node_of_.size());
    const OpRecord mine = RecordOf(op);
    absl::Status status = Collect(op, &mine, records.data(), sizeof mine);
    if (status.ok()) status = exchange.Learn(records);
    if (!status.ok()) return status;
  }
  const size_t slots = static_cast<size_t>(exchange.slots());
  const size_t chunk = is_flat_ ? exchange.longest() : PartBytes(slots);
  for (size_t begin = 0; begin < exchange.longest(); begin += chunk) {
    const uint32_t step = NextStep();
    // Where the part of this chunk is on this node, for a rank that it has.
    const auto sent = [&](int from, int to) {
      if (domain_ == nullptr) {
        return const_cast<char*>(At(op.input, exchange.InputBegin(to) + begin, 1));
      }
      return Input(LocalIndex(from), step) + chunk * static_cast<size_t>(exchange.InputSlot(to));
    };
    const auto received = [&](int from, int to) {
      if (domain_ == nullptr) return At(op.output, exchange.OutputBegin(from) + begin, 1);
      return domain_->result(LocalIndex(to), step) +
             chunk * static_cast<size_t>(exchange.OutputSlot(from));
    };
    const auto bytes = [&](int from, int to) { return exchange.BytesIn(from, to, begin, chunk); };
    for (int to = 0; domain_ != nullptr && to < world_size(); ++to) {
      if (to == rank_) continue;
      Copy(sent(rank_, to), At(op.input, exchange.InputBegin(to) + begin, 1), bytes(rank_, to));
    }
    absl::Status status = Enter(op, step, begin == 0);
    if (status.ok() && begin == 0 && IsFirst() && !is_pair) status = chain_.Synchronize(op);
    for (int from = 0; status.ok() && IsFirst() && from < world_size(); ++from) {
      for (int to = 0; status.ok() && to < world_size(); ++to) {
        const int source = DirectionOf(from), destination = DirectionOf(to);
        if (source == destination || bytes(from, to) == 0) continue;
        char* data = source == 0 ? sent(from, to) : destination == 0 ? received(from, to) : nullptr;
        status = chain_.Carry(op, source, destination, data, bytes(from, to));
      }
    }
    if (status.ok()) status = Finish(op, step);
    if (!status.ok()) return status;
    for (int from = 0; domain_ != nullptr && from < world_size(); ++from) {
      if (from == rank_) continue;
      Copy(At(op.output, exchange.OutputBegin(from) + begin, 1),
           LocalIndex(from) >= 0 ? sent(from, rank_) : received(from, rank_), bytes(from, rank_));
    }
  }
  Copy(At(op.output, exchange.OutputBegin(rank_), 1), At(op.input, exchange.InputBegin(rank_), 1),
       exchange.Bytes(rank_, rank_));
  return absl::OkStatus();
}

absl::Status TcpEngine::Allocate(const Op& op) {
  absl::Status status = domain_ == nullptr ? absl::OkStatus() : domain_->CheckRoomFor(op);
  if (status.ok()) status = Barrier(op);
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Buffer>> buffer;
  if (domain_ == nullptr) {
    buffer = AllocateHeapBuffer(op.count);
  } else {
    const uint32_t step = NextStep();
    domain_->PostArrived(step);
    buffer = domain_->Allocate(op, step);
  }
  if (!buffer.ok()) return buffer.status();
  *static_cast<std::unique_ptr<Buffer>*>(op.output) = std::move(*buffer);
  return absl::OkStatus();
}

}  // namespace ddp::internal
