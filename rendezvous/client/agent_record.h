// What one agent has said and adopted: the decisions of a rendezvous client, without its I/O.
// [pure]
//
// The contact core owns it. What the agent says is kept as the list [Join, facts of the round it
// got]. A new session starts that list again, so that nothing said is lost with a connection; the
// coordinator takes each fact for a round once, however often it comes.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_AGENT_RECORD_H_
#define DDPRUN_RENDEZVOUS_CLIENT_AGENT_RECORD_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

class AgentRecord {
 public:
  // Failure reports kept for one round; later ones are consequences of these.
  static constexpr size_t kMaxFailures = 64;

  explicit AgentRecord(Policy policy) : policy_(std::move(policy)) {}

  // The commands of RendezvousClient.
  void Join(const NodeInfo& node);
  // ReportCommand. What concerns another round than the adopted one is dropped.
  void Report(Round round, Event fact, TimePoint at);
  void Leave(const std::string& reason, bool is_by_signal);
  void AckVerdict();
  // What a later session says of this node's health, where it waits for a place.
  void NoteHealth(const HealthReport& report);
  // Kept until the job is over, whatever rounds come before it is heard: nobody gives it again.
  void OrderStop(StopHow how, const std::string& reason);

  // A new session begins: everything is to be said again.
  void StartSession() {
    said_ = 0;
    is_stop_unsaid_ = stop_order_.has_value();
  }
  // The next thing to say, with Stamp::session left open; nullopt: all has been said.
  // A failure's age counts up to `now`.
  std::optional<Event> NextToSay(TimePoint now);
  bool has_unsaid() const {
    return said_ < facts_.size() || (is_stop_unsaid_ && said_ > last_join_);
  }
  // The coordinator said `action`. What the agent must hear of it; nullopt: nothing, it is stale,
  // a repetition, or of no concern.
  // `instance` is the job's by the coordinator's word.
  std::optional<RendezvousEvent> Hear(const JobInstance& instance, const Action& action);

  // The job that this node is in as far as it knows, and the newest epoch and round adopted of it.
  Stamp stamp() const {
    if (joined_instance_ != assignment_.instance) return Stamp{{}, {}, {}, joined_instance_};
    return adopted_stamp();
  }
  // Workers of the adopted round may live here.
  bool had_round() const { return assignment_.round.value != 0; }
  bool is_assigned() const { return !is_waiting_ && had_round(); }
  // The newest; of round 0: none was given.
  const Assignment& assignment() const { return assignment_; }
  // The verdict or a final refusal came: nothing more will be heard.
  bool is_over() const { return is_over_; }

 private:
  struct Fact {
    Event event;
    TimePoint at{};  // when it happened, of what has an age
  };
  // Forgets facts_[0, first).
  void DropFactsBefore(size_t first);
  Stamp adopted_stamp() const {
    return Stamp{{}, assignment_.epoch, assignment_.round, assignment_.instance};
  }
  using News = std::optional<RendezvousEvent>;
  News HearOne(const JobInstance& instance, const TellWaiting& told);
  News HearOne(const JobInstance& instance, const Assign& action);
  News HearOne(const JobInstance& instance, const Drain& drain);
  News HearOne(const JobInstance& instance, const Conclude& conclude);
  News HearOne(const JobInstance& instance, const Refuse& refuse);
  News HearOne(const JobInstance&, const AskNode& ask) { return Asked{ask.id, ask.body}; }
  News HearOne(const JobInstance&, const GiveAnswers& given) { return Answered{given}; }
  News HearOne(const JobInstance& instance, const TellToStop& told);
  // CloseSession, Finish and Record are for the coordinator's driver.
  News HearOne(const JobInstance&, const auto&) { return std::nullopt; }

  std::vector<Fact> facts_;
  size_t said_ = 0;
  size_t last_join_ = 0;  // index of the newest join
  size_t failures_ = 0;
  std::optional<StopOrdered> stop_order_;  // said right behind the newest join
  bool is_stop_unsaid_ = false;

  const Policy policy_;
  Assignment assignment_;  // the newest adopted; its round is 0 until there is one
  // Of the coordinator that let this node wait or gave it the assignment.
  JobInstance joined_instance_;
  bool is_waiting_ = false;
  bool is_drained_ = false;  // the adopted round
  bool is_over_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_AGENT_RECORD_H_
