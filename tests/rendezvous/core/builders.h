// Short words for arranging rendezvous tests.
#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_BUILDERS_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_BUILDERS_H_

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/types.h"

namespace ddprun::rendezvous::testing {

using namespace std::chrono_literals;  // NOLINT: what a test's durations are written in

inline TimePoint At(Duration since_start) { return TimePoint(since_start); }

inline constexpr JobInstance kTestJob{.high = 7, .low = 1};

inline Beginning FirstStart() {
  return {.epoch = Epoch{1}, .instance = kTestJob, .verdict = std::nullopt};
}

inline Policy TestPolicy(int min_nodes, int max_nodes) {
  Policy policy;
  policy.run_id = "job1";
  policy.min_nodes = min_nodes;
  policy.max_nodes = max_nodes;
  return policy;
}

// A join of a node of `policy`, called `name`, from an address of its own.
inline NodeJoined Join(const Policy& policy, const std::string& name, uint64_t session) {
  NodeJoined event;
  event.stamp.session = SessionId{session};
  event.node.id = NodeId{name};
  event.node.host = name;
  event.node.local_world_size = 2;
  event.node.store_port = static_cast<uint16_t>(5000 + session);
  event.policy = policy;
  event.source_addr = "10.0.0." + std::to_string(session);
  event.accepted_addr = "10.0.0.100";
  return event;
}

// All actions of one kind, in order.
template <typename Kind>
std::vector<Kind> Only(const std::vector<Action>& actions) {
  std::vector<Kind> found;
  for (const Action& action : actions) {
    if (const Kind* match = std::get_if<Kind>(&action)) found.push_back(*match);
  }
  return found;
}

}  // namespace ddprun::rendezvous::testing

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_BUILDERS_H_
