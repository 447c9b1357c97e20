// The last operations of a group, as this rank saw them.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_FLIGHT_RECORDER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker_runtime/comm/group_label.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

class GroupCounters;

enum class FlightState : uint8_t {
  kQueued,    // called, not begun, or not handed to NCCL yet
  kEnqueued,  // on the stream
  kRunning,   // in host memory: what kEnqueued is on a stream
  kDone,
  kFailed,
  kCaptured,  // recorded into a graph, not executed
  kReplayed,  // what kDone is for the replay of a graph
};

// A ring. Times are steady_clock nanoseconds. Writing costs a few plain stores. One thread writes
// at a time; any thread reads, and may see an entry half changed: each field is whole, and all are
// of one operation.
//
// Where the launcher wants to know and `label` has a key, it also tells how far the group is
// (counters.h), until it goes: operations that were called, and those that have ended with all
// before them, failed or not. What was captured is called by nobody: only its replay is.
class FlightRecorder {
 public:
  static constexpr size_t kEntries = 256;

  // `group`: what the group is called in the record.
  FlightRecorder(int rank, int world_size, std::string group, const GroupLabel& label = {});
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // `is_captured`: kCaptured is next, or a failure.
  void Queued(const Op& op, Clock::time_point at, bool is_captured = false);
  void Changed(uint64_t sequence, FlightState state, Clock::time_point at);
  // When it ran, which is known only afterwards: it is kDone, or kReplayed.
  void Ran(uint64_t sequence, Clock::time_point started, Clock::time_point ended);
  // Takes out what came after operation `last`: it was captured, never ran, and its numbers are
  // given again. The launcher has not heard of it.
  void Forget(uint64_t last);

  // One object: "rank", "world_size", "group", "host", "pid", "time" in UTC and the same moment as
  // "time_ns" on the clock of all that end in _ns, "entries" from the oldest to the newest, each
  // with "sequence", "op", "state", and "queued_ns", "enqueued_ns", "started_ns", "ended_ns" where
  // known.
  std::string ToJson() const;
  // Writes ToJson() into a new file, Path(), and returns it.
  absl::StatusOr<std::string> Dump() const { return Write(Path(), ToJson()); }
  // "<directory>/ddp-flight-<rank>-<pid>-<number>.json", with the number of this recorder in this
  // process, from 0. `directory`: $DDPRUN_FLIGHT_RECORDER_DIR, else $TMPDIR, else "/tmp".
  std::string Path() const;
  // The second half of Dump(), for whoever took `json` under a lock, or writes on another thread.
  static absl::StatusOr<std::string> Write(const std::string& path, const std::string& json);

 private:
  struct Entry;
  Entry* Find(uint64_t sequence) const;
  void CountEnded(uint64_t sequence, Clock::time_point at);

  const int rank_;
  const int world_size_;
  const std::string group_;
  const int number_;
  const std::unique_ptr<Entry[]> entries_;  // operation n at n % kEntries
  std::atomic<uint64_t> last_sequence_{0};

  // What the launcher is told. Of the thread that writes.
  GroupCounters* const counters_;  // null: nothing
  uint64_t last_called_ = 0;
  uint64_t last_ended_ = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_FLIGHT_RECORDER_H_
