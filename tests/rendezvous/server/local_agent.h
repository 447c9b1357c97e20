// An agent of this process, on a local link and nothing else.
#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_LOCAL_AGENT_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_LOCAL_AGENT_H_

#include <memory>
#include <mutex>

#include "rendezvous/client/agent_record.h"
#include "rendezvous/client/link.h"
#include "rendezvous/server/coordinator.h"
#include "tests/rendezvous/server/event_log.h"

namespace ddprun::rendezvous {

class LocalAgent {
 public:
  LocalAgent(const Coordinator& coordinator, const Policy& policy, EventLog& log);
  ~LocalAgent();

  void Join(const NodeInfo& node);
  void ReportFailed(Round round, const FailureReport& report);
  void ReportFirstSuccess(Round round, int rank);
  void ReportSucceeded(Round round);
  void AckVerdict();

 private:
  // The link's listener may outlive the agent.
  struct Gate {
    std::mutex mutex;
    LocalAgent* agent = nullptr;  // null: it is gone
  };
  // REQUIRES: the gate's mutex is held, here and below.
  void Hear(const ContactEvent& event);
  void SayNext();

  const RendezvousClient::EventHandler handler_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  AgentRecord record_;
  bool is_saying_ = false;
  OwnedLink link_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_LOCAL_AGENT_H_
