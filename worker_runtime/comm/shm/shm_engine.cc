#include "worker_runtime/comm/shm/shm_engine.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/exchange.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/slice.h"

namespace ddp::internal {
namespace {

// Up to here every rank sums everything. With n ranks that reads n times as much, so it pays only
// while a second meeting costs more than the reading. In place it also saves two copies.
constexpr size_t kSmallBytes = 64 << 10;
constexpr size_t kSmallInPlaceBytes = 16 << 10;
// Per rank and step of a staged all-reduce: small enough for the caches, large enough to make the
// meetings cheap.
constexpr size_t kChunkBytes = 512 << 10;
static_assert(kChunkBytes <= kStagingBytes && kSmallBytes <= kStagingBytes);

}  // namespace

absl::Status ShmEngine::Run(const Op& op) {
  absl::Status status = Execute(op);
  // Whoever fails first says so to all: nobody waits for its own deadline.
  if (!status.ok()) domain_.Fail(status);
  return status;
}

void ShmEngine::Abort(const std::string& reason, std::optional<int> left_peer) {
  domain_.Fail(WithLeftPeer(
      absl::AbortedError(absl::StrCat("aborted by rank ", rank(), ": ", reason)), left_peer));
}

absl::Status ShmEngine::Execute(const Op& op) {
  absl::Status failed = domain_.failure();
  if (!failed.ok()) return failed;
  switch (op.kind) {
    case OpKind::kAllReduce:
      return op.bytes() <= kSmallBytes ? AllReduceSmall(op) : AllReduceLarge(op);
    case OpKind::kBroadcast:
      return Broadcast(op);
    case OpKind::kAllGather:
      return AllGather(op);
    case OpKind::kReduceScatter:
      return ReduceScatter(op);
    case OpKind::kBarrier:
      return domain_.Agree(op, Location(), domain_.NextStep());
    case OpKind::kAllocate:
      return Allocate(op);
    case OpKind::kReduce:
      return Reduce(op);
    case OpKind::kSendReceive:
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll:
      return PassParts(op);
    case OpKind::kReplay:
      break;  // of nccl alone: it does not come here
  }
  return absl::OkStatus();
}

absl::Status ShmEngine::AllReduceSmall(const Op& op) {
  Location location;
  if (op.bytes() > kSmallInPlaceBytes) location = domain_.Locate(op.output, op.bytes());
  uint32_t step = domain_.NextStep();
  if (!location.is_shared()) Copy(domain_.input(domain_.index(), step), op.input, op.bytes());
  absl::Status status = domain_.Agree(op, location, step);
  if (!status.ok() || op.count == 0) return status;
  if (domain_.IsSameLocation(step)) return AllReduceInPlace(op, location);
  if (domain_.IsAnyShared(step)) {
    // Some have not copied yet.
    step = domain_.NextStep();
    Copy(domain_.input(domain_.index(), step), op.input, op.bytes());
    status = domain_.Meet(op, step);
    if (!status.ok()) return status;
  }
  std::vector<const void*> inputs(static_cast<size_t>(domain_.size()));
  for (int i = 0; i < domain_.size(); ++i) inputs[i] = domain_.input(i, step);
  void* output = op.output;
  kernels_.reduce(op.reduce, op.dtype, inputs.data(), domain_.size(), &output, 1, op.count,
                  Divisor(op));
  return absl::OkStatus();
}

absl::Status ShmEngine::AllReduceLarge(const Op& op) {
  const Location location = domain_.Locate(op.output, op.bytes());
  const uint32_t step = domain_.NextStep();
  absl::Status status = domain_.Agree(op, location, step);
  if (!status.ok()) return status;
  return domain_.IsSameLocation(step) ? AllReduceInPlace(op, location) : AllReduceStaged(op);
}

// Works on all ranks' buffers while they wait in the finish of the same step.
absl::Status ShmEngine::AllReduceInPlace(const Op& op, const Location& location) {
  const size_t size = SizeOf(op.dtype);
  const Slice slice = SliceOf(op.count, size, domain_.size(), domain_.index());
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int i = 0; i < domain_.size(); ++i) {
    char* data = At(domain_.Resolve(i, location), slice.begin, size);
    inputs.push_back(data);
    outputs.push_back(data);
  }
  kernels_.reduce(op.reduce, op.dtype, inputs.data(), domain_.size(), outputs.data(),
                  domain_.size(), slice.count, Divisor(op));
  const uint32_t step = domain_.NextStep();
  domain_.PostArrived(step);
  return domain_.Finish(op, step);
}

absl::Status ShmEngine::AllReduceStaged(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t chunk = kChunkBytes / size;
  const int n = domain_.size();
  const int me = domain_.index();
  for (size_t begin = 0; begin < op.count; begin += chunk) {
    const size_t count = std::min(chunk, op.count - begin);
    char* data = At(op.output, begin, size);
    const uint32_t step = domain_.NextStep();
    const Slice mine = SliceOf(count, size, n, me);
    // The slice that this rank sums itself needs no copy.
    const size_t after = mine.begin + mine.count;
    Copy(domain_.input(me, step), data, mine.begin * size);
    Copy(At(domain_.input(me, step), after, size), At(data, after, size), (count - after) * size);
    absl::Status status = domain_.Meet(op, step);
    if (!status.ok()) return status;
    std::vector<const void*> inputs;
    for (int i = 0; i < n; ++i) {
      inputs.push_back(At(i == me ? data : domain_.input(i, step), mine.begin, size));
    }
    void* outputs[] = {At(data, mine.begin, size), At(domain_.result(me, step), mine.begin, size)};
    kernels_.reduce(op.reduce, op.dtype, inputs.data(), n, outputs, 2, mine.count, Divisor(op));
    status = domain_.Finish(op, step);
    if (!status.ok()) return status;
    for (int i = 0; i < n; ++i) {
      if (i == me) continue;
      const Slice theirs = SliceOf(count, size, n, i);
      Copy(At(data, theirs.begin, size), At(domain_.result(i, step), theirs.begin, size),
           theirs.count * size);
    }
  }
  return absl::OkStatus();
}

absl::Status ShmEngine::Broadcast(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t chunk = kStagingBytes / size;
  size_t begin = 0;
  do {
    const size_t count = std::min(chunk, op.count - begin);
    char* data = At(op.output, begin, size);
    const uint32_t step = domain_.NextStep();
    if (op.root == domain_.index()) Copy(domain_.input(op.root, step), data, count * size);
    absl::Status status = begin == 0 ? domain_.Agree(op, Location(), step) : domain_.Meet(op, step);
    if (!status.ok()) return status;
    if (op.root != domain_.index()) Copy(data, domain_.input(op.root, step), count * size);
    begin += count;
  } while (begin < op.count);
  return absl::OkStatus();
}

absl::Status ShmEngine::AllGather(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t chunk = kStagingBytes / size;
  size_t begin = 0;
  do {
    const size_t count = std::min(chunk, op.count - begin);
    const uint32_t step = domain_.NextStep();
    Copy(domain_.input(domain_.index(), step), At(op.input, begin, size), count * size);
    absl::Status status = begin == 0 ? domain_.Agree(op, Location(), step) : domain_.Meet(op, step);
    if (!status.ok()) return status;
    for (int i = 0; i < domain_.size(); ++i) {
      const size_t place = static_cast<size_t>(i) * op.count + begin;
      Copy(At(op.output, place, size), domain_.input(i, step), count * size);
    }
    begin += count;
  } while (begin < op.count);
  return absl::OkStatus();
}

absl::Status ShmEngine::ReduceScatter(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t n = static_cast<size_t>(domain_.size());
  const size_t me = static_cast<size_t>(domain_.index());
  const size_t chunk = kStagingBytes / size / n;
  size_t begin = 0;
  do {
    const size_t count = std::min(chunk, op.count - begin);
    const uint32_t step = domain_.NextStep();
    for (size_t to = 0; to < n; ++to) {
      if (to == me) continue;
      Copy(At(domain_.input(domain_.index(), step), to * chunk, size),
           At(op.input, to * op.count + begin, size), count * size);
    }
    absl::Status status = begin == 0 ? domain_.Agree(op, Location(), step) : domain_.Meet(op, step);
    if (!status.ok() || count == 0) return status;
    std::vector<const void*> inputs;
    for (size_t i = 0; i < n; ++i) {
      inputs.push_back(i == me ? At(op.input, me * op.count + begin, size)
                               : At(domain_.input(static_cast<int>(i), step), me * chunk, size));
    }
    void* output = At(op.output, begin, size);
    kernels_.reduce(op.reduce, op.dtype, inputs.data(), domain_.size(), &output, 1, count,
                    Divisor(op));
    begin += count;
  } while (begin < op.count);
  return absl::OkStatus();
}

// The root sums everything, while the others fill the next chunk.
absl::Status ShmEngine::Reduce(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const size_t chunk = kStagingBytes / size;
  const int me = domain_.index();
  size_t begin = 0;
  do {
    const size_t count = std::min(chunk, op.count - begin);
    const uint32_t step = domain_.NextStep();
    if (me != op.root) Copy(domain_.input(me, step), At(op.input, begin, size), count * size);
    absl::Status status = begin == 0 ? domain_.Agree(op, Location(), step) : domain_.Meet(op, step);
    if (!status.ok()) return status;
    if (me == op.root && count != 0) {
      std::vector<const void*> inputs;
      for (int i = 0; i < domain_.size(); ++i) {
        inputs.push_back(i == me ? At(op.input, begin, size) : domain_.input(i, step));
      }
      void* output = At(op.output, begin, size);
      kernels_.reduce(op.reduce, op.dtype, inputs.data(), domain_.size(), &output, 1, count,
                      Divisor(op));
    }
    begin += count;
  } while (begin < op.count);
  return absl::OkStatus();
}

absl::Status ShmEngine::PassParts(const Op& op) {
  const int n = domain_.size();
  const int me = domain_.index();
  Exchange exchange(op, me, n);
  const size_t chunk = PartBytes(static_cast<size_t>(exchange.slots()));
  size_t begin = 0;
  do {
    const uint32_t step = domain_.NextStep();
    const auto place = [&](int from, int to) {
      return domain_.input(from, step) + chunk * static_cast<size_t>(exchange.InputSlot(to));
    };
    for (int to = 0; to < n; ++to) {
      if (to == me) continue;
      Copy(place(me, to), At(op.input, exchange.InputBegin(to) + begin, 1),
           exchange.BytesIn(me, to, begin, chunk));
    }
    absl::Status status = begin == 0 ? domain_.Agree(op, Location(), step) : domain_.Meet(op, step);
    if (status.ok() && begin == 0) status = exchange.Learn(domain_.Records(step));
    if (!status.ok()) return status;
    for (int from = 0; from < n; ++from) {
      if (from == me) continue;
      Copy(At(op.output, exchange.OutputBegin(from) + begin, 1), place(from, me),
           exchange.BytesIn(from, me, begin, chunk));
    }
    begin += chunk;
  } while (begin < exchange.longest());
  Copy(At(op.output, exchange.OutputBegin(me), 1), At(op.input, exchange.InputBegin(me), 1),
       exchange.Bytes(me, me));
  return absl::OkStatus();
}

absl::Status ShmEngine::Allocate(const Op& op) {
  absl::Status status = domain_.CheckRoomFor(op);
  if (!status.ok()) return status;
  const uint32_t step = domain_.NextStep();
  status = domain_.Agree(op, Location(), step);
  if (!status.ok()) return status;
  auto buffer = domain_.Allocate(op, step);
  if (!buffer.ok()) return buffer.status();
  *static_cast<std::unique_ptr<Buffer>*>(op.output) = std::move(*buffer);
  return absl::OkStatus();
}

}  // namespace ddp::internal
