#include "tests/worker_runtime/all_reduce_only.h"

#include "rendezvous/base/check.h"

namespace ddp::internal {
namespace {

std::unique_ptr<Work> NotForIt() {
  DDP_CHECK(!"a gradient reducer only all-reduces");
  return nullptr;
}

}  // namespace

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
