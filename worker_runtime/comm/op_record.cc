#include "worker_runtime/comm/op_record.h"

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

std::string DescribeRecord(const OpRecord& record) {
  Op op;
  op.sequence = record.sequence;
  op.count = record.count;
  op.root = record.root;
  op.kind = record.kind;
  op.dtype = record.dtype;
  op.reduce = record.reduce;
  return Describe(op);
}

}  // namespace

OpRecord RecordOf(const Op& op) {
  return {op.sequence, op.count,  op.root, op.destination, op.source, op.kind,
          op.dtype,    op.reduce, 0};
}

OpRecord SharedRecordOf(const Op& op) {
  OpRecord record = RecordOf(op);
  if (op.kind != OpKind::kSendReceive) return record;
  record.destination = record.source = -1;
  record.count = 0;
  record.dtype = DType::kUint8;
  return record;
}

absl::Status CheckSame(int rank, const OpRecord& record, int other_rank, const OpRecord& other) {
  const bool is_pair = record.kind == OpKind::kSendReceive && other.kind == record.kind;
  if (is_pair && record.sequence == other.sequence) return absl::OkStatus();
  if (record.sequence == other.sequence && record.count == other.count &&
      record.root == other.root && record.kind == other.kind && record.dtype == other.dtype &&
      record.reduce == other.reduce) {
    return absl::OkStatus();
  }
  const bool is_cut_otherwise =
      record.kind == OpKind::kAllReduce && other.kind == record.kind && record.root != other.root;
  return absl::InvalidArgumentError(absl::StrCat(
      "the ranks call different operations: rank ", rank, " ", DescribeRecord(record), ", rank ",
      other_rank, " ", DescribeRecord(other), is_cut_otherwise ? ", in other pieces" : "",
      "; all ranks make the same calls in the same order, those within DistributedDataParallel and "
      "checkpoints too"));
}

}  // namespace ddp::internal
