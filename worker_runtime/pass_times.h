// When the buckets of a pass were reduced, told once it is known.
#ifndef DDPRUN_WORKER_RUNTIME_PASS_TIMES_H_
#define DDPRUN_WORKER_RUNTIME_PASS_TIMES_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "ddp/communicator.h"

namespace ddp::internal {

// When things happened in one synchronised pass.
struct PassRecord {
  using TimePoint = Work::Clock::time_point;
  struct BucketTimes {
    TimePoint launched;  // handed to the communicator; on a GPU: its last gradient was there
    TimePoint started;   // the communicator began it
    TimePoint ended;
  };
  std::vector<TimePoint> gradient_ready;  // by parameter; on a GPU: announced by the host
  std::vector<BucketTimes> buckets;       // by bucket
};

// The times of passes that have ended for the host: at once on the CPU, read from their works on a
// GPU when somebody asks later. The launcher is told of one now and then (counters.h). Used by one
// thread at a time.
class PassTimes {
 public:
  // CUDA: not yet, or not known to have, ended on the device.
  struct Ended {
    std::vector<std::unique_ptr<Work>> works;  // by bucket; null: nothing to do
    PassRecord record;
    // Buckets are reduced in their order on one stream, so that the last stands for the others,
    // unless a hook says what is done.
    bool has_hook = false;
  };

  // Waits until the device is done with all passes that are not in graphs.
  ~PassTimes();

  void Set(const PassRecord& record);
  void Add(Ended pass);
  // Its times come with each replay.
  void AddCaptured(Ended pass);

  // The last pass whose times are known; empty before it. CPU: the last that was set. CUDA: the
  // last, replays included, that the device is known to have ended. Does not wait.
  const PassRecord& Latest();

 private:
  void Read();
  void ReadReplay(const Ended& pass);

  std::deque<Ended> ended_;
  std::deque<Ended> captured_;  // the newest passes in graphs
  PassRecord record_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_PASS_TIMES_H_
