// Asks the workers' PyTorch for its flight recorder.
#ifndef DDPRUN_LAUNCHER_STATUS_TORCH_READER_H_
#define DDPRUN_LAUNCHER_STATUS_TORCH_READER_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/dump/worker_server.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Of one thread at a time, for which it may take 0.3 s. A rank is asked at most every 5 s, and so
// seldom that it takes 1 % of the time: an answer holds the last 2,000 collectives of the worker,
// 1.2 MB. Between two answers the last one stays, with its age (GroupView::asked_s), for a minute.
class TorchReader {
 public:
  struct Means {
    // AskFlightRecords.
    std::function<absl::StatusOr<FlightRecords>(const std::string& socket,
                                                const std::vector<int>& pids, TimePoint deadline)>
        ask;
    std::function<TimePoint()> clock;
  };
  // By local rank; "" where a worker has no server.
  explicit TorchReader(std::vector<std::string> sockets, Means means = OfThisMachine())
      : sockets_(std::move(sockets)), means_(std::move(means)) {}

  // Fills in the groups of the running ranks that tell of none, and of no step lately. `pids_of`:
  // the processes of the worker with that local rank.
  void Fill(const std::function<std::vector<int>(int local_rank)>& pids_of, int world_size,
            NodeView& view);

 private:
  static Means OfThisMachine();
  struct Worker {
    int pid = 0;
    TimePoint again_at{};
    std::optional<TimePoint> answered_at{};
    std::vector<GroupView> groups{};
  };
  bool IsForUs(const RankView& rank) const;

  const std::vector<std::string> sockets_;
  const Means means_;
  std::map<int, Worker> workers_;  // by local rank
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_TORCH_READER_H_
