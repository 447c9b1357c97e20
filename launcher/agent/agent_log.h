// What the agent logs: every event and every action, a line each. State changes that an operator
// acts on are info, the rest is debug; so are the messages of gRPC and Protobuf while this lives.
//
// Called on the agent's thread, but for what LogStep returns. Renders nothing that is not logged.
#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_LOG_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_LOG_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.h"
#include "launcher/process/worker_group.h"
#include "rendezvous/net/library_log.h"

namespace spdlog {
class logger;
}

namespace ddprun::launcher {

class AgentLog {
 public:
  struct Node {
    std::string run_id;
    std::string id;
    int workers = 1;
  };
  // `logger` is borrowed. REQUIRES: there is no other AgentLog (LibraryLogScope).
  AgentLog(spdlog::logger& logger, Node node);

  // Before the agent's core hears of it.
  void Note(const AgentEvent& event);
  // What the core does not hear: that a worker runs.
  void Note(const WorkerStarted& event);
  // That nobody has set OMP_NUM_THREADS, so that every worker gets 1.
  void NoteOneThread();
  // What options came from the site's file.
  void NoteSiteDefaults(const std::string& line);
  // Before it is carried out.
  void Note(const AgentAction& action);
  // For RendezvousOptions::log_step: may be called on any thread while the logger lives. Empty:
  // nobody wants the lines.
  std::function<void(const std::string&)> LogStep() const;

 private:
  spdlog::logger& logger_;
  const Node node_;
  rendezvous::Assignment round_;  // the newest that was started; round 0: none yet
  std::vector<int> pids_;         // of its workers
  std::string waiting_for_;       // what the last event said, if it was a wait
  std::optional<rendezvous::LibraryLogScope> library_log_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_LOG_H_
