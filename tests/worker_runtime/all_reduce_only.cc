#include "tests/worker_runtime/all_reduce_only.h"

namespace ddp::internal {
std::unique_ptr<Work> AllReduceOnly::Broadcast(void*, size_t, DType, int, Stream) {
  return NotForIt();
}
std::unique_ptr<Work> AllReduceOnly::AllGather(const void*, void*, size_t, DType, Stream) {
  return NotForIt();
}
std::unique_ptr<Work> AllReduceOnly::ReduceScatter(const void*, void*, size_t, DType, ReduceOp,
                                                   Stream) {
  return NotForIt();
}
std::unique_ptr<Work> AllReduceOnly::Barrier() { return NotForIt(); }

}  // namespace ddp::internal
