// gRPC, and each Attach call as a session. Converts and posts; decides nothing.
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/core/question_desk.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/net/connection_table.h"
#include "rendezvous/server/answer_budget.h"
#include "rendezvous/server/look_stream.h"
#include "rendezvous/server/session.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/transit.h"

namespace ddprun::rendezvous {
namespace {

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

// How long sessions may take to get out what they were told last.
constexpr std::chrono::seconds kShutdownGrace{1};

// A stream over which nobody joins ends then, also where its connection has joined before: a port
// open to strangers has a bounded number of sessions.
constexpr int64_t kJoinLimitMs = 5000;

// Messages that an agent has not read yet. It gets a handful per round: one that lets so many pile
// up does not read at all.
constexpr size_t kMaxOutgoing = 64;
// Likewise parts of answers. Those to one question come all at once, and are at most as many as the
// desk may hold bytes; half of each is full.
constexpr size_t kMaxOutgoingAnswers =
    2 * QuestionDesk::kMaxHeldBytes / QuestionDesk::kMaxPartBytes + 64;

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// gRPC tells a message that does not parse and the end of the stream apart only where it parses
// nothing: so this side of Attach reads and writes bytes.
using AttachReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
using AttachService = v1::Rendezvous::WithRawCallbackMethod_Attach<
    v1::Rendezvous::WithCallbackMethod_Look<v1::Rendezvous::Service>>;

// One Attach call. Lives until gRPC says OnDone, through `self_`, and until the driver forgets it.
// Operations are started under the mutex: gRPC never calls a reaction from within the call that
// starts the operation, and so none is started after Finish.
class AttachStream final : public AttachReactor, public Session {
 public:
  AttachStream(std::shared_ptr<Inbox> inbox, const std::function<std::string()>& run_id,
               std::shared_ptr<AnswerBudget> budget, grpc::CallbackServerContext* context,
               const ConnectionTable& connections)
      : inbox_(std::move(inbox)),
        run_id_(run_id),
        budget_(std::move(budget)),
        connection_(connections.Find(context->peer())),
        context_(context) {}

  void Begin(std::shared_ptr<AttachStream> self) {
    self_ = self;
    join_timer_.Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_millis(kJoinLimitMs, GPR_TIMESPAN)),
                    [weak = std::weak_ptr(self)](bool is_due) {
                      const std::shared_ptr<AttachStream> stream = weak.lock();
                      if (is_due && stream != nullptr) stream->OnJoinLimit();
                    });
    const std::optional<SessionId> id = inbox_->Open(std::move(self));
    const std::lock_guard lock(mutex_);
    if (!id) {
      is_broken_ = true;
      FinishLater(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room for another agent"));
      return;
    }
    id_ = *id;
    if (!finish_) StartRead(&reading_);
  }

  // From gRPC's threads.
  void OnReadDone(bool ok) override {
    if (!ok) return Break(grpc::Status::OK, true);  // half-closed, and all before it was applied
    if (!grpc::SerializationTraits<v1::AgentMessage>::Deserialize(&reading_, &incoming_).ok()) {
      return Break({grpc::StatusCode::INVALID_ARGUMENT, "the message does not parse"}, false);
    }
    absl::StatusOr<Event> event = FromProto(incoming_);
    if (!event.ok()) return Break(ToGrpc(event.status()), false);
    if (auto* joined = std::get_if<NodeJoined>(&*event)) {
      // The machine refuses those of another run, whose connections do not count as joined.
      const std::string run_id = run_id_();
      const bool is_ours = run_id.empty() || joined->policy.run_id == run_id;
      if (connection_ == nullptr) return Break(grpc::Status::OK, true);  // it is over already
      if (is_ours) connection_->has_joined = true;
      joined->source_addr = IpText(connection_->peer);
      joined->accepted_addr = IpText(connection_->local);
    }
    const std::lock_guard lock(mutex_);
    has_joined_ = has_joined_ || std::holds_alternative<NodeJoined>(*event);
    if (!has_joined_) {
      return BreakLocked(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                                      "the first message of a stream must be a join"));
    }
    // What does not fit is negative then, and means nothing.
    transit_.Correct(SteadyNow(), Duration(static_cast<int64_t>(incoming_.sent_ns())), *event);
    inbox_->Post(id_, *std::move(event));
  }

  void OnWriteDone(bool ok) override {
    if (!ok) Break(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream broke"), true);
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    writing_charge_ = {};
    Pump();
  }

  void OnCancel() override {
    Break(grpc::Status(grpc::StatusCode::CANCELLED, "the stream was cancelled"), true);
  }

  void OnJoinLimit() {
    const std::lock_guard lock(mutex_);
    if (has_joined_) return;
    BreakLocked(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no join came within 5 s"));
  }

  void OnDone() override {
    {
      const std::lock_guard lock(mutex_);
      context_ = nullptr;
    }
    const std::shared_ptr<AttachStream> self = std::move(self_);
  }

  // From the driver's thread.
  void Send(TimePoint now, const Stamp& current, const Action& action) override {
    Push(ToProto(action, current, now));
  }

  void Processed(const Stamp& current, const Event& event, Duration beat_interval) override {
    if (std::holds_alternative<HeartbeatReceived>(event)) {
      v1::CoordinatorMessage reply;
      reply.set_epoch(current.epoch.value);
      reply.set_round(current.round.value);
      // The next message is read only below, so this is still the heartbeat.
      reply.mutable_heartbeat_reply()->set_sequence(incoming_.heartbeat().sequence());
      const auto interval = std::chrono::ceil<std::chrono::milliseconds>(beat_interval);
      reply.mutable_heartbeat_reply()->set_interval_ms(static_cast<uint32_t>(interval.count()));
      Push(std::move(reply));
    }
    const std::lock_guard lock(mutex_);
    if (!finish_) StartRead(&reading_);
  }

  void Close() override {
    const std::lock_guard lock(mutex_);
    is_broken_ = true;  // the driver has forgotten this session
    finishes_politely_ = true;
    FinishLater(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator closed the session"));
  }

 private:
  struct Waiting {
    v1::CoordinatorMessage message;
    AnswerCharge charge;
  };

  void Push(v1::CoordinatorMessage message) {
    const std::lock_guard lock(mutex_);
    if (finish_) return;
    const bool is_answer = message.has_answers();
    std::deque<Waiting>& queue = is_answer ? answers_ : outgoing_;
    if (queue.size() == (is_answer ? kMaxOutgoingAnswers : kMaxOutgoing)) {
      // The write in flight may never end by itself.
      if (context_ != nullptr) context_->TryCancel();
      BreakLocked(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the agent reads too slowly"));
      return;
    }
    AnswerCharge charge;
    if (is_answer) charge = AnswerCharge(budget_, this, *message.mutable_answers());
    queue.push_back({std::move(message), std::move(charge)});
    Pump();
  }

  // The session is over: nothing of it reaches the driver after SessionBroken.
  void Break(const grpc::Status& status, bool is_by_peer) {
    const std::lock_guard lock(mutex_);
    BreakLocked(status, is_by_peer);
  }

  void BreakLocked(const grpc::Status& status, bool is_by_peer = false) {
    if (!std::exchange(is_broken_, true)) {
      inbox_->Post(id_, SessionBroken{.session = {}, .is_by_peer = is_by_peer});
    }
    FinishLater(status);
  }

  // REQUIRES: the mutex is held, here and below.
  void FinishLater(const grpc::Status& status) {
    if (!finish_) finish_ = status;
    answers_.clear();
    if (!finishes_politely_) outgoing_.clear();
    Pump();
  }

  void Pump() {
    if (is_writing_ || is_finished_) return;
    std::deque<Waiting>& queue = outgoing_.empty() ? answers_ : outgoing_;
    if (!queue.empty()) {
      is_writing_ = true;
      bool is_ours = false;
      writing_.Clear();  // which Serialize requires; it fails of 2 GiB alone
      (void)grpc::SerializationTraits<v1::CoordinatorMessage>::Serialize(queue.front().message,
                                                                         &writing_, &is_ours);
      writing_charge_ = std::move(queue.front().charge);
      queue.pop_front();
      StartWrite(&writing_);
    } else if (finish_) {
      is_finished_ = true;
      Finish(*finish_);
    }
  }

  const std::shared_ptr<Inbox> inbox_;
  const std::function<std::string()>& run_id_;  // the frontend's
  const std::shared_ptr<AnswerBudget> budget_;
  const std::shared_ptr<ConnectionTable::Connection> connection_;
  SessionId id_;
  std::shared_ptr<AttachStream> self_;
  grpc::ByteBuffer reading_;   // of gRPC from StartRead to OnReadDone
  v1::AgentMessage incoming_;  // of the driver from OnReadDone to Processed

  grpc::Alarm join_timer_;

  std::mutex mutex_;
  bool has_joined_ = false;
  Transit transit_;
  grpc::CallbackServerContext* context_;  // null from OnDone on
  std::deque<Waiting> outgoing_;
  std::deque<Waiting> answers_;  // they let all else pass
  grpc::ByteBuffer writing_;     // of gRPC if is_writing_
  AnswerCharge writing_charge_;
  bool is_writing_ = false;
  bool is_broken_ = false;          // SessionBroken was posted, or is not wanted
  bool finishes_politely_ = false;  // what is queued goes out before Finish
  std::optional<grpc::Status> finish_;
  bool is_finished_ = false;
};

class GrpcFrontend final : public Frontend, public AttachService {
 public:
  GrpcFrontend(std::shared_ptr<Inbox> inbox, std::function<std::string()> run_id,
               ConnectionTable& connections)
      : inbox_(std::move(inbox)), run_id_(std::move(run_id)), connections_(connections) {}

  ~GrpcFrontend() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
  }

  // False: gRPC could not.
  bool Start() {
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    return server_ != nullptr;
  }

  void Take(UniqueFd fd) override {
    Acceptor::NewConnectionParameters connection;
    connection.fd = fd.Release();
    acceptor_->HandleNewConnection(&connection);
  }

  AttachReactor* Attach(grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<AttachStream>(inbox_, run_id_, budget_, context, connections_);
    stream->Begin(stream);
    return stream.get();
  }

  grpc::ServerWriteReactor<v1::Answers>* Look(grpc::CallbackServerContext* context,
                                              const v1::Question* question) override {
    auto stream =
        std::make_shared<LookStream>(inbox_, question->id(), looks_, look_budget_, context);
    stream->Begin(stream);
    return stream.get();
  }

 private:
  const std::shared_ptr<Inbox> inbox_;
  const std::function<std::string()> run_id_;
  ConnectionTable& connections_;
  std::atomic<int> looks_{0};  // Look calls under way
  // Who only looks on keeps no answer from those who have joined.
  const std::shared_ptr<AnswerBudget> look_budget_ =
      std::make_shared<AnswerBudget>(LookStream::kBudgetBytes);
  const std::shared_ptr<AnswerBudget> budget_ =
      std::make_shared<AnswerBudget>(QuestionDesk::kMaxHeldBytes);
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Frontend>> StartGrpcFrontend(std::shared_ptr<Inbox> inbox,
                                                            std::function<std::string()> run_id,
                                                            ConnectionTable& connections) {
  PrepareGrpc();
  auto frontend = std::make_unique<GrpcFrontend>(std::move(inbox), std::move(run_id), connections);
  if (!frontend->Start()) return absl::InternalError("gRPC could not start a server");
  return frontend;
}

}  // namespace ddprun::rendezvous
