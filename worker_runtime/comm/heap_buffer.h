// Private memory as a Buffer, for ranks that share none.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_HEAP_BUFFER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_HEAP_BUFFER_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"

namespace ddp::internal {

// Zeroed, on a page boundary. ResourceExhausted if there is no memory.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateHeapBuffer(size_t bytes);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_HEAP_BUFFER_H_
