// Collectives of ddp/c.h, and their handles.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/c.h"
#include "ddp/communicator.h"
#include "worker_runtime/c_face/convert.h"

namespace ddp::internal {
namespace {

// A call that was refused before it got to the communicator.
class RefusedWork final : public Work {
 public:
  explicit RefusedWork(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }
  absl::Status WaitOn(Stream) override { return status_; }
  bool IsDone() const override { return true; }
  bool was_refused() const override { return true; }
  Clock::time_point started_at() const override { return called_at_; }
  Clock::time_point ended_at() const override { return called_at_; }

 private:
  const absl::Status status_;
  const Clock::time_point called_at_ = Clock::now();
};

Work* WorkOf(ddp_work* handle) { return reinterpret_cast<Work*>(handle); }
const Work* WorkOf(const ddp_work* handle) { return reinterpret_cast<const Work*>(handle); }

// Calls `start(communicator, dtype, op)`, which returns the Work, for a function with these
// arguments.
template <typename Start>
ddp_work* Started(const char* call, ddp_communicator* communicator, ddp_dtype dtype,
                  ddp_reduce_op op, const Start& start) noexcept {
  try {
    absl::Status status = CheckPointers(call, {{"communicator", communicator}});
    const auto type = DTypeOf(dtype);
    const auto reduce = ReduceOpOf(op);
    if (status.ok()) status = type.status();
    if (status.ok()) status = reduce.status();
    std::unique_ptr<Work> work = status.ok() ? start(*CommunicatorOf(communicator), *type, *reduce)
                                             : std::make_unique<RefusedWork>(status);
    return reinterpret_cast<ddp_work*>(work.release());
  } catch (...) {
    (void)ToldException();
    return nullptr;
  }
}

}  // namespace
}  // namespace ddp::internal

using ddp::Communicator;
using ddp::DType;
using ddp::ReduceOp;
using ddp::internal::CheckPointers;
using ddp::internal::Guarded;
using ddp::internal::Started;
using ddp::internal::WorkOf;

ddp_work* ddp_all_reduce(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                         ddp_reduce_op op, ddp_stream stream) {
  return Started(__func__, communicator, dtype, op,
                 [&](Communicator& ranks, DType type, ReduceOp reduce) {
                   return ranks.AllReduce(data, count, type, reduce, stream);
                 });
}

ddp_work* ddp_all_reduce_coalesced(ddp_communicator* communicator, const ddp_piece* pieces,
                                   size_t piece_count, ddp_dtype dtype, ddp_reduce_op op,
                                   ddp_stream stream) {
  return Started(
      __func__, communicator, dtype, op,
      [&](Communicator& ranks, DType type, ReduceOp reduce) -> std::unique_ptr<ddp::Work> {
        if (pieces == nullptr && piece_count > 0) {
          return std::make_unique<ddp::internal::RefusedWork>(
              CheckPointers("ddp_all_reduce_coalesced", {{"pieces", pieces}}));
        }
        std::vector<ddp::Piece> copied;
        copied.reserve(piece_count);
        for (size_t i = 0; i < piece_count; ++i) {
          copied.push_back({.data = pieces[i].data, .count = pieces[i].count});
        }
        return ranks.AllReduceCoalesced(std::move(copied), type, reduce, stream);
      });
}

ddp_work* ddp_broadcast(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                        int root, ddp_stream stream) {
  return Started(__func__, communicator, dtype, DDP_SUM,
                 [&](Communicator& ranks, DType type, ReduceOp) {
                   return ranks.Broadcast(data, count, type, root, stream);
                 });
}

ddp_work* ddp_all_gather(ddp_communicator* communicator, const void* input, void* output,
                         size_t count, ddp_dtype dtype, ddp_stream stream) {
  return Started(__func__, communicator, dtype, DDP_SUM,
                 [&](Communicator& ranks, DType type, ReduceOp) {
                   return ranks.AllGather(input, output, count, type, stream);
                 });
}

ddp_work* ddp_reduce_scatter(ddp_communicator* communicator, const void* input, void* output,
                             size_t count, ddp_dtype dtype, ddp_reduce_op op, ddp_stream stream) {
  return Started(__func__, communicator, dtype, op,
                 [&](Communicator& ranks, DType type, ReduceOp reduce) {
                   return ranks.ReduceScatter(input, output, count, type, reduce, stream);
                 });
}

ddp_work* ddp_reduce(ddp_communicator* communicator, const void* input, void* output, size_t count,
                     ddp_dtype dtype, ddp_reduce_op op, int root, ddp_stream stream) {
  return Started(__func__, communicator, dtype, op,
                 [&](Communicator& ranks, DType type, ReduceOp reduce) {
                   return ranks.Reduce(input, output, count, type, reduce, root, stream);
                 });
}

ddp_work* ddp_gather(ddp_communicator* communicator, const void* input, void* output, size_t count,
                     ddp_dtype dtype, int root, ddp_stream stream) {
  return Started(__func__, communicator, dtype, DDP_SUM,
                 [&](Communicator& ranks, DType type, ReduceOp) {
                   return ranks.Gather(input, output, count, type, root, stream);
                 });
}

ddp_work* ddp_scatter(ddp_communicator* communicator, const void* input, void* output, size_t count,
                      ddp_dtype dtype, int root, ddp_stream stream) {
  return Started(__func__, communicator, dtype, DDP_SUM,
                 [&](Communicator& ranks, DType type, ReduceOp) {
                   return ranks.Scatter(input, output, count, type, root, stream);
                 });
}

ddp_work* ddp_all_to_all(ddp_communicator* communicator, const void* input, void* output,
                         size_t count, ddp_dtype dtype, ddp_stream stream) {
  return Started(__func__, communicator, dtype, DDP_SUM,
                 [&](Communicator& ranks, DType type, ReduceOp) {
                   return ranks.AllToAll(input, output, count, type, stream);
                 });
}

ddp_work* ddp_send_receive(ddp_communicator* communicator, const void* input, int destination,
                           void* output, int source, size_t count, ddp_dtype dtype,
                           ddp_stream stream) {
  return Started(
      __func__, communicator, dtype, DDP_SUM, [&](Communicator& ranks, DType type, ReduceOp) {
        return ranks.SendReceive(input, destination, output, source, count, type, stream);
      });
}

ddp_work* ddp_barrier(ddp_communicator* communicator) {
  return Started(__func__, communicator, DDP_UINT8, DDP_SUM,
                 [](Communicator& ranks, DType, ReduceOp) { return ranks.Barrier(); });
}

ddp_work* ddp_send(ddp_communicator* communicator, const void* data, size_t count, ddp_dtype dtype,
                   int destination, uint64_t tag) {
  return Started(__func__, communicator, dtype, DDP_SUM,
                 [&](Communicator& ranks, DType type, ReduceOp) {
                   return ranks.host().Send(data, count, type, destination, tag);
                 });
}

ddp_work* ddp_receive(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                      int source, uint64_t tag) {
  return Started(__func__, communicator, dtype, DDP_SUM,
                 [&](Communicator& ranks, DType type, ReduceOp) {
                   return ranks.host().Receive(data, count, type, source, tag);
                 });
}

int ddp_work_source(const ddp_work* work) { return work == nullptr ? -1 : WorkOf(work)->source(); }

const char* ddp_work_missing(const ddp_work* work) {
  static thread_local std::string words;
  try {
    words = work == nullptr ? "" : WorkOf(work)->missing();
  } catch (...) {
    words.clear();
  }
  return words.c_str();
}

ddp_code ddp_work_wait(ddp_work* work) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_work_wait", {{"work", work}});
    return status.ok() ? WorkOf(work)->Wait() : status;
  });
}

int ddp_work_wait_for(const ddp_work* work, int64_t patience_ms) {
  if (work == nullptr) return -1;
  // No clock counts further from now than this.
  constexpr int64_t kLongest = int64_t{365} * 24 * 3600 * 1000;
  const std::chrono::milliseconds patience(std::clamp<int64_t>(patience_ms, 0, kLongest));
  return WorkOf(work)->WaitFor(patience) ? 1 : 0;
}

ddp_code ddp_work_wait_on(ddp_work* work, ddp_stream stream) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_work_wait_on", {{"work", work}});
    return status.ok() ? WorkOf(work)->WaitOn(stream) : status;
  });
}

ddp_code ddp_complete(ddp_work* work) {
  const ddp_code code = ddp_work_wait(work);
  ddp_work_free(work);
  return code;
}

int ddp_work_is_done(const ddp_work* work) {
  if (work == nullptr) return -1;
  return WorkOf(work)->IsDone() ? 1 : 0;
}

void ddp_work_free(ddp_work* work) { delete WorkOf(work); }
