// The last operations of a group, as this rank saw them.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_FLIGHT_RECORDER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

enum class FlightState : uint8_t {
  kQueued,    // called, not handed to NCCL yet
  kEnqueued,  // on the stream
  kDone,
  kFailed,
  kCaptured,  // recorded into a graph, not executed
  kReplayed,  // what kDone is for the replay of a graph
};

// A ring in shared memory (a memfd named "ddp-flight-recorder"), so that it can be read through
// /proc/<pid>/fd of a process that hangs. Times are steady_clock nanoseconds. Writing costs a few
// stores. One thread writes an entry at a time; any thread reads, and may see an entry half
// changed: each field is whole, and all are of one operation.
class FlightRecorder {
 public:
  static constexpr size_t kEntries = 256;

  // ResourceExhausted when there is no memory.
  static absl::StatusOr<std::unique_ptr<FlightRecorder>> Create(int rank, int world_size,
                                                                const std::string& group);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void Queued(const Op& op);
  void Changed(uint64_t sequence, FlightState state, Clock::time_point at);
  // When it ran, which is known only afterwards: it is kDone, or kReplayed.
  void Ran(uint64_t sequence, Clock::time_point started, Clock::time_point ended);
  // Takes out what came after operation `last`: it never ran, and its numbers are given again.
  void Forget(uint64_t last);

  // One object: "rank", "world_size", "group", "entries" from the oldest to the newest, each with
  // "sequence", "op", "state", and "queued_ns", "enqueued_ns", "started_ns", "ended_ns" where
  // known.
  std::string ToJson() const;
  // Writes ToJson() into a new file "<directory>/ddp-flight-<rank>-<pid>.json" and returns its
  // path. `directory`: $DDPRUN_FLIGHT_RECORDER_DIR, else $TMPDIR, else "/tmp".
  absl::StatusOr<std::string> Dump() const;
  // The second half of Dump(), for whoever took `json` under a lock, or writes on another thread.
  static absl::StatusOr<std::string> Write(int rank, const std::string& json);

 private:
  struct Entry;
  struct Shared;
  FlightRecorder(ddprun::UniqueFd file, Shared* shared, int rank, int world_size, std::string group)
      : file_(std::move(file)),
        shared_(shared),
        rank_(rank),
        world_size_(world_size),
        group_(std::move(group)) {}
  Entry* Find(uint64_t sequence) const;

  const ddprun::UniqueFd file_;  // open for those who look for it under /proc/<pid>/fd
  Shared* const shared_;
  const int rank_;
  const int world_size_;
  const std::string group_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_FLIGHT_RECORDER_H_
