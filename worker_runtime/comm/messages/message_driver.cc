#include "worker_runtime/comm/messages/message_driver.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

// How often the group's own error is looked at while something is under way.
constexpr std::chrono::milliseconds kLook(100);
// A connection that ends may be the first sign of what the group itself finds out and has better
// words for: that a rank died, or has called Abort().
constexpr std::chrono::milliseconds kPatienceForCause(500);
constexpr std::chrono::milliseconds kLookForCause(20);
// Of one rank. More are no rank's of ours.
constexpr size_t kMaxOffers = size_t{1} << 20;

std::string Gone(int rank, const absl::Status& why) {
  return absl::StrCat("rank ", rank, " is gone: ", why.message());
}

}  // namespace

void MessageDriver::Run() {
  try {
    RunWithMemory();
  } catch (const std::bad_alloc&) {
    EndForMemory();
  }
}

void MessageDriver::EndForMemory() {
  outgoing_.clear();
  incoming_.clear();
  // Who connects later is refused: nobody accepts from here on.
  shutdown(owner_.listener_.get(), SHUT_RDWR);
  {
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.failure_.ok()) owner_.failure_ = no_memory_;
    const auto end = [this, now = Clock::now()](Message& message) {
      if (message.is_done) return;
      message.status = no_memory_;
      message.ended_at = now;
      message.is_done = true;
    };
    for (const auto* messages : {&owner_.started_, &taken_}) {
      for (const Pending& message : *messages) end(*message);
    }
    for (const auto& [id, message] : pending_) end(*message);
    owner_.started_.clear();
  }
  owner_.ended_.notify_all();
}

void MessageDriver::RunWithMemory() {
  while (TakeStarted()) {
    Wait();
    EndLate();
    if (Clock::now() < next_look_) continue;
    next_look_ = Clock::now() + (lost_.empty() ? kLook : kLookForCause);
    const absl::Status status = pending_.empty() ? absl::OkStatus() : owner_.group_error_();
    if (!status.ok()) EndAll(status);
    EndLost();
  }
}

void MessageDriver::Lose(const Pending& message, const std::string& why) {
  lost_.push_back({message, absl::UnavailableError(absl::StrCat(Describe(*message), ": ", why)),
                   Clock::now() + kPatienceForCause});
  next_look_ = Clock::now();
}

void MessageDriver::EndLost() {
  const Clock::time_point now = Clock::now();
  std::erase_if(lost_, [&](const Lost& lost) {
    if (pending_.contains(lost.message->id) && now < lost.until) return false;
    if (pending_.contains(lost.message->id)) End(lost.message, lost.why);
    return true;
  });
}

bool MessageDriver::TakeStarted() {
  absl::Status failure;
  bool is_stopping;
  {
    const std::lock_guard lock(owner_.mutex_);
    taken_.swap(owner_.started_);
    failure = owner_.failure_;
    is_stopping = owner_.is_stopping_;
  }
  for (const Pending& message : taken_) {
    pending_[message->id] = message;
    if (failure.ok()) (message->is_send ? StartSend(message) : StartReceive(message));
  }
  taken_.clear();
  if (!failure.ok()) EndAll(failure);
  return !is_stopping;
}

void MessageDriver::StartSend(const Pending& message) {
  const absl::StatusOr<Outgoing*> link = OutgoingTo(message->peer);
  if (!link.ok()) return Lose(message, std::string(link.status().message()));
  (*link)->offered[message->id] = message;
  MessageFrame offer;
  offer.kind = MessageFrame::kOffer;
  offer.id = message->id;
  offer.tag = message->tag;
  offer.bytes = message->bytes;
  (*link)->socket.Queue(offer);
}

void MessageDriver::StartReceive(const Pending& message) {
  const auto offer = matching_.Post({message->peer, message->tag, message->id});
  if (offer.has_value()) return Accept(*offer, message);
  if (message->peer == kAnySource) return;
  const absl::StatusOr<Outgoing*> link = OutgoingTo(message->peer);
  if (link.ok()) return;
  matching_.Cancel(message->id);
  Lose(message, std::string(link.status().message()));
}

// Its send was given up before this rank's word had got there.
void MessageDriver::PostAgain(const Pending& message) {
  {
    const std::lock_guard lock(owner_.mutex_);
    message->is_accepted = false;
    message->source = -1;
  }
  const auto offer = matching_.Post({message->peer, message->tag, message->id});
  if (offer.has_value()) Accept(*offer, message);
}

void MessageDriver::Accept(const MessageMatching::Offer& offer, Pending message) {
  const auto link = std::find_if(incoming_.begin(), incoming_.end(), [&](const auto& incoming) {
    return incoming->rank == offer.source && !incoming->is_replaced;
  });
  if (link == incoming_.end()) {
    return End(message, absl::InternalError(absl::StrCat(Describe(*message), ": no connection")));
  }
  MessageFrame answer;
  answer.id = offer.id;
  answer.bytes = message->bytes;
  if (offer.bytes != message->bytes) {
    answer.kind = MessageFrame::kRefuse;
    End(message,
        absl::InvalidArgumentError(absl::StrCat(Describe(*message), ": rank ", offer.source,
                                                " sends ", offer.bytes, " bytes")));
  } else {
    answer.kind = MessageFrame::kAccept;
    (*link)->accepted[offer.id] = message;
    const std::lock_guard lock(owner_.mutex_);
    message->is_accepted = true;
    message->source = offer.source;
  }
  (*link)->socket.Queue(answer);
}

void MessageDriver::Wait() {
  std::vector<pollfd> polled;
  Clock::time_point until = pending_.empty() ? Clock::now() + std::chrono::hours(1) : next_look_;
  for (const auto& [id, message] : pending_) {
    until = std::min(until, message->started_at + message->timeout);
  }
  for (const auto& [rank, link] : outgoing_) {
    const bool must_write = link.socket.HasQueued() || link.moving != nullptr;
    polled.push_back(
        {link.socket.fd(), static_cast<short>(must_write ? POLLIN | POLLOUT : POLLIN), 0});
  }
  for (const auto& link : incoming_) {
    if (link->rank < 0) until = std::min(until, link->since + Acceptor::kPatience);
    polled.push_back({link->socket.fd(),
                      static_cast<short>(link->socket.HasQueued() ? POLLIN | POLLOUT : POLLIN), 0});
  }
  polled.push_back({owner_.wake_.get(), POLLIN, 0});
  const bool is_full = Strangers() >= Acceptor::kMaxStrangers;
  polled.push_back({is_full ? -1 : owner_.listener_.get(), POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  poll(polled.data(), polled.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  uint64_t wakes;
  if (read(owner_.wake_.get(), &wakes, sizeof wakes) < 0) wakes = 0;  // nobody has called
  // Those who come may have offers: they are heard before anybody's end is.
  if (polled.back().revents != 0) AcceptConnections();

  std::vector<std::pair<Incoming*, absl::Status>> broken;
  for (const auto& link : incoming_) {
    absl::Status status = Serve(*link);
    if (!status.ok()) broken.push_back({link.get(), status});
  }
  for (const auto& link : incoming_) {
    if (!link->is_replaced) continue;
    broken.push_back({link.get(), absl::UnavailableError("it has connected again")});
  }
  for (const auto& [link, why] : broken) {
    const bool is_there =
        std::any_of(incoming_.begin(), incoming_.end(),
                    [gone = link](const auto& other) { return other.get() == gone; });
    if (is_there) DropIncoming(*link, Gone(link->rank, why));
  }
  std::vector<std::pair<int, absl::Status>> ended;
  for (auto& [rank, link] : outgoing_) {
    if (absl::Status status = Serve(rank, link); !status.ok()) ended.push_back({rank, status});
  }
  for (const auto& [rank, why] : ended) {
    DropOutgoing(rank, Gone(rank, why));
    for (uint64_t id : matching_.DropReceives(rank)) Lose(pending_.at(id), Gone(rank, why));
  }
  DropOldStrangers();
}

absl::Status MessageDriver::Hear(Outgoing& link) {
  for (;;) {
    const auto is_whole =
        link.socket.Read(reinterpret_cast<char*>(&link.frame), sizeof link.frame, &link.frame_read);
    if (!is_whole.ok() || !*is_whole) return is_whole.status();
    link.frame_read = 0;
    const auto offered = link.offered.find(link.frame.id);
    if (offered == link.offered.end()) {
      // It was given up meanwhile, which the other end does not know yet.
      if (link.frame.kind == MessageFrame::kAccept || link.frame.kind == MessageFrame::kRefuse) {
        continue;
      }
      return absl::InternalError("it says what no rank of this version does");
    }
    const Pending message = offered->second;
    link.offered.erase(offered);
    if (link.frame.kind == MessageFrame::kAccept) {
      link.accepted.push_back(message);
      const std::lock_guard lock(owner_.mutex_);
      message->is_accepted = true;
    } else {
      End(message,
          absl::InvalidArgumentError(absl::StrCat(Describe(*message), ": its receive has room for ",
                                                  link.frame.bytes, " bytes")));
    }
  }
}

absl::Status MessageDriver::WriteData(Outgoing& link) {
  for (;;) {
    if (link.moving == nullptr) {
      const absl::StatusOr<bool> is_flushed = link.socket.Flush();
      if (!is_flushed.ok() || !*is_flushed || link.accepted.empty()) return is_flushed.status();
      link.moving = link.accepted.front();
      link.accepted.pop_front();
      link.frame_moved = link.moved = 0;
      link.moving_frame = {};
      link.moving_frame.kind = MessageFrame::kData;
      link.moving_frame.id = link.moving->id;
      link.moving_frame.bytes = link.moving->bytes;
    }
    // No Flush() before the last of the data: an offer or a withdrawal would go in among them.
    const auto is_framed = link.socket.Write(reinterpret_cast<const char*>(&link.moving_frame),
                                             sizeof link.moving_frame, &link.frame_moved);
    if (!is_framed.ok() || !*is_framed) return is_framed.status();
    const auto is_sent = link.socket.Write(link.moving->data, link.moving->bytes, &link.moved);
    if (!is_sent.ok() || !*is_sent) return is_sent.status();
    End(std::exchange(link.moving, nullptr), absl::OkStatus());
  }
}

absl::Status MessageDriver::Hear(Incoming& link) {
  for (;;) {
    if (link.moving != nullptr) {
      const auto is_here = link.socket.Read(link.moving->data, link.moving->bytes, &link.moved);
      if (!is_here.ok() || !*is_here) return is_here.status();
      End(std::exchange(link.moving, nullptr), absl::OkStatus());
    }
    const auto is_whole =
        link.socket.Read(reinterpret_cast<char*>(&link.frame), sizeof link.frame, &link.frame_read);
    if (!is_whole.ok() || !*is_whole) return is_whole.status();
    link.frame_read = 0;
    const MessageFrame& frame = link.frame;
    const auto accepted = link.accepted.find(frame.id);
    if (frame.kind == MessageFrame::kOffer && matching_.OffersOf(link.rank) < kMaxOffers) {
      const MessageMatching::Offer offer{link.rank, frame.tag, frame.bytes, frame.id};
      const auto receive = matching_.Add(offer);
      if (receive.has_value()) Accept(offer, pending_.at(receive->id));
    } else if (frame.kind == MessageFrame::kData && accepted != link.accepted.end() &&
               frame.bytes == accepted->second->bytes) {
      link.moving = accepted->second;
      link.moved = 0;
      link.accepted.erase(accepted);
    } else if (frame.kind == MessageFrame::kWithdraw) {
      if (accepted != link.accepted.end()) {
        const Pending message = accepted->second;
        link.accepted.erase(accepted);
        PostAgain(message);
      } else {
        matching_.Withdraw(link.rank, frame.id);
      }
    } else {
      return absl::InternalError("it says what no rank of this version does");
    }
  }
}

void MessageDriver::EndLate() {
  const Clock::time_point now = Clock::now();
  std::vector<Pending> late;
  for (const auto& [id, message] : pending_) {
    if (now >= message->started_at + message->timeout) late.push_back(message);
  }
  for (const Pending& message : late) {
    if (!pending_.contains(message->id)) continue;  // ended with another's connection
    GiveUp(message);
    const int peer = std::max(message->peer, message->source);
    const std::string who = peer < 0 ? "no rank" : absl::StrCat("rank ", peer);
    End(message, absl::DeadlineExceededError(absl::StrCat(
                     Describe(*message), " timed out after ", NameDuration(message->timeout), ": ",
                     who, message->is_send ? " has not received " : " has not sent ",
                     message->is_accepted ? "all of it" : "it")));
  }
}

// Its memory is the caller's again: what has begun to move takes its connection along.
void MessageDriver::GiveUp(const Pending& message) {
  if (!message->is_send) {
    matching_.Cancel(message->id);
    for (const auto& link : incoming_) {
      const bool is_accepted =
          std::any_of(link->accepted.begin(), link->accepted.end(),
                      [&](const auto& accepted) { return accepted.second == message; });
      if (link->moving != message && !is_accepted) continue;
      return DropIncoming(*link, "another message of that rank has timed out on its way");
    }
    return;
  }
  const auto found = outgoing_.find(message->peer);
  if (found == outgoing_.end()) return;
  Outgoing& link = found->second;
  if (link.moving == message) {
    return DropOutgoing(message->peer, "another message to that rank has timed out on its way");
  }
  link.offered.erase(message->id);
  std::erase(link.accepted, message);
  MessageFrame withdraw;
  withdraw.kind = MessageFrame::kWithdraw;
  withdraw.id = message->id;
  // Behind the offer, and behind the data of a message that are under way.
  link.socket.Queue(withdraw);
}

void MessageDriver::EndAll(const absl::Status& status) {
  outgoing_.clear();
  incoming_.clear();
  const std::map<uint64_t, Pending> all = pending_;
  for (const auto& [id, message] : all) {
    matching_.Cancel(id);
    End(message, status);
  }
}

void MessageDriver::End(Pending message, const absl::Status& status) {
  pending_.erase(message->id);
  {
    const std::lock_guard lock(owner_.mutex_);
    message->status = status;
    message->ended_at = Clock::now();
    message->is_done = true;
  }
  owner_.ended_.notify_all();
}

}  // namespace ddp::internal
