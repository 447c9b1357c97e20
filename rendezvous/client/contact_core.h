// Decides how one agent stays in contact with its rendezvous, for as long as the agent lives: when
// it looks for the coordinator, hosts one, opens a link, says what, and gives up. [pure]
//
// A driver (connect.h) feeds it the agent's commands, the results of what it asked for, what comes
// over the link, and the time; it carries out the actions in the order given. At most one errand (a
// look, a name, a coordinator to start) is under way at a time. States:
//
//   kSeeking -> kFound -> kLinked -> kOver -> kEnded
//      ^                     |         ^
//      +-- the link ended ---+         +-- the verdict, a refusal, a failure; EndContact
//
// Who hosts can be decided again: an agent at the endpoint's host without workers takes the port
// over once the coordinator that lived in another agent is gone from it.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_CONTACT_CORE_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CONTACT_CORE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/client/agent_record.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What the user said of the rendezvous, as far as the contact depends on it.
struct ContactOptions {
  enum class Mode {
    kStandalone,  // everything in this process, no port, no gRPC
    kStatic,      // node_rank 0 hosts; nobody else binds
    kDynamic,     // c10d: whose host is the endpoint's hosts
    kElected,     // etcd: whoever etcd says leads the job
  };
  Mode mode = Mode::kStandalone;
  // As this node was started; a coordinator of ours follows it. Its join_timeout is how long an
  // agent without workers goes on without a coordinator, from its last contact or its last Join,
  // whichever is later. An agent with workers goes on without end.
  Policy policy;
  std::string endpoint_host;  // as the user wrote it, without brackets; kElected: all of etcd
  uint16_t endpoint_port = 0;
  // Where all nodes look, and the first one hosts, in turn while others have the endpoint's port.
  // REQUIRES: the run id is this job's alone, as it tells whose coordinator a port is; at most one
  // node hosts.
  std::vector<uint16_t> more_ports = {};
  // What a message calls the option that named the port.
  std::string endpoint_source = "--rdzv-endpoint";
  // What this node tells others to reach it by. A name must resolve here before it is told; an
  // address may be another machine's, of a relay say. Empty: nothing.
  std::string local_addr;
  std::string local_addr_source = "--local-addr";
  std::optional<bool> is_host;  // kDynamic: the user's own word on who hosts; kElected: who may
  int node_rank = -1;           // kStatic: 0 hosts
  // The user's own word on the time from one beat to the next: no longer than that.
  Duration longest_beat = Duration::max();
};

// The agent's commands: those of RendezvousClient.
struct JoinCommand {
  NodeInfo node;
};
// `fact`: WorkersFailed, FirstWorkerSucceeded or WorkersSucceeded, which became true `at`. Its
// stamp and age are filled in when it is said.
struct ReportCommand {
  Round round;
  Event fact;
  TimePoint at{};
};
struct LeaveCommand {
  std::string reason;
  bool is_by_signal = false;  // we were told to end
};
struct AckCommand {};
struct AskCommand {
  Question question;
};
struct AnswerCommand {
  uint64_t id = 0;
  std::string body;
};
struct StopCommand {
  StopHow how = StopHow::kGracefully;
  std::string reason;
};
// A later check of this node, which has joined and waits for a place.
struct HealthCommand {
  HealthReport report;
};
struct EndCommand {
  Duration timeout{0};
};
struct LifeCommand {};

// The answer to LookAtEndpoint and to CheckLocalName (kFound, kNoName or kNameLater).
struct Looked {
  enum class Outcome {
    kOurs,          // the coordinator of this run
    kOtherRun,      // a coordinator of another run: `text` is its id
    kOtherRelease,  // of this run, in a protocol that we do not speak: `text` says whose
    kForeign,       // something that answers otherwise: `text` is the beginning of that
    kDistrusted,  // something that is not of this job, or does not take us for it: `text` says why
    kExpired,     // this node's certificate, or the coordinator's, is not valid now: `text` says it
    kClosed,      // accepted, and closed without a word
    kSilent,      // accepted, and no word within the time (a stopped process does that)
    kRefused,     // the host says that nobody listens
    kUnreachable,  // `text` says why
    kNoName,       // the resolver is sure that there is no such name
    kNameLater,    // the resolver may answer later
    kFound,        // the name is one; kElected: somebody leads
    kVacant,       // kElected: nobody leads
    kBarred,  // kElected: etcd's answer, which no other attempt changes: `text` says what to do
  };
  Outcome outcome = Outcome::kUnreachable;
  std::string text = {};      // one phrase for people, without control characters
  std::string ip = {};        // of the address that answered best; empty: there is none
  bool is_own = false;        // kExpired: this node's
  bool is_this_host = false;  // one of the endpoint's addresses is this machine's
  bool is_apart = false;      // kOurs: the coordinator lives in no member's agent
  // kOtherRelease: it compares releases, too, and so refuses a join by name.
  bool refuses = false;
  std::string place = {};  // kElected: where the leader's coordinator is; empty: not known
  // kUnreachable: no kernel answered, by the network's word or within the time of a connect.
  bool is_unanswered = false;
};
// The answer to HostHere.
struct Hosted {
  enum class Outcome { kHosting, kPortTaken, kFailed, kExpired };
  Outcome outcome = Outcome::kHosting;
  std::string text = {};   // kFailed, kExpired: why; kElected: of kPortTaken, a place here, too
  bool is_local = false;   // kFailed: RendezvousFailed::Kind::kLocal
  std::string place = {};  // kElected: where the others reach it
};
// The coordinator of this process has ended its job: the verdict is known wherever it can be.
struct HostFinished {};
// The coordinator of this process may not speak for its job any more: `text` says why.
// `is_cut_off`: it should not, as it does not hear the others.
struct HostLost {
  std::string text;
  bool is_cut_off = false;
};
// The answer to StopHosting: the port is free.
struct HostStopped {};
// What was to be said last has been said; over a local link: and applied.
struct Said {};
struct Heard {
  JobInstance instance;  // the job's by the coordinator's word
  Action action;
};
struct BeatAnswered {
  uint64_t sequence = 0;
  Duration interval{0};  // to the next beat; 0: the coordinator does not say
};
// The link is over. `is_final`: `text` says what the coordinator does that makes another attempt
// useless ("does not understand this node: ...").
struct LinkEnded {
  bool is_final = false;
  std::string text;
};

using ContactEvent =
    std::variant<JoinCommand, ReportCommand, LeaveCommand, AckCommand, AskCommand, AnswerCommand,
                 StopCommand, HealthCommand, EndCommand, LifeCommand, Looked, Hosted, HostFinished,
                 HostLost, HostStopped, Said, Heard, BeatAnswered, LinkEnded, TimePassed>;

// Errands: each is answered by one event, however late.
struct CheckLocalName {};
struct LookAtEndpoint {
  uint16_t port = 0;
  bool is_port_here = false;  // not at the endpoint's name, but at its port on this machine
  bool is_at_link = false;    // not at the endpoint's name, but where the link leads
  bool is_key_only = false;   // kElected: who leads, by etcd's word alone
};
struct HostHere {
  uint16_t port = 0;
  bool is_leader_gone = false;  // kElected: the leader's machine says that nobody listens for it
};
// Allowed while another errand is under way. `is_resigning`: another coordinator has the job, or is
// about to.
struct StopHosting {
  bool is_resigning = false;
};
// Opens a link to the coordinator of this process, or to the one that the last look found.
struct OpenLink {
  bool is_local = false;
};
// Says one thing; Said or LinkEnded follows, and nothing more is said before. A heartbeat has a
// `sequence`, which BeatAnswered brings back from elsewhere. Only over a link that is open.
struct SayEvent {
  Event event;
  Duration round_trip{0};  // the shortest lately; 0: none was measured
  uint64_t sequence = 0;
};
// LinkEnded follows only a polite close, once all that was said has been applied.
struct CloseLink {
  bool is_polite = false;
};
struct Emit {
  RendezvousEvent event;
};

using ContactAction = std::variant<CheckLocalName, LookAtEndpoint, HostHere, StopHosting, OpenLink,
                                   SayEvent, CloseLink, Emit>;

class ContactCore {
 public:
  enum class State { kSeeking, kFound, kLinked, kOver, kEnded };

  // An endpoint that comes up within this is not worth a line on somebody's terminal.
  static constexpr Duration kQuietStart = std::chrono::milliseconds(500);
  // A port that accepts and closes for so long is no coordinator that is just starting or stopping.
  static constexpr Duration kClosedLimit = std::chrono::seconds(5);
  // A port of ours that is taken and takes no connection for so long is another program's.
  static constexpr Duration kTakenLimit = std::chrono::seconds(1);
  // One that takes connections and says nothing may be a coordinator's whom thousands ask at once:
  // three looks.
  static constexpr Duration kSilentLimit = std::chrono::seconds(15);
  // A node that has met its coordinator looks on for so long while only strangers answer in its
  // place. A service manager has started a coordinator again by then, also with a back-off. Another
  // program that has kept the port so long keeps it.
  static constexpr Duration kStrangerLimit = std::chrono::seconds(60);
  // After how long a look is told of: the first thing that is told, and any later one.
  static constexpr Duration kFirstLongLook = std::chrono::seconds(2);
  static constexpr Duration kLongLook = std::chrono::seconds(30);
  static constexpr char kLongLookText[] = "no answer so far";
  // Longer than gRPC's keepalive needs to find a dead connection (10 s): what this finds is a
  // coordinator whose connections live and which does not answer.
  static constexpr Duration kMaxSilence = std::chrono::seconds(15);
  // Until a coordinator says how often this node is to beat, its own evict time does.
  static constexpr Duration kMaxBeatInterval = std::chrono::seconds(1);
  static constexpr Duration kMinBeatInterval = std::chrono::milliseconds(10);
  // After how long without a sign of life the agent does not work: three of its turns.
  static constexpr Duration kLifePatience = 3 * RendezvousClient::kLifeInterval;
  // How long a node whose coordinator was cut off from the others lets them lead. They see within a
  // second that nobody does.
  static constexpr Duration kStandAside = std::chrono::seconds(10);
  // How soon etcd is asked again who leads while the leader's coordinator is silent: with twice the
  // pause each time...
  static constexpr Duration kFirstWatch = std::chrono::milliseconds(250);
  static constexpr Duration kLongestWatch = std::chrono::seconds(1);
  // ...and by all nodes together a thousand times a second at most.
  static constexpr Duration kWatchOfEach = std::chrono::milliseconds(1);
  // Where more nodes than these lose a leader, they look in turn who may be the next one.
  static constexpr int kAtOnce = 8;
  static constexpr Duration kTurnOfEach = std::chrono::milliseconds(1);
  static constexpr Duration kLastTurn = std::chrono::seconds(2);

  // `seed` spreads the waits between attempts; `host_name` is this machine's.
  ContactCore(ContactOptions options, const std::string& host_name, uint32_t seed, TimePoint now);

  // Applies one event. Same history, same actions, same order.  REQUIRES: now never decreases.
  std::vector<ContactAction> Step(TimePoint now, const ContactEvent& event);
  // When Step(now, TimePassed{}) would next act.
  std::optional<TimePoint> NextDeadline() const;

  State state() const { return state_; }

 private:
  enum class Errand { kNone, kName, kLook, kWayBack, kHost };
  using Outcome = Looked::Outcome;

  void On(const JoinCommand& command);
  void On(const ReportCommand& command);
  void On(const LeaveCommand& command);
  void On(const AckCommand&);
  void On(const AskCommand& command);
  void On(const AnswerCommand& command);
  void On(const StopCommand& command);
  void On(const HealthCommand& command);
  void SayAside(Event aside);
  void On(const EndCommand& command);
  void On(const LifeCommand&) { lifeless_for_ = Duration{0}; }
  void On(const Looked& look);
  void On(const Hosted& hosted);
  void On(const HostFinished&);
  void On(const HostLost& lost);
  void On(const HostStopped&);
  void On(const Said&);
  void On(const Heard& heard);
  void On(const BeatAnswered& answer);
  void On(const LinkEnded& end);
  void On(const TimePassed&) {}

  // What can be done now, whatever happened before.
  void GoOn();
  void Seek();
  void Talk();
  void End();

  // Transitions, named for where they go.
  void SeekAgain();
  void Find();
  void Link();
  void Fail(const std::string& message, RendezvousFailed::Kind kind = {});

  void JudgeName(const Looked& look);
  void JudgeAttempt(const Looked& look);
  // contact_election.cc, of kElected.
  bool IsElected() const { return options_.mode == ContactOptions::Mode::kElected; }
  void JudgeLeader(Looked look);
  // Of an agent whose coordinator, elsewhere, is silent: whether that leads still.
  void WatchLeader();
  std::optional<TimePoint> WatchAt() const;
  void HearOfLeader(const Looked& look);
  // The nodes that may want to lead: those of the round, or as many as there can be.
  int Candidates() const;
  // How long this one lets others try before it does: the lower ranks, or chance decides.
  Duration TurnAfter();
  void AwaitTurn();
  // Begins and ends the rows of answers that mean something if they last.
  void NoteRows(const Looked& look);
  // Why an agent that waits for a place should not go on; nullopt: it should.
  std::optional<std::string> FinalTrouble(const Looked& look) const;
  // Of a job whose coordinator was not met yet: whether it may be at the next port.
  bool HasNextPort() const;
  // Whether the next port's turn has come.
  bool TryNextPort(const Looked& look);
  void GoToNextPort();
  // What answers is the coordinator of another job of this run, which may be ending, or one that
  // has no place for this node yet.
  void HearOfOtherJob(const Refuse& refusal);
  void MakeContact();
  void LoseContact(ContactLost loss);
  // As long as this node's own options and the coordinator's word allow.
  void BeatEvery(Duration interval);
  // The agent has shown signs of life, and shows none any more.
  bool IsStuck() const { return lifeless_for_ >= kLifePatience; }
  // How long a coordinator on a live connection may not answer.
  Duration silence_limit() const {
    return std::max(std::min(options_.policy.evict_after * 3 / 2, kMaxSilence), 3 * beat_interval_);
  }
  // Of a coordinator in a member's agent: where its machine is lost, so are the ranks there.
  bool WatchesMachine() const;
  void HearMachine();
  void NoteAnswer(const Looked& look);
  void JudgeMachine();
  TimePoint KnockAt() const;
  // The end of the evict time; nullopt: no connect has waited for nothing.
  std::optional<TimePoint> UnansweredAt() const;
  // `text` identifies the wait. Where several alternate, each is told once a minute at most.
  void TellWait(const std::string& text, const std::string& reason);
  void Break(const std::string& reason);
  void StopHost(bool is_resigning = false);

  // This agent may become the coordinator where the port is free.
  bool MayHost() const;
  uint16_t Port() const;
  bool HasPort() const { return options_.mode != ContactOptions::Mode::kStandalone; }
  TimePoint GiveUpAt() const;
  TimePoint LongLookAt() const {
    return errand_since_ + (told_.empty() ? kFirstLongLook : kLongLook);
  }
  // "HOST:PORT", with the address behind the name where it differs: "node1:29400 (10.0.0.1)".
  std::string Place(const std::string& ip = "") const;
  std::string MeetingPlace(const std::string& ip) const {
    return options_.policy.meeting_place.empty() ? Place(ip) : options_.policy.meeting_place;
  }
  std::string AttemptText(const Looked& look) const;
  std::string WaitText(const std::string& last_try) const;
  std::string PortHere() const;
  std::string TakenText() const;
  std::string GiveUpText() const;
  void NameSpeaker(Refuse& refusal) const;
  // Built in place: GCC 12 takes the move of a variant that holds little for one of all it can
  // hold.
  template <typename Action>
  void Do(Action action) {
    actions_.emplace_back(std::move(action));
  }
  void Tell(RendezvousEvent event) { Do(Emit{std::move(event)}); }

  const ContactOptions options_;
  const std::optional<bool> hosts_by_name_;
  Duration beat_interval_;
  State state_ = State::kSeeking;
  TimePoint now_{};
  std::vector<ContactAction> actions_;
  AgentRecord record_;

  // Seeking.
  Errand errand_ = Errand::kNone;
  TimePoint errand_since_{};
  Backoff backoff_;
  std::minstd_rand random_;
  TimePoint attempt_at_{};
  bool is_name_checked_ = false;
  bool hosts_ = false;                       // the endpoint is this host's, as far as is known
  bool tries_host_ = false;                  // the port may be free for us
  bool goes_back_ = false;                   // the next look is where the link led
  size_t port_ = 0;                          // 0: the endpoint's, else one of more_ports
  size_t others_ports_ = 0;                  // in a row up to this one, of others
  std::optional<TimePoint> taken_since_;     // the port of this host, by nobody known
  std::optional<TimePoint> closed_since_;    // first of an unbroken row of kClosed answers
  std::optional<TimePoint> silent_since_;    // the first look of an unbroken row of kSilent ones
  std::optional<TimePoint> stranger_since_;  // first of an unbroken row of strangers' answers
  bool is_apart_ = false;                    // the coordinator that was found last
  std::string ip_;                           // where the last look was
  std::string leader_;                       // kElected: whose place the last look found
  bool is_leader_refusing_ = false;          // ...and its machine refuses for it
  // It stood for the place of a leader that refused, and has met no other leader since.
  bool took_refused_place_ = false;
  TimePoint turn_at_;                  // who looks from then on and finds nobody may lead
  Duration watch_pause_{0};            // from one watch to the next
  Duration next_watch_ = kFirstWatch;  // the longest that the pause behind the next one can be
  TimePoint stands_from_{};            // it lets others lead until then
  std::string trouble_;                // of the last attempt
  // What was told last, and what within the last minute: a text an attempt, which backs off.
  std::string told_;
  std::map<std::string, TimePoint> told_at_;
  // The coordinator that was found will refuse this node: what it ends with then.
  std::string misfit_;
  bool is_ending_ = false;  // a job of this run was found that is over: we wait for the next one

  // Hosting.
  bool is_hosting_ = false;
  bool is_stopping_host_ = false;

  // Contact.
  TimePoint without_contact_since_;
  TimePoint joined_at_{};
  bool had_contact_ = false;         // ever
  bool has_contact_ = false;         // on this link
  std::string made_leader_;          // kElected: with whom it was told last
  std::optional<ContactLost> loss_;  // the last word on contact, if it was that
  // When the coordinator's machine last answered, its kernel alone or more of it, and whether it
  // has let a connect wait for nothing since.
  TimePoint answered_at_{};
  bool is_unanswered_ = false;
  TimePoint knocked_at_{};

  // The link.
  bool is_local_ = false;
  bool is_saying_ = false;
  bool is_closing_ = false;
  TimePoint last_heard_{};
  TimePoint next_beat_{};
  uint64_t sequence_ = 0;
  TimePoint beat_said_at_{};
  // Since the agent's last sign of life, counted by beats: this whole process may have been
  // stopped. Empty: the agent shows none.
  std::optional<Duration> lifeless_for_;
  std::deque<Duration> round_trips_;  // the newest eight
  // Questions and answers to be said, behind all facts; they go with the link.
  static constexpr size_t kMaxAsides = 16;
  std::deque<Event> asides_;

  bool others_wait_ = false;  // for the verdict that this agent knows, or that its leaving makes
  std::optional<TimePoint> end_by_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CONTACT_CORE_H_
