// A communicator of the double.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_NCCL_COMM_H_
#define DDPRUN_TESTS_GPU_DOUBLE_NCCL_COMM_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/gpu_double/driver.h"
#include "tests/gpu_double/settings.h"
#include "tests/gpu_double/shared_group.h"

namespace ddprun::gpu_double {

// One rank's end of a group. Shared by the registry of handles, by the operations that wait in
// streams and by graphs, because an abort frees the handle while operations still run.
class Comm {
 public:
  Comm(int world_size, int rank, int device);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Meets the other ranks; returns when all are here, or it failed.
  void Join(const NcclUniqueId& id);

  // What a call may do now: kNcclSuccess, or why not, with the text set.
  NcclResult CheckReady();
  NcclResult AsyncError();
  std::string ErrorText();
  // Remembers the first error.
  void SetError(NcclResult error, const std::string& text);

  // Aborted: operations end without having done their work.
  void Stop();
  bool must_stop() const { return must_stop_.load(); }
  // Waits, in steps that see Stop(). False when stopped.
  bool Sleep(long milliseconds);
  void Stall();
  // True: the call was one that hangs, and was ended by Stop().
  bool CallHangs();
  // Waits for the other ranks; false when stopped, or after a dead peer's error.
  bool Await(const SharedGroup::Condition& condition);
  // Waits until no operation is in a stream; false when stopped.
  bool AwaitDrained();
  // Waits until no graph holds an operation, stopped or not: what the real one does before it frees
  // anything.
  void AwaitUnheld();

  const int world_size;
  const int rank;
  const int device;
  const Faults faults;
  const int id;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by `mutex`.
  bool is_finalized = false;
  int operations = 0;                // in streams, not ended
  int held_operations = 0;           // by captures, graphs, their executables and their launches
  std::shared_ptr<Mark> newest_end;  // of the newest uncaptured operation
  struct Registration {
    CudaPointer address;
    size_t bytes;
  };
  std::map<void*, Registration> registrations;

  // Guarded by `running`, which an operation holds while it runs.
  std::mutex running;
  std::shared_ptr<SharedGroup> group;  // null until Join() has opened it
  uint64_t steps = 0;
  long operations_begun = 0;

 private:
  // Ranks that share a device and the like: what real NCCL finds when it connects.
  NcclResult CheckPeers(std::string* text);

  std::atomic<long> calls_ = 0;
  NcclResult error_ = kNcclSuccess;
  std::string error_text_;
  std::atomic<bool> must_stop_ = false;
};

// The communicators that have not been destroyed or aborted.
struct Comms {
  std::mutex mutex;
  std::map<NcclComm, std::shared_ptr<Comm>> live;
  int next_id = 1;
  // Of communicators that are gone.
  int lost_registrations = 0;
  // From ncclMemAlloc.
  std::map<void*, size_t> memory;

  static Comms& Get();
};

// Null for a handle that is not, or no longer, one; the thread's error text says so then.
std::shared_ptr<Comm> FindComm(NcclComm handle);
// Sets the text of ncclGetLastError and returns `result`.
NcclResult Refuse(NcclResult result, const std::string& text);

// One call of a collective, a send or a receive.
struct Task {
  enum class Kind { kAllReduce = 1, kBroadcast, kAllGather, kReduceScatter, kReduce, kSend, kRecv };
  bool is_pair() const { return kind == Kind::kSend || kind == Kind::kRecv; }

  Kind kind;
  const void* input;
  void* output;
  size_t count;
  NcclDataType type;
  NcclRedOp op;
  int root;  // or the peer
  bool is_registered = false;
  size_t input_bytes = 0;
  size_t output_bytes = 0;
  View input_view;
  View output_view;
};

const char* NameOf(Task::Kind kind);
// Runs on a stream's thread: one collective, or all sends and receives of one group.
void RunTasks(Comm& comm, const std::vector<Task>& tasks, int stream);

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_NCCL_COMM_H_
