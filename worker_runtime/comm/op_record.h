// What a rank tells the others of the operation it enters, so that a mix-up is named.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_OP_RECORD_H_
#define DDPRUN_WORKER_RUNTIME_COMM_OP_RECORD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

struct OpRecord {
  uint64_t sequence;
  uint64_t count;
  int32_t root;
  int32_t destination;
  int32_t source;
  OpKind kind;
  DType dtype;
  ReduceOp reduce;
  uint8_t unused;
};
static_assert(sizeof(OpRecord) == 32);  // sent over sockets; ranks have one byte order

OpRecord RecordOf(const Op& op);
// What all ranks have alike in it: whom a rank sends to and receives from, and how much, is its own
// affair.
OpRecord SharedRecordOf(const Op& op);

// InvalidArgument naming both ranks and what each called, unless they called the same.
absl::Status CheckSame(int rank, const OpRecord& record, int other_rank, const OpRecord& other);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_OP_RECORD_H_
