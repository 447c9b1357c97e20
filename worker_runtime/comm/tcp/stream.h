// One direction of one operation on a link: a greeting, then bytes from or into memory.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_STREAM_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "worker_runtime/comm/op_record.h"

namespace ddp::internal {

// What both ends of a link say before anything else of an operation.
struct Greeting {
  uint32_t magic;
  int32_t rank;
  OpRecord record;
};
static_assert(sizeof(Greeting) == 40);

// Bytes [0, total) of a stream, of which [done, limit) may move now. They lie in memory one after
// the other, or in a ring of `ring` bytes.
struct Stream {
  char* base = nullptr;
  size_t ring = 0;  // 0: not a ring
  size_t total = 0;
  size_t limit = 0;
  size_t done = 0;
  Greeting greeting{};
  size_t greeting_done = sizeof(Greeting);  // Spread() has none

  bool IsGreeted() const { return greeting_done == sizeof greeting; }
  bool CanMove() const { return !IsGreeted() || done < limit; }
  bool IsDone() const { return IsGreeted() && done == total; }
  // The next run of bytes that lies in one piece.
  char* Next() const { return ring == 0 ? base + done : base + done % ring; }
  size_t NextBytes() const {
    return ring == 0 ? limit - done : std::min(limit - done, ring - done % ring);
  }
};

// The streams of an operation; null where there is none.
struct Streams {
  Stream* to_previous = nullptr;
  Stream* from_previous = nullptr;
  Stream* to_next = nullptr;
  Stream* from_next = nullptr;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_STREAM_H_
