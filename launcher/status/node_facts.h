// What the kernel and the GPUs' driver tell of this node's workers and memory, kept up to date by
// whoever asks.
#ifndef DDPRUN_LAUNCHER_STATUS_NODE_FACTS_H_
#define DDPRUN_LAUNCHER_STATUS_NODE_FACTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/gpu_facts.h"
#include "launcher/status/memory_facts.h"
#include "launcher/status/process_facts.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Of one thread at a time.
class NodeFacts {
 public:
  NodeFacts() = default;

  // Reads what is older than a second and fills it into `view`, whose ranks have their pids.
  void Fill(NodeView& view);
  // The worker's process, and those that it has started, as the last Fill() saw them.
  std::vector<int> PidsOf(int local_rank) const;
  // These two on any thread: no GPU is looked at any more, and whether no look is under way.
  void EndGpus() { gpus_.End(); }
  bool are_gpus_idle() const { return gpus_.is_idle(); }

 private:
  void ReadProcesses(TimePoint now, NodeView& view);

  struct Worker {
    int pid = 0;
    ProcessRates rates;
    std::optional<ProcessSample> sample;
  };
  std::map<int, Worker> workers_;  // by local rank
  TimePoint read_at_{};
  MemoryWatch memory_;
  GpuWatch gpus_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_NODE_FACTS_H_
