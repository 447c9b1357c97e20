// Runs in a memory cgroup of 64 MiB (in_limited_cgroup.sh), where taking more is death.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/contains.h"
#include "worker_runtime/comm/heap_buffer.h"
#include "worker_runtime/comm/shm/shm_domain.h"

namespace ddp::internal {
namespace {

void CheckRefused(const absl::Status& status) {
  CAPTURE(status.ToString());
  CHECK(absl::IsResourceExhausted(status));
  CHECK(status.message() == Contains(" are free in the cgroup /"));
}

TEST_CASE("limited memory: a buffer of one rank") {
  CHECK(AllocateHeapBuffer(1 << 20).ok());
  CheckRefused(AllocateHeapBuffer(100 << 20).status());
  CheckRefused(AllocateHeapBuffer(size_t{1} << 40).status());
}

TEST_CASE("limited memory: shared buffers count for all ranks of the node") {
  auto memory = ShmDomain::CreateMemory(2);
  REQUIRE(memory.ok());
  auto domain = ShmDomain::Map(*std::move(memory), {0, 1}, 0);
  REQUIRE(domain.ok());
  Op op;
  op.kind = OpKind::kAllocate;
  op.count = 10 << 20;
  CHECK((*domain)->CheckRoomFor(op).ok());
  op.count = 40 << 20;
  CheckRefused((*domain)->CheckRoomFor(op));
  CheckRefused(ShmDomain::CreateMemory(40).status());
}

}  // namespace
}  // namespace ddp::internal
