// Streams between agents and coordinators. A stream keeps its order and loses nothing but its end:
// what is under way when it breaks. Streams overtake each other.
#ifndef DDPRUN_TESTS_SIM_NETWORK_H_
#define DDPRUN_TESTS_SIM_NETWORK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/types.h"
#include "rendezvous/wire/transit.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_random.h"
#include "tests/sim/timeline.h"

namespace ddprun::sim {

struct Stream;
using StreamPtr = std::shared_ptr<Stream>;

// What an agent says. A beat has a sequence, which its answer brings back.
struct Up {
  rendezvous::Event event;
  uint64_t sequence = 0;
  Duration sent{0};  // by the agent's clock; 0 within one process
};
// What the coordinator says. With a sequence it is the answer to a beat, and no action.
struct Down {
  rendezvous::Stamp current;
  rendezvous::Action action;
  uint64_t sequence = 0;
  Duration beat_interval{0};  // with the answer
};

// A stream's end in the agent.
class AgentEnd {
 public:
  virtual ~AgentEnd() = default;
  virtual void HearDown(const StreamPtr& stream, const Down& down) = 0;
  virtual void HearDownBroken(const StreamPtr& stream) = 0;
};
// A stream's end in the coordinator. `HearUpBroken` is the last call for a stream; `is_by_peer`:
// its other end was closed, or the network broke it.
class CoordinatorEnd {
 public:
  virtual ~CoordinatorEnd() = default;
  virtual void HearUp(const StreamPtr& stream, const Up& up) = 0;
  virtual void HearUpBroken(const StreamPtr& stream, bool is_by_peer) = 0;
};

struct Stream {
  int node = 0;
  int host = -1;          // the coordinator's node; -1: it runs apart
  bool is_local = false;  // within one process
  AgentEnd* agent = nullptr;
  CoordinatorEnd* coordinator = nullptr;
  bool is_open_at_agent = true;
  bool is_open_at_coordinator = true;
  SessionId session;            // the coordinator's number; 0: it has not heard anything yet
  rendezvous::Transit transit;  // the coordinator's
  TimePoint up_free_at;
  TimePoint down_free_at;
  Random random{0};
};

// Messages so far, without heartbeats and their answers.
struct Traffic {
  uint64_t said = 0;  // by agents
  uint64_t told = 0;  // to agents
};

class Network {
 public:
  Network(const Scenario& scenario, Timeline& timeline)
      : scenario_(scenario), timeline_(timeline), paths_(scenario.nodes.size()) {}

  StreamPtr Open(int node, int host, bool is_local, AgentEnd& agent, CoordinatorEnd& coordinator);
  void SendUp(const StreamPtr& stream, Up up);
  void SendDown(const StreamPtr& stream, Down down);
  // The agent has said all: the coordinator ends the stream behind that.
  void FinishAtAgent(const StreamPtr& stream);
  // That end closes; the other one hears of it behind what was sent before.
  void CloseAtAgent(const StreamPtr& stream);
  void CloseAtCoordinator(const StreamPtr& stream);

  const Traffic& traffic() const { return traffic_; }

  // All its streams.
  void CloseAllOf(const CoordinatorEnd& coordinator);

  // The faults. What is cut is late; a stream that is cut for longer than keepalive takes ends.
  void BreakStream(int node);
  void HalfBreak(int node);
  void Cut(int node, bool up, bool down, Duration duration);
  void CutCoordinator(Duration duration);  // of one that runs apart
  // Each of the two hosts refuses what comes from the other.
  void Refuse(int node, int other, Duration duration);
  // One end's process does not run: the other end's keepalive finds it.
  void StopAnswering(int node, Duration duration);
  void CoordinatorStopsAnswering(int host, Duration duration);

  // Whether a connection from the node to the coordinator's can be made now.
  bool CanReach(int node, int host) const;
  // Whether they refused each other then, or `ago` before.
  bool IsRefused(int node, int host, Duration ago = Duration{0}) const;
  Duration RoundTrip(Random& random) const;

 private:
  struct Path {
    TimePoint up_until;  // cut until then
    TimePoint down_until;
  };
  Duration Delay(Random& random) const;
  Duration Delay(Stream& stream) const;
  TimePoint UpClearAt(const Stream& stream) const;
  TimePoint DownClearAt(const Stream& stream) const;
  void BreakLater(const StreamPtr& stream, Duration agent_after, Duration coordinator_after,
                  bool only_if_cut);
  void BreakAtAgent(const StreamPtr& stream);
  void BreakAtCoordinator(const StreamPtr& stream, bool is_by_peer);
  std::vector<StreamPtr> OpenStreams(int node) const;
  std::vector<StreamPtr> OpenStreamsTo(int host) const;
  // ...that one end or the other has there.
  std::vector<StreamPtr> OpenStreamsAt(int node) const;

  const Scenario& scenario_;
  Timeline& timeline_;
  std::vector<Path> paths_;
  Path coordinator_path_;
  std::map<std::pair<int, int>, TimePoint> refused_until_;  // by the lower node first
  std::vector<StreamPtr> streams_;
  uint64_t opened_ = 0;
  Traffic traffic_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_NETWORK_H_
