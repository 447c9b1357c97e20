// The base of communicators that stand in for a group under a gradient reducer.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ALL_REDUCE_ONLY_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ALL_REDUCE_ONLY_H_

#include <memory>

#include "ddp/communicator.h"
#include "tests/support/fewer_operations.h"

namespace ddp::internal {

// Leaves the other operations out: to call one of them ends the test.
class AllReduceOnly : public ddprun::testing::FewerOperations {
 public:
  std::unique_ptr<Work> Broadcast(void*, size_t, DType, int, Stream) final;
  std::unique_ptr<Work> AllGather(const void*, void*, size_t, DType, Stream) final;
  std::unique_ptr<Work> ReduceScatter(const void*, void*, size_t, DType, ReduceOp, Stream) final;
  std::unique_ptr<Work> Barrier() final;
};

}  // namespace ddp::internal

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ALL_REDUCE_ONLY_H_
