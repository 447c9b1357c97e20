#include "tests/rendezvous/server/event_log.h"

namespace ddprun::rendezvous {
namespace {

struct Line {
  std::string operator()(const Waiting& e) { return "waiting: " + e.reason; }
  std::string operator()(const Assigned& e) {
    return "assigned: round " + std::to_string(e.assignment.round.value) + " node_rank " +
           std::to_string(e.assignment.node_rank) + " master " + e.assignment.master_addr + ":" +
           std::to_string(e.assignment.master_port);
  }
  std::string operator()(const Drained& e) { return "drained: " + e.reason; }
  std::string operator()(const Concluded& e) {
    return "concluded: " + std::to_string(e.verdict.exit_code) + " " + e.verdict.reason;
  }
  std::string operator()(const ContactMade& e) {
    return (e.is_hosted_here ? "hosted here: " : "contact made: ") + e.place;
  }
  std::string operator()(const ContactLost& e) {
    return std::string("contact lost") + (e.is_gone ? " (gone): " : ": ") + e.reason;
  }
  std::string operator()(const ContactRestored&) { return "contact restored"; }
  std::string operator()(const RendezvousFailed& e) { return "failed: " + e.message; }
  std::string operator()(const Asked& e) { return "asked: " + e.body; }
  std::string operator()(const Answered& e) {
    std::string line = "answered:";
    for (const NodeAnswer& answer : e.part.answers) line += " " + answer.host + "=" + answer.body;
    for (const std::string& host : e.part.silent) line += " " + host + " is silent";
    return line + (e.part.is_last ? "" : " ...");
  }
  std::string operator()(const StopRequested& e) { return "stop requested: " + e.reason; }
  std::string operator()(const ContactEnded&) { return "ended"; }
};

}  // namespace

std::string EventLog::Text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const RendezvousEvent& event : events_) text += std::visit(Line{}, event) + "\n";
  return text;
}

NodeInfo TestNode(const std::string& id, uint16_t store_port) {
  NodeInfo node;
  node.id.value = id;
  node.host = id;
  node.store_port = store_port;
  return node;
}

FailureReport TestFailure(const std::string& id, int exit_code) {
  FailureReport report;
  report.node.value = id;
  report.host = id;
  report.exit_code = exit_code;
  report.message = "exit code " + std::to_string(exit_code);
  return report;
}

Policy TestPolicy(int min_nodes, int max_nodes) {
  Policy policy;
  policy.run_id = "run-1";
  policy.min_nodes = min_nodes;
  policy.max_nodes = max_nodes;
  return policy;
}

}  // namespace ddprun::rendezvous
