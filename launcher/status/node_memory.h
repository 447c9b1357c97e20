// What nodes have said last, for looks at the job in which they are silent. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_NODE_MEMORY_H_
#define DDPRUN_LAUNCHER_STATUS_NODE_MEMORY_H_

#include <map>
#include <optional>
#include <string>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// REQUIRES: `now` never decreases.
class NodeMemory {
 public:
  // How often the job is looked at if nobody asks.
  static constexpr Duration kQuietInterval = std::chrono::seconds(10);

  // Puts the last word of nodes that are silent now into `job`, with its age, and keeps what the
  // others say. `is_cut_off`: the coordinator, which passes the other nodes' words on, is silent.
  void Recall(TimePoint now, bool is_cut_off, JobView& job);

 private:
  struct LastWord {
    NodeView view;
    TimePoint at{};
  };
  std::map<std::string, LastWord> nodes_;  // by id: a host may have several
  std::optional<TimePoint> cut_off_since_;
  TimePoint looked_at_{};
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_NODE_MEMORY_H_
