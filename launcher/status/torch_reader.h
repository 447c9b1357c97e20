// Asks the workers' PyTorch for its flight recorder.
#ifndef DDPRUN_LAUNCHER_STATUS_TORCH_READER_H_
#define DDPRUN_LAUNCHER_STATUS_TORCH_READER_H_

#include <map>
#include <string>
#include <vector>

#include "launcher/status/node_facts.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Of one thread at a time, for which it may take 0.3 s. A rank is asked at most every 5 s, and so
// seldom that it takes 1 % of the time: the answer holds the last 2,000 collectives of the worker,
// 1.2 MB. Between two answers the ages stay as they were in the last one.
class TorchReader {
 public:
  // By local rank; "" where a worker has no server.
  explicit TorchReader(std::vector<std::string> sockets) : sockets_(std::move(sockets)) {}

  // Fills in the groups of the running ranks that tell of none, and of no step lately. `facts` have
  // been filled in.
  void Fill(const NodeFacts& facts, int world_size, NodeView& view);

 private:
  struct Worker {
    int pid = 0;
    TimePoint again_at{};
    std::vector<GroupView> groups;
  };
  void Ask(const std::vector<int>& pids, int world_size, TimePoint deadline, const RankView& view,
           Worker& worker);

  const std::vector<std::string> sockets_;
  std::map<int, Worker> workers_;  // by local rank
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_TORCH_READER_H_
