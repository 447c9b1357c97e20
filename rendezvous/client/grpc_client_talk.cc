// The half of the client's thread that talks on an open stream.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/grpc_client_loop.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kBeatInterval = std::chrono::seconds(1);
// Longer than gRPC's keepalive needs to find a dead connection (10 s): what this finds is a
// coordinator whose connections live and which does not answer.
constexpr Duration kSilenceLimit = std::chrono::seconds(15);
constexpr size_t kKeptRoundTrips = 8;

}  // namespace

GrpcClientLoop::Step GrpcClientLoop::BeginConversation() {
  {
    const std::lock_guard lock(mutex_);
    if (flush_by_) return Step::kEnd;
    is_conversing_ = true;
    record_.StartSession();
  }
  // A stream without a word is closed by the coordinator: it is opened when there is one to say.
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (flush_by_) return Step::kEnd;
      if (record_.has_unsaid()) return Step::kGoOn;
    }
    wake_->Wait(seen_changes_, SteadyNow() + std::chrono::hours(1));
  }
}

void GrpcClientLoop::EndConversation() {
  const std::lock_guard lock(mutex_);
  is_conversing_ = false;
  if (flush_by_) stop_.Set();
}

GrpcClientLoop::Step GrpcClientLoop::Converse(const SocketAddress& address) {
  const auto call = AttachCall::Start(address, [wake = wake_] { wake->Notify(); });
  address_ = address;
  has_contact_ = false;
  last_heard_ = SteadyNow();
  next_beat_ = last_heard_;
  for (;;) {
    if (Listen(*call) == Step::kEnd) return Step::kEnd;
    if (const std::optional<grpc::Status> status = call->end()) return JudgeEnd(*status);
    if (Speak(*call) == Step::kEnd) return Step::kEnd;
    const TimePoint now = SteadyNow();
    if (now - last_heard_ > kSilenceLimit) {
      return JudgeEnd(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                                   "the coordinator has not answered for 15 s"));
    }
    // While a write is under way a beat that is due waits for its end, which wakes us.
    const TimePoint wake_at = call->can_write() ? next_beat_ : now + kBeatInterval;
    wake_->Wait(seen_changes_, wake_at);
  }
}

GrpcClientLoop::Step GrpcClientLoop::Listen(AttachCall& call) {
  while (const std::optional<v1::CoordinatorMessage> message = call.TakeMessage()) {
    if (Hear(*message) == Step::kEnd) return Step::kEnd;
  }
  return Step::kGoOn;
}

GrpcClientLoop::Step GrpcClientLoop::Hear(const v1::CoordinatorMessage& message) {
  const TimePoint now = SteadyNow();
  last_heard_ = now;
  if (!std::exchange(has_contact_, true)) {
    if (!std::exchange(had_contact_, true)) {
      Emit(ContactMade{PlaceText(options_.endpoint, address_), false});
    }
    backoff_.Reset();
    told_trouble_.clear();
    if (std::exchange(is_lost_, false)) Emit(ContactRestored{});
  }
  if (message.has_heartbeat_reply()) {
    HearBeat(message.heartbeat_reply().sequence());
    return Step::kGoOn;
  }
  if (message.kind_case() == v1::CoordinatorMessage::KIND_NOT_SET) {
    return Step::kGoOn;  // of a newer coordinator
  }
  absl::StatusOr<Action> action = FromProto(message, now);
  if (!action.ok()) {
    return Fail(absl::StrCat("the coordinator at ", PlaceText(options_.endpoint, {}),
                             " sent a malformed message: ", action.status().message()));
  }
  if (auto* refuse = std::get_if<Refuse>(&*action)) {
    refuse->message = absl::StrCat("the coordinator at ", PlaceText(options_.endpoint, {}),
                                   " ends the wait: ", refuse->message);
  }
  std::optional<RendezvousEvent> event;
  {
    const std::lock_guard lock(mutex_);
    event = record_.Hear(InstanceOf(message), *action);
  }
  if (!event) return Step::kGoOn;
  const bool is_final = std::holds_alternative<RendezvousFailed>(*event);
  Emit(*std::move(event));
  return is_final ? Step::kEnd : Step::kGoOn;
}

void GrpcClientLoop::HearBeat(uint64_t sequence) {
  if (sequence != beat_sequence_) return;  // of a beat that was overtaken
  round_trips_.push_back(last_heard_ - beat_sent_at_);
  if (round_trips_.size() > kKeptRoundTrips) round_trips_.pop_front();
}

GrpcClientLoop::Step GrpcClientLoop::Speak(AttachCall& call) {
  const TimePoint now = SteadyNow();
  std::optional<Event> event;
  std::optional<TimePoint> flush_by;
  Stamp stamp;
  const bool can_write = call.can_write();
  {
    const std::lock_guard lock(mutex_);
    flush_by = flush_by_;
    if (can_write) event = record_.NextToSay(now);
    stamp = record_.stamp();
  }
  if (flush_by && now >= *flush_by) return Step::kEnd;
  if (!can_write) return Step::kGoOn;
  if (event) {
    // The shortest one: the others also waited in some queue.
    const auto trip = std::min_element(round_trips_.begin(), round_trips_.end());
    absl::StatusOr<v1::AgentMessage> message =
        ToProto(*event, trip == round_trips_.end() ? Duration{0} : *trip);
    if (!message.ok()) return Fail(std::string(message.status().message()));
    call.Write(*std::move(message));
  } else if (flush_by) {
    call.HalfClose();
  } else if (now >= next_beat_) {
    next_beat_ = now + kBeatInterval;
    beat_sent_at_ = now;
    call.Write(HeartbeatToProto(stamp, ++beat_sequence_));
  }
  return Step::kGoOn;
}

GrpcClientLoop::Step GrpcClientLoop::JudgeEnd(const grpc::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (flush_by_ || record_.is_over()) return Step::kEnd;
  }
  const std::string text = CleanText(status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
      return Fail(absl::StrCat("the coordinator at ", PlaceText(options_.endpoint, {}),
                               " does not understand this node: ", text));
    default:
      break;
  }
  const std::string reason = text.empty() ? "the stream ended" : text;
  if (has_contact_) LoseContact(reason, false);
  SeekResult attempt;
  attempt.probe.text = reason;
  // What broke after contact is looked into by the next attempt.
  return has_contact_ ? Step::kGoOn : JudgeAttempt(attempt);
}

}  // namespace ddprun::rendezvous
