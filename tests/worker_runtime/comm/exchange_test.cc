#include "worker_runtime/comm/exchange.h"

#include <doctest/doctest.h>

#include <vector>

namespace ddp::internal {
namespace {

Op SendReceive(int destination, int source, size_t count, DType dtype = DType::kFloat32) {
  Op op;
  op.kind = OpKind::kSendReceive;
  op.dtype = dtype;
  op.destination = destination;
  op.source = source;
  op.count = count;
  op.sequence = 4;
  return op;
}

std::vector<OpRecord> RecordsOf(const std::vector<Op>& ops) {
  std::vector<OpRecord> records;
  for (const Op& op : ops) records.push_back(RecordOf(op));
  return records;
}

TEST_CASE("exchange: a gather goes to its root, a scatter comes from it, all-to-all is both") {
  Op op;
  op.dtype = DType::kInt64;
  op.count = 3;
  op.root = 1;
  op.kind = OpKind::kGather;
  const Exchange gather(op, 0, 4);
  CHECK(gather.Bytes(2, 1) == 24);
  CHECK(gather.Bytes(1, 2) == 0);
  CHECK(gather.InputBegin(1) == 0);
  CHECK(gather.OutputBegin(2) == 48);
  op.kind = OpKind::kScatter;
  const Exchange scatter(op, 0, 4);
  CHECK(scatter.Bytes(2, 1) == 0);
  CHECK(scatter.Bytes(1, 2) == 24);
  CHECK(scatter.InputBegin(2) == 48);
  CHECK(scatter.OutputBegin(1) == 0);
  op.kind = OpKind::kAllToAll;
  const Exchange both(op, 0, 4);
  CHECK(both.Bytes(3, 3) == 24);
  CHECK(both.InputBegin(2) == 48);
  CHECK(both.OutputBegin(3) == 72);
  CHECK(both.BytesIn(0, 1, 16, 100) == 8);
  CHECK(both.BytesIn(0, 1, 100, 100) == 0);
}

TEST_CASE("exchange: a rank knows its own messages before it hears of the others'") {
  const Exchange middle(SendReceive(2, 0, 5), 1, 3);
  CHECK(middle.Bytes(1, 2) == 20);
  CHECK(middle.Bytes(0, 1) == 20);
  CHECK(middle.Bytes(2, 0) == 0);
}

TEST_CASE("exchange: pairs differ in count and type, and the longest says how long it takes") {
  const std::vector<Op> ops = {SendReceive(1, 1, 5), SendReceive(0, 0, 5),
                               SendReceive(3, -1, 7, DType::kFloat64),
                               SendReceive(-1, 2, 7, DType::kFloat64)};
  for (int rank = 0; rank < 4; ++rank) {
    Exchange exchange(ops[static_cast<size_t>(rank)], rank, 4);
    CHECK(exchange.Learn(RecordsOf(ops)).ok());
    CHECK(exchange.longest() == 56);
    CHECK(exchange.Bytes(2, 3) == 56);
    CHECK(exchange.Bytes(3, 2) == 0);
    CHECK(exchange.Bytes(0, 1) == 20);
  }
}

TEST_CASE("exchange: two ranks that disagree are told of in the same words on all") {
  struct Row {
    std::vector<Op> ops;
    const char* words;
  };
  const Row rows[] = {
      {{SendReceive(1, -1, 5), SendReceive(-1, 0, 6), SendReceive(-1, -1, 1)},
       "send-receive #4: rank 0 sends float32 x 5 to rank 1, but rank 1 receives float32 x 6 from "
       "rank 0"},
      {{SendReceive(1, -1, 5), SendReceive(-1, 0, 5, DType::kInt32), SendReceive(-1, -1, 1)},
       "send-receive #4: rank 0 sends float32 x 5 to rank 1, but rank 1 receives int32 x 5 from "
       "rank 0"},
      {{SendReceive(1, -1, 5), SendReceive(-1, -1, 5), SendReceive(-1, -1, 1)},
       "send-receive #4: rank 0 sends float32 x 5 to rank 1, but rank 1 receives nothing"},
      {{SendReceive(-1, 2, 5), SendReceive(-1, -1, 5), SendReceive(1, -1, 5)},
       "send-receive #4: rank 2 sends float32 x 5 to rank 1, but rank 0 receives float32 x 5 from "
       "rank 2"},
      {{SendReceive(2, -1, 5), SendReceive(2, -1, 5), SendReceive(-1, 0, 5)},
       "send-receive #4: rank 1 sends float32 x 5 to rank 2, but rank 2 receives float32 x 5 from "
       "rank 0"},
  };
  for (const Row& row : rows) {
    for (int rank = 0; rank < 3; ++rank) {
      Exchange exchange(row.ops[static_cast<size_t>(rank)], rank, 3);
      const absl::Status status = exchange.Learn(RecordsOf(row.ops));
      CHECK(absl::IsInvalidArgument(status));
      CHECK(status.message() == row.words);
    }
  }
}

TEST_CASE("exchange: a record that cannot be one is garbage, and is not used") {
  for (const Op& garbage : {SendReceive(2, -1, 5), SendReceive(-1, 1 << 20, 5),
                            SendReceive(-2, -1, 5), SendReceive(-1, -2, 5),
                            SendReceive(0, -1, SIZE_MAX / 2), SendReceive(0, -1, 5, DType(99))}) {
    std::vector<OpRecord> records = RecordsOf({SendReceive(-1, -1, 1)});
    records.push_back(RecordOf(garbage));
    Exchange exchange(SendReceive(-1, -1, 1), 0, 2);
    const absl::Status status = exchange.Learn(records);
    CHECK(absl::IsInternal(status));
    CHECK(status.message() == "send-receive #4 failed: rank 1 sent garbage");
  }
}

}  // namespace
}  // namespace ddp::internal
