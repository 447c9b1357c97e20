#include "rendezvous/server/coordinator.h"

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/mailbox.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/core/question_desk.h"
#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/text.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/server/job_file.h"
#include "rendezvous/server/port_listener.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/hello.h"
#include "rendezvous/wire/transit.h"

namespace ddprun::rendezvous {
namespace {

// More sessions than this are refused: every node needs one. Beats of so many take half a core, and
// the machine keeps their round when a node dies and when it is started again (machine_farm).
constexpr size_t kMaxSessions = 8192;
// How long a start waits for the job's file, and an end for its removal.
constexpr Duration kFileLimit = std::chrono::seconds(2);
// From this node's end until the others of a job that is stopped as a whole have left it.
constexpr Duration kDesertionPatience = std::chrono::seconds(1);

}  // namespace

// The machine's thread: takes events from its mailbox, steps the machine, carries out actions.
class Coordinator::Loop final : public Inbox, public std::enable_shared_from_this<Loop> {
 public:
  // `memory`: where records go; null: nowhere.
  Loop(Options& options, const Beginning& beginning, std::shared_ptr<JobMemory> memory,
       const Clock& clock)
      : memory_(std::move(memory)),
        log_step_(std::move(options.log_step)),
        on_resigns_(std::move(options.on_resigns)),
        on_finished_(std::move(options.on_finished)),
        on_bad_node_(std::move(options.on_bad_node)),
        is_taken_up_(beginning.is_remembered || beginning.verdict),
        gives_keys_(options.identity != nullptr),
        machine_(options.policy, beginning, clock.Now(),
                 memory_ == nullptr ? std::nullopt : memory_->election()),
        verdict_(beginning.verdict),
        run_id_(options.policy ? options.policy->run_id : beginning.run_id) {
    clock_ = &clock;
  }

  absl::Status Start() {
    thread_ = StartQuietThread([this] { Run(); });
    if (thread_.joinable()) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("start a thread for the coordinator: ", kNoThreadText));
  }

  std::optional<SessionId> Open(std::shared_ptr<Session> session) override {
    const std::lock_guard lock(mutex_);
    if (is_stopping_ || sessions_.size() >= kMaxSessions) return std::nullopt;
    const SessionId id{++last_session_};
    sessions_.emplace(id, std::move(session));
    return id;
  }

  void Post(SessionId session, Event event) override {
    std::visit(
        [session](auto& any) {
          if constexpr (requires { any.stamp; }) any.stamp.session = session;
          if constexpr (requires { any.session; }) any.session = session;
        },
        event);
    mailbox_.Post([this, session, posted = clock().Now(), event = std::move(event)]() mutable {
      Apply(session, posted, event);
    });
  }

  std::optional<Verdict> verdict() const {
    const std::lock_guard lock(mutex_);
    return verdict_;
  }

  // The only run that is served; empty until a node gives it.
  std::string run_id() const {
    const std::lock_guard lock(mutex_);
    return run_id_;
  }

  // Waits for `patience` at most. Whether no node is in the job, of which a round was; `by_word`:
  // as each has said that it leaves.
  bool AwaitDesertion(Duration patience, bool by_word) {
    const TimePoint until = clock().Now() + patience;
    std::unique_lock lock(mutex_);
    while (has_nodes_.value_or(false) && !verdict_ && clock().Now() < until) {
      left_.wait_for(lock, clock().Left(until));
    }
    return has_nodes_ == false && (is_deserted_ || !by_word);
  }

  // Takes what was posted, ends the thread and closes every session. Idempotent.
  void Stop() {
    std::map<SessionId, std::shared_ptr<Session>> sessions;
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    mailbox_.Close();
    if (memory_ != nullptr) memory_->EndWaits();
    if (thread_.joinable()) thread_.join();
    {
      const std::lock_guard lock(mutex_);
      sessions.swap(sessions_);
    }
    for (const auto& [id, session] : sessions) session->Close();
  }

  // The thread's own until Stop has returned.
  bool is_finished() const { return machine_.is_finished(); }
  // How long nodes wait for a coordinator, with workers or without; empty: none has come to tell.
  std::optional<Duration> nodes_wait() const {
    const Policy* policy = machine_.policy();
    if (policy == nullptr) return std::nullopt;
    return std::max(policy->orphan_timeout, policy->join_timeout);
  }
  bool has_job() const { return is_taken_up_ || machine_.policy() != nullptr; }
  // A round has begun, here or under an earlier coordinator of the job.
  bool has_begun() const { return is_taken_up_ || machine_.current().round != Round{}; }

 private:
  void Run() {
    // What agents said comes before deadlines that may have passed meanwhile: a coordinator that
    // was stopped for a while finds their heartbeats in the mailbox.
    while (mailbox_.RunFor(clock().Left(NextDeadline()))) {
      bool has_waited = false;
      if (!AwaitTurn(has_waited) || has_waited) continue;
      const TimePoint now = clock().Now();
      if (memory_ != nullptr) memory_->Look(now);
      const std::optional<TimePoint> deadline = machine_.NextDeadline();
      // What was said by then is heard first.
      if (deadline && *deadline <= now && mailbox_.is_empty()) StepMachine(now, TimePassed{});
      const std::optional<TimePoint> patience = desk_.NextDeadline();
      if (patience && *patience <= now) desk_.TimePassed(now, ToSessions(now));
    }
  }

  bool AwaitTurn(bool& has_waited) { return memory_ == nullptr || memory_->AwaitTurn(has_waited); }

  void Apply(SessionId id, TimePoint posted, Event& event) {
    bool has_waited = false;
    if (!AwaitTurn(has_waited)) return;  // another coordinator may speak for the job
    const std::shared_ptr<Session> session = Find(id);
    const bool is_break = std::holds_alternative<SessionBroken>(event);
    // What is left in the mailbox of a session that the machine had closed is dropped.
    if (session == nullptr && !std::holds_alternative<Recorded>(event)) return;
    if (is_break) Forget(id);
    const TimePoint now = clock().Now();
    AddWait(now - posted, event);  // for our turn above all
    machine_.NoteLag(now, now - posted);
    StepMachine(now, event);
    AskDesk(now, id, event);
    if (session != nullptr && !is_break) {
      session->Processed(current(), event, machine_.beat_interval());
    }
  }

  TimePoint NextDeadline() const {
    return std::min(machine_.NextDeadline().value_or(TimePoint::max()),
                    desk_.NextDeadline().value_or(TimePoint::max()));
  }

  void AskDesk(TimePoint now, SessionId id, const Event& event) {
    if (const auto* asked = std::get_if<QuestionAsked>(&event)) {
      desk_.Ask(now, id, asked->question, machine_.Places(), ToSessions(now));
    } else if (const auto* answer = std::get_if<AnswerGiven>(&event)) {
      desk_.Answer(now, id, answer->id, answer->body, ToSessions(now));
    } else if (std::holds_alternative<SessionBroken>(event)) {
      desk_.Forget(now, id, ToSessions(now));
    }
  }

  // Carries out what the desk says.
  QuestionDesk::Sink ToSessions(TimePoint now) {
    return [this, now](Action action) {
      auto* given = std::get_if<GiveAnswers>(&action);
      if (given != nullptr && given->is_last) given->facts = machine_.Facts(now);
      CarryOut(now, action);
    };
  }

  // One step of the machine, and what it asks for.
  void StepMachine(TimePoint now, const Event& event) {
    const bool was_open = machine_.policy() == nullptr;
    const std::vector<Action> actions = machine_.Step(now, event);
    {
      const std::lock_guard lock(mutex_);
      if (was_open && machine_.policy() != nullptr) run_id_ = machine_.policy()->run_id;
      if (machine_.current().round != Round{}) has_nodes_ = machine_.has_nodes();
      is_deserted_ = machine_.is_deserted();
    }
    left_.notify_all();
    // These come every second and would hide the rest.
    const bool is_routine = std::holds_alternative<HeartbeatReceived>(event) ||
                            std::holds_alternative<QuestionAsked>(event) ||
                            std::holds_alternative<AnswerGiven>(event) ||
                            std::holds_alternative<TimePassed>(event);
    if (log_step_ && !(is_routine && actions.empty())) log_step_("hears " + RenderEvent(event));
    if (!machine_.resignation().empty() && !std::exchange(has_resigned_, true) && on_resigns_) {
      on_resigns_(machine_.resignation());
    }
    for (const Action& action : actions) {
      if (log_step_) {
        const std::optional<SessionId> target = TargetOf(action);
        const std::string whom = target ? " session=" + std::to_string(target->value) + ":" : "";
        log_step_("says" + whom + " " + RenderAction(action));
      }
      CarryOut(now, action);
    }
  }

  void CarryOut(TimePoint now, const Action& action) {
    if (std::holds_alternative<Finish>(action)) {
      {
        const std::lock_guard lock(mutex_);
        verdict_ = machine_.verdict();
      }
      if (on_finished_) on_finished_();
      return;
    }
    if (const auto* record = std::get_if<Record>(&action)) return Write(*record);
    if (const auto* told = std::get_if<TellSite>(&action)) {
      if (on_bad_node_) on_bad_node_(told->host, told->reason);
      return;
    }
    const SessionId id = *TargetOf(action);
    const std::shared_ptr<Session> session = Find(id);
    if (session == nullptr) return;  // broken meanwhile; its SessionBroken is in the mailbox
    const bool closes = std::holds_alternative<CloseSession>(action);
    if (const auto* assign = std::get_if<Assign>(&action); assign != nullptr && gives_keys_) {
      session->Send(now, current(), WithKey(*assign));
    } else if (!closes) {
      session->Send(now, current(), action);
    }
    if (closes || std::holds_alternative<Refuse>(action)) {
      Forget(id);
      session->Close();
      desk_.Forget(now, id, ToSessions(now));  // the session says nothing of its end
    }
  }

  // Nodes that know each other get a secret for the round, which is in no record: a coordinator
  // that takes over gives none out anew for a round that it did not begin.
  Assign WithKey(Assign assign) {
    const Assignment& assignment = assign.assignment;
    if (round_key_.empty() || key_round_ != std::pair(assignment.epoch, assignment.round)) {
      round_key_.resize(kRoundKeyBytes);
      DDP_CHECK(getrandom(round_key_.data(), round_key_.size(), 0) ==
                static_cast<ssize_t>(round_key_.size()));
      key_round_ = {assignment.epoch, assignment.round};
    }
    assign.assignment.round_key = round_key_;
    return assign;
  }

  void Write(const Record& record) {
    // The memory's thread may outlive this loop.
    const auto tell = [weak = weak_from_this()] {
      if (const std::shared_ptr<Loop> loop = weak.lock()) loop->Post({}, Recorded{});
    };
    if (memory_ != nullptr) {
      memory_->Write(record, record.verdict ? std::function<void()>(tell) : nullptr);
    } else if (record.verdict) {
      tell();
    }
  }

  // The job, epoch and round that every message carries.
  Stamp current() const { return machine_.current(); }

  std::shared_ptr<Session> Find(SessionId id) {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : found->second;
  }

  void Forget(SessionId id) {
    const std::lock_guard lock(mutex_);
    sessions_.erase(id);
  }

  const Clock& clock() const { return *clock_.load(); }

  // Stored, not initialised: sessions post on threads of gRPC, whose order the thread sanitizer
  // does not see.
  std::atomic<const Clock*> clock_{nullptr};
  const std::shared_ptr<JobMemory> memory_;
  const std::function<void(const std::string&)> log_step_;
  const std::function<void(const std::string&)> on_resigns_;
  const std::function<void()> on_finished_;
  const std::function<void(const std::string& host, const std::string& reason)> on_bad_node_;
  const bool is_taken_up_;  // an earlier coordinator's job
  const bool gives_keys_;   // what is said to nodes goes over TLS
  Mailbox mailbox_;

  // The thread's own.
  RendezvousMachine machine_;
  QuestionDesk desk_;
  bool has_resigned_ = false;
  std::string round_key_;  // of key_round_; "": none was given yet
  std::pair<Epoch, Round> key_round_;

  mutable std::mutex mutex_;
  std::map<SessionId, std::shared_ptr<Session>> sessions_;
  uint64_t last_session_ = 0;
  std::optional<Verdict> verdict_;
  std::string run_id_;
  std::optional<bool> has_nodes_;  // nullopt: there was no round yet
  bool is_deserted_ = false;
  std::condition_variable left_;
  bool is_stopping_ = false;

  std::thread thread_;
};

// What is there only for agents elsewhere.
struct Coordinator::Door {
  ConnectionTable connections;
  std::unique_ptr<PortListener> listener;
  std::unique_ptr<Frontend> frontend;

  // The listener carries what the frontend says last.
  ~Door() {
    if (listener != nullptr) listener->CloseDoor();
    frontend.reset();
  }

  absl::Status Open(const std::shared_ptr<Loop>& loop, std::vector<UniqueFd> sockets,
                    Options& options, const Clock& clock) {
    const auto run_id = [loop] { return CleanText(loop->run_id()); };
    auto started = StartGrpcFrontend(loop, run_id, connections);
    if (!started.ok()) return started.status();
    frontend = *std::move(started);
    absl::StatusOr<std::unique_ptr<PortListener>> listening =
        PortListener::Start(std::move(sockets),
                            {.on_store = std::move(options.on_store_connection),
                             .on_http2 = [this](UniqueFd fd) { frontend->Take(std::move(fd)); },
                             .on_no_descriptor = std::move(options.on_no_descriptor),
                             .on_refused = std::move(options.on_refused),
                             .connections = &connections,
                             .hello_reply =
                                 [run_id, is_apart = options.is_apart] {
                                   return MakeHelloReply({run_id(), is_apart});
                                 },
                             .identity = std::move(options.identity),
                             .is_for_own_user = options.is_for_own_user},
                            clock);
    if (!listening.ok()) return listening.status();
    listener = *std::move(listening);
    return absl::OkStatus();
  }
};

Coordinator::Coordinator() = default;

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(Options options,
                                                                const Clock& clock) {
  // The port first, which one coordinator alone can have: of several agents on this host that try
  // at once only the winner touches the job's file. A start that fails lets go of it last.
  ListeningSockets listening;
  auto coordinator = std::unique_ptr<Coordinator>(new Coordinator);
  if (options.listen) {
    const Listen& at = *options.listen;
    absl::StatusOr<ListeningSockets> bound =
        at.host.empty() ? ListenOnEach(at.only, at.port) : ListenOnOne(at.host, at.port);
    if (!bound.ok()) return bound.status();
    listening = *std::move(bound);
    for (const UniqueFd& socket : listening.sockets) AvoidLargePackets(socket.get());
    coordinator->port_ = LocalPort(listening.sockets[0].get());
    if (!listening.is_everywhere) coordinator->hosts_ = options.listen->only;
  }
  // Where it lives in an agent, which is about to end. No successor in another one takes a file up;
  // with etcd one may, so that only the nodes' own word counts.
  coordinator->forgets_deserted_ =
      (!options.run_dir.empty() || options.memory != nullptr) && !options.is_apart;
  coordinator->may_have_successor_ = options.memory != nullptr;
  std::shared_ptr<JobMemory> memory = std::move(options.memory);
  if (memory == nullptr && !options.run_dir.empty()) {
    auto opened = JobFile::Open(std::move(options.run_dir), clock, std::move(options.on_file_lost));
    if (!opened.ok()) return opened.status();
    memory = *std::move(opened);
  }
  absl::StatusOr<Beginning> beginning =
      memory != nullptr ? memory->Begin(coordinator->port_, kFileLimit) : BeginAnew();
  if (!beginning.ok()) return beginning.status();
  beginning->run_id = std::move(options.run_id);
  coordinator->memory_ = memory;
  coordinator->loop_ = std::make_shared<Loop>(options, *beginning, std::move(memory), clock);
  if (absl::Status status = coordinator->loop_->Start(); !status.ok()) return status;
  if (!options.listen) return coordinator;
  coordinator->door_ = std::make_unique<Door>();
  const absl::Status opened =
      coordinator->door_->Open(coordinator->loop_, std::move(listening.sockets), options, clock);
  if (!opened.ok()) return opened;
  return coordinator;
}

Coordinator::~Coordinator() { Stop(); }

std::shared_ptr<Inbox> Coordinator::inbox() const { return loop_; }
std::optional<Verdict> Coordinator::verdict() const { return loop_->verdict(); }

int Coordinator::exit_code() const {
  const std::optional<Verdict> end = verdict();
  return end ? end->exit_code : kRendezvousExitCode;
}

void Coordinator::Stop() {
  if (loop_ == nullptr) return;  // it did not start
  // Whoever stops a whole job stops this node a moment before the others.
  const bool is_deserted = std::exchange(forgets_deserted_, false) &&
                           loop_->AwaitDesertion(kDesertionPatience, may_have_successor_);
  // First the loop, which closes the sessions behind what they were told last; then the door, whose
  // frontend gives them a moment to get it out.
  loop_->Stop();
  const std::shared_ptr<JobMemory> memory = std::exchange(memory_, nullptr);
  // While the port is still ours. Of a job that never began there is nothing to remember.
  const bool is_over = loop_->is_finished() || !loop_->has_begun() || is_deserted;
  if (memory != nullptr) {
    is_over ? memory->Forget(kFileLimit) : memory->Leave(kFileLimit, loop_->nodes_wait());
  }
  door_.reset();
}

void Coordinator::Resign() {
  forgets_deserted_ = false;
  Stop();
}

bool Coordinator::has_job() const { return loop_->has_job(); }

}  // namespace ddprun::rendezvous
