#include "worker_runtime/comm/op.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

constexpr OpKind kWithElements[] = {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kAllGather,
                                    OpKind::kReduceScatter};

Op Call(OpKind kind, DType dtype, size_t count) {
  static char bytes[16];
  Op op;
  op.kind = kind;
  op.dtype = dtype;
  op.count = count;
  op.input = bytes;
  op.output = bytes;
  return op;
}

TEST_CASE("op: a description names the number once there is one") {
  Op op = Call(OpKind::kAllReduce, DType::kFloat32, 1000);
  CHECK(Describe(op) == "all-reduce (float32 x 1000, sum)");
  op.sequence = 12;
  CHECK(Describe(op) == "all-reduce #12 (float32 x 1000, sum)");
  op.kind = OpKind::kReduceScatter;
  op.reduce = ReduceOp::kAverage;
  CHECK(Describe(op) == "reduce-scatter #12 (float32 x 1000, average)");
  op.reduce = ReduceOp::kMax;
  CHECK(Describe(op) == "reduce-scatter #12 (float32 x 1000, max)");
  op.reduce = ReduceOp::kMin;
  CHECK(Describe(op) == "reduce-scatter #12 (float32 x 1000, min)");
  op.reduce = ReduceOp::kProduct;
  CHECK(Describe(op) == "reduce-scatter #12 (float32 x 1000, product)");
  op.kind = OpKind::kBroadcast;
  op.root = 3;
  CHECK(Describe(op) == "broadcast #12 (float32 x 1000, root 3)");
  op.kind = OpKind::kAllGather;
  CHECK(Describe(op) == "all-gather #12 (float32 x 1000)");
  op.kind = OpKind::kBarrier;
  CHECK(Describe(op) == "barrier #12");
  op.kind = OpKind::kAllocate;
  CHECK(Describe(op) == "allocate #12 (1000 bytes)");
  op.kind = OpKind::kReplay;
  op.count = 3;
  CHECK(Describe(op) == "graph replay #12 (3 operations)");
  op.count = 1;
  CHECK(Describe(op) == "graph replay #12 (1 operation)");
}

TEST_CASE("op: values that the enums do not have are refused, and nothing names them") {
  Op op = Call(OpKind::kAllReduce, static_cast<DType>(99), 1);
  CHECK(CheckArguments(op, 0, 4).message() ==
        "a collective of element type 99 and reduction 0: ddp/dtype.h does not have both");
  op = Call(OpKind::kAllReduce, DType::kFloat32, 1);
  op.reduce = static_cast<ReduceOp>(8);
  CHECK(CheckArguments(op, 0, 4).message() ==
        "a collective of element type 0 and reduction 8: ddp/dtype.h does not have both");
}

TEST_CASE("op: bits of floats are not combined, those of integers are") {
  for (ReduceOp reduce : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
    Op op = Call(OpKind::kAllReduce, DType::kInt8, 1);
    op.reduce = reduce;
    CHECK(CheckArguments(op, 0, 4).ok());
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      op.dtype = dtype;
      CHECK(CheckArguments(op, 0, 4).message() ==
            Describe(op) + ": operations on bits are for integers");
    }
  }
}

TEST_CASE("op: elements need both pointers, nothing needs none") {
  for (OpKind kind : kWithElements) {
    Op op = Call(kind, DType::kFloat32, 1);
    CHECK(CheckArguments(op, 0, 4).ok());
    op.output = nullptr;
    CHECK(CheckArguments(op, 0, 4).message() == Describe(op) + ": the output is a null pointer");
    op.input = nullptr;
    CHECK(CheckArguments(op, 0, 4).message() == Describe(op) + ": the input is a null pointer");
    CHECK(absl::IsInvalidArgument(CheckArguments(op, 0, 4)));
    op.count = 0;
    CHECK(CheckArguments(op, 0, 4).ok());
  }
  CHECK(CheckArguments(Op(), 0, 4).ok());  // a barrier
}

TEST_CASE("op: a count is refused from the first one on whose bytes cannot be addressed") {
  struct Row {
    OpKind kind;
    DType dtype;
    int world_size;
    size_t most;
  };
  const size_t all = PTRDIFF_MAX;
  for (const Row& row : {Row{OpKind::kAllReduce, DType::kUint8, 1000, all},
                         Row{OpKind::kAllReduce, DType::kFloat16, 1000, all / 2},
                         Row{OpKind::kBroadcast, DType::kFloat64, 1000, all / 8},
                         Row{OpKind::kAllGather, DType::kFloat32, 3, all / 4 / 3},
                         Row{OpKind::kReduceScatter, DType::kInt64, 1000, all / 8 / 1000},
                         Row{OpKind::kAllocate, DType::kUint8, 4, all / 4}}) {
    CAPTURE(Describe(Call(row.kind, row.dtype, row.most)));
    CHECK(CheckArguments(Call(row.kind, row.dtype, row.most), 0, row.world_size).ok());
    for (size_t count : {row.most + 1, SIZE_MAX / 8, SIZE_MAX / 8 + 1, SIZE_MAX}) {
      if (count <= row.most) continue;
      absl::Status status = CheckArguments(Call(row.kind, row.dtype, count), 0, row.world_size);
      CHECK(absl::IsInvalidArgument(status));
      CHECK(status.message() == Contains("more bytes than can be addressed"));
    }
  }
}

TEST_CASE("op: a root outside the group is refused") {
  Op op = Call(OpKind::kBroadcast, DType::kUint8, 1);
  for (int root : {0, 3}) {
    op.root = root;
    CHECK(CheckArguments(op, 0, 4).ok());
  }
  for (int root : {-1, 4}) {
    op.root = root;
    CHECK(CheckArguments(op, 0, 4).message() ==
          "broadcast from rank " + std::to_string(root) + " in a group of 4 ranks");
  }
}

TEST_CASE("op: a rank without a part in it needs no memory") {
  Op op = Call(OpKind::kGather, DType::kFloat32, 1);
  op.root = 2;
  op.output = nullptr;
  CHECK(CheckArguments(op, 1, 4).ok());
  CHECK(CheckArguments(op, 2, 4).message() ==
        "gather (float32 x 1, root 2): the output is a null pointer");
  op = Call(OpKind::kScatter, DType::kFloat32, 1);
  op.root = 2;
  op.input = nullptr;
  CHECK(CheckArguments(op, 1, 4).ok());
  CHECK(CheckArguments(op, 2, 4).message() ==
        "scatter (float32 x 1, root 2): the input is a null pointer");
}

TEST_CASE("op: input and output overlap in place alone") {
  static char bytes[64];
  struct Row {
    OpKind kind;
    size_t input;  // where in `bytes`
    size_t output;
    bool is_allowed;  // on rank 1 of 4, root 1, 2 x float32
  };
  for (const Row& row :
       {Row{OpKind::kAllGather, 8, 0, true}, Row{OpKind::kAllGather, 0, 0, false},
        Row{OpKind::kAllGather, 32, 0, true}, Row{OpKind::kAllGather, 4, 0, false},
        Row{OpKind::kReduceScatter, 0, 8, true}, Row{OpKind::kReduceScatter, 0, 16, false},
        Row{OpKind::kGather, 8, 0, true}, Row{OpKind::kGather, 24, 0, false},
        Row{OpKind::kScatter, 0, 8, true}, Row{OpKind::kScatter, 0, 0, false},
        Row{OpKind::kReduce, 0, 0, true}, Row{OpKind::kReduce, 0, 4, false},
        Row{OpKind::kAllToAll, 0, 32, true}, Row{OpKind::kAllToAll, 0, 0, false},
        Row{OpKind::kAllToAll, 8, 0, false}}) {
    Op op = Call(row.kind, DType::kFloat32, 2);
    op.root = 1;
    op.input = bytes + row.input;
    op.output = bytes + row.output;
    const absl::Status status = CheckArguments(op, 1, 4);
    CAPTURE(Describe(op));
    CAPTURE(row.input);
    CAPTURE(row.output);
    CHECK(status.ok() == row.is_allowed);
    if (!row.is_allowed) {
      CHECK(status.message() == Describe(op) + ": the input and the output overlap");
    }
  }
}

TEST_CASE("op: many ranks are named shortly") {
  CHECK(NameRanks({2}) == "rank 2");
  CHECK(NameRanks({2, 5}) == "ranks 2 and 5");
  CHECK(NameRanks({0, 1, 2, 3, 4, 5, 6, 7, 8}) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 8");
  CHECK(NameRanks({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 3 more");
  CHECK(NameDuration(std::chrono::seconds(3)) == "3 s");
  CHECK(NameDuration(std::chrono::milliseconds(1500)) == "1500 ms");
}

}  // namespace
}  // namespace ddp::internal
