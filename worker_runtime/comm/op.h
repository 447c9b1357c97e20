// One collective as a value.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_OP_H_
#define DDPRUN_WORKER_RUNTIME_COMM_OP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"
#include "worker_runtime/comm/name_ranks.h"  // IWYU pragma: export

namespace ddp::internal {

using Clock = std::chrono::steady_clock;

enum class OpKind : uint8_t {
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kBarrier,
  kAllocate,
  kSendReceive,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kReplay,  // of a graph of operations, as one; it stands for the numbers of all of them
};

struct Op {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUint8;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;  // of kBroadcast, kReduce, kGather and kScatter; of a kAllReduce in pieces a
                 // number for where they are cut
  int destination = -1;   // where kSendReceive sends to, -1 for nowhere
  int source = -1;        // where kSendReceive receives from, -1 for nowhere
  size_t count = 0;       // elements as in Communicator's calls; bytes for kAllocate; operations
                          // in the graph for kReplay
  uint64_t sequence = 0;  // 1 for the group's first operation
  const void* input = nullptr;
  void* output = nullptr;     // kAllocate: a std::unique_ptr<Buffer>
  std::vector<Piece> pieces;  // of a kAllReduce instead of input and output; `count` is of all
  std::chrono::milliseconds timeout{0};
  Clock::time_point deadline;
  bool is_awaited = false;  // a caller has nothing else to do: its core may be spent on waiting

  size_t bytes() const { return count * SizeOf(dtype); }
};

// The all-reduce of a part of those of `op`.
Op WithoutPieces(const Op& op, void* data, size_t count);

// "all-reduce #12 (float32 x 1000, sum)"; without the number while there is none.
std::string Describe(const Op& op);

// Elements that a rank passes in and gets out; 0 where it need not have that memory at all.
struct Extent {
  size_t input = 0;
  size_t output = 0;
};
// REQUIRES: they can be addressed.
Extent ExtentOf(const Op& op, int rank, int world_size);

// InvalidArgument for a call that is wrong whatever the other ranks call: a value that an enum does
// not have, elements at a null pointer, more bytes than can be addressed, a rank outside the group,
// an input and an output that overlap otherwise than the operation allows.
absl::Status CheckArguments(const Op& op, int rank, int world_size);

// Of a `call` that comes to a group that `error` has ended. A mismatch is named by operations, and
// would read as if of this one.
absl::Status AfterEnd(const absl::Status& error, absl::string_view call);

bool IsBitwise(ReduceOp op);

// "3 s", "1500 ms".
std::string NameDuration(std::chrono::milliseconds duration);

// Whether `op` waits for so long that the others should hear of it: a quarter of its timeout, at
// most 10 s. Early enough for all to know, when the timeout comes, who is waiting and who is
// missing.
bool IsStuck(const Op& op);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_OP_H_
