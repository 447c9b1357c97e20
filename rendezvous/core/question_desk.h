// Carries questions to the nodes of a job and their answers back to who has asked. [pure]
//
// The coordinator's driver owns one beside its machine. What costs something is bounded: a question
// to all nodes that many ask at once, or within a second, is asked once; there are at most so many
// questions and bytes of answers at a time; and a node that does not answer is waited for only so
// long.
#ifndef DDPRUN_RENDEZVOUS_CORE_QUESTION_DESK_H_
#define DDPRUN_RENDEZVOUS_CORE_QUESTION_DESK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

class QuestionDesk {
 public:
  using Places = std::vector<RendezvousMachine::Place>;
  // Takes one action after the other: together they may be the same megabytes for each of many
  // askers. It must not call the desk.
  using Sink = std::function<void(Action)>;

  // How long the nodes may take at least, and at most.
  static constexpr Duration kPatience = std::chrono::milliseconds(1500);
  static constexpr Duration kMaxPatience = std::chrono::seconds(20);
  // A question to all that was asked not longer ago is not asked again. Less than the second after
  // which a dashboard asks, or it would get every second answer twice.
  static constexpr Duration kFresh = std::chrono::milliseconds(900);
  static constexpr size_t kMaxQuestions = 64;
  static constexpr size_t kMaxAskers = 1024;  // of one question
  // Of all answers that are held: as much as a command reads (control_client.cc). A node whose
  // answer does not fit counts as silent.
  static constexpr size_t kMaxHeldBytes = size_t{64} << 20;
  // Of a message with answers; the wire's limit is 256 KiB.
  static constexpr size_t kMaxPartBytes = 200 * 1024;

  // Each hands `send` what is to be sent. The facts in the last part of the answers are the
  // caller's to fill in.
  void Ask(TimePoint now, SessionId asker, const Question& question, const Places& places,
           const Sink& send);
  void Answer(TimePoint now, SessionId from, uint64_t id, const std::string& body,
              const Sink& send);
  // A session has ended.
  void Forget(TimePoint now, SessionId session, const Sink& send);
  void TimePassed(TimePoint now, const Sink& send);
  std::optional<TimePoint> NextDeadline() const;

 private:
  struct Asker {
    SessionId session;
    uint64_t id = 0;
  };
  struct Asked {
    NodeId to;
    std::string body;
    TimePoint asked_at;
    TimePoint deadline;  // of the question; once it is done, of its freshness
    bool is_done = false;
    std::vector<Asker> askers;
    std::map<SessionId, RendezvousMachine::Place> awaited;
    std::vector<std::string> silent;
    std::vector<NodeAnswer> answers;
    size_t bytes = 0;  // of the answers
  };
  size_t HeldBytes() const;
  static void FinishIfDone(TimePoint now, Asked& asked, const Sink& send);
  static void Give(const Asked& asked, const Asker& asker, const Sink& send);
  // An answer without content: the question cannot be asked.
  static void Refuse(SessionId asker, uint64_t id, const Sink& send);

  std::map<uint64_t, Asked> asked_;  // by our id
  uint64_t last_id_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_QUESTION_DESK_H_
