// What lies in the memory that the ranks of one node share.
//
//   GroupHeader | RankLines of each rank | staging of each rank | buffers, appended as allocated
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_LAYOUT_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_LAYOUT_H_

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker_runtime/comm/op_record.h"
#include "worker_runtime/comm/shm/futex.h"

namespace ddp::internal {

// Where in the shared memory something is: byte `offset` of the rank's part of buffer `region`.
struct Location {
  int32_t region = -1;  // -1: not shared
  uint64_t offset = 0;
  bool is_shared() const { return region >= 0; }
  friend bool operator==(const Location&, const Location&) = default;
};

enum class Presence : uint32_t { kHere, kLeft, kDead };

// What a rank has to say of the end of the group.
struct Failure {
  static constexpr size_t kReasonBytes = 1024;
  int32_t code;       // an absl::StatusCode
  int32_t left_peer;  // the rank whose leaving was the cause; -1: none was
  char reason[kReasonBytes];
};

struct RankLines {
  Flag arrived;   // the last step whose input this rank has made visible
  Flag finished;  // the last step whose result this rank has made visible
  struct Entry {
    OpRecord op;
    Location location;  // of an all-reduce's data
  };
  alignas(64) Entry entries[2];  // by the parity of the operation's first step
  alignas(64) std::atomic<Presence> presence;
  std::atomic<int32_t> pid;
  cpu_set_t cpus;   // that the rank may use; there from its first arrival on
  Failure failure;  // written at most once, and only read if GroupHeader::failed_by names it
};

struct GroupHeader {
  // 0, or 1 + the index of the rank whose `failure` ended the group. The only write that counts: a
  // rank that dies before it has told nothing, and takes nobody's turn.
  std::atomic<uint32_t> failed_by;
};

inline RankLines* LinesOf(char* base) {
  return reinterpret_cast<RankLines*>(base + (sizeof(GroupHeader) + 63) / 64 * 64);
}

// Staging: two sets, used in turn by the parity of the step, each with room for a rank's input and
// for a result. Pages that are never used cost nothing.
inline constexpr size_t kStagingBytes = size_t{1} << 20;
inline constexpr size_t kStagingPerRank = 4 * kStagingBytes;
inline constexpr size_t kPage = 4096;

// Of each of `parts` parts that lie in staging together: whole cache lines while there is room.
constexpr size_t PartBytes(size_t parts) {
  const size_t bytes = kStagingBytes / parts;
  return bytes < 64 ? bytes : bytes / 64 * 64;
}

constexpr size_t RoundUpToPage(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Bytes before the first buffer.
constexpr size_t ControlBytes(int ranks) {
  return RoundUpToPage(sizeof(GroupHeader) + 64 + sizeof(RankLines) * static_cast<size_t>(ranks));
}
constexpr size_t FixedBytes(int ranks) {
  return ControlBytes(ranks) + kStagingPerRank * static_cast<size_t>(ranks);
}

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SHM_SHM_LAYOUT_H_
