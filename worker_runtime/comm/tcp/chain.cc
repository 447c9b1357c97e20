#include "worker_runtime/comm/tcp/chain.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/left_peer.h"

namespace ddp::internal {
namespace {

constexpr uint32_t kHello = 0x31706464;  // "ddp1"
constexpr uint32_t kGoodbye = 0x65796264;
// How often an operation looks whether it should end for another reason than its own end.
constexpr std::chrono::milliseconds kTick(100);
// Of what one node has received for another and not passed on yet.
constexpr size_t kPassedBytes = size_t{1} << 20;
constexpr char kLinkLost[] = "ddp/link-lost";

// What is sealed has yet to go, whatever its stream has left.
bool HasPending(const Link& link) {
  return link.sealed != nullptr && link.sealed->out.HasPending();
}

short Events(const Link& link, const Stream* sending, const Stream* receiving) {
  short events = 0;
  if (sending != nullptr && (sending->CanMove() || HasPending(link))) events |= POLLOUT;
  if (receiving != nullptr && receiving->CanMove()) events |= POLLIN;
  return events;
}

}  // namespace

bool IsLinkLost(const absl::Status& status) { return status.GetPayload(kLinkLost).has_value(); }

Chain::Chain(int rank, Link previous, Link next, Callbacks callbacks)
    : rank_(rank),
      previous_(std::move(previous)),
      next_(std::move(next)),
      callbacks_(std::move(callbacks)) {}

absl::Status Chain::Reduce(const Op& op, const ReduceJob& job, bool is_first) {
  ReduceStreams sum(kernels_, job, !previous_.is_open(), !next_.is_open(), ring_);
  const Greeting hello{kHello, rank_, RecordOf(op)};
  Streams streams;
  if (previous_.is_open()) {
    streams.to_previous = &sum.results_out;
    streams.from_previous = &sum.partials_in;
  }
  if (next_.is_open()) {
    streams.to_next = &sum.partials_out;
    streams.from_next = &sum.results_in;
  }
  for (Stream* stream :
       {streams.to_previous, streams.from_previous, streams.to_next, streams.from_next}) {
    if (stream == nullptr || !is_first) continue;
    stream->greeting = hello;
    stream->greeting_done = 0;
  }
  return Move(op, streams, [&sum] { sum.Process(); });
}

absl::Status Chain::Synchronize(const Op& op) {
  // A sum of one byte is a token that passes every node and comes back.
  uint8_t token = 0;
  ReduceJob job;
  job.dtype = DType::kUint8;
  job.count = 1;
  job.inputs = {&token};
  job.outputs = {&token};
  return Reduce(op, job, true);
}

absl::Status Chain::Spread(const Op& op, int direction, void* data, size_t bytes) {
  Stream in, to_previous, to_next;
  for (Stream* stream : {&in, &to_previous, &to_next}) {
    stream->base = static_cast<char*>(data);
    stream->total = bytes;
    stream->limit = direction == 0 || stream == &in ? bytes : 0;
  }
  Streams streams;
  if (direction < 0) streams.from_previous = &in;
  if (direction > 0) streams.from_next = &in;
  if (direction >= 0 && previous_.is_open()) streams.to_previous = &to_previous;
  if (direction <= 0 && next_.is_open()) streams.to_next = &to_next;
  return Move(op, streams, [&] {
    if (direction != 0) to_previous.limit = to_next.limit = in.done;
  });
}

absl::Status Chain::Carry(const Op& op, int from, int to, void* data, size_t bytes) {
  if (from == to) return absl::OkStatus();
  const bool is_between = from != 0 && to != 0;
  if (is_between && ring_.size() < kPassedBytes) ring_.resize(kPassedBytes);
  Stream in, out;
  for (Stream* stream : {&in, &out}) {
    stream->base = is_between ? ring_.data() : static_cast<char*>(data);
    stream->ring = is_between ? kPassedBytes : 0;
    stream->total = bytes;
  }
  in.limit = is_between ? std::min(bytes, kPassedBytes) : bytes;
  out.limit = from == 0 ? bytes : 0;
  Streams streams;
  if (from < 0) streams.from_previous = &in;
  if (from > 0) streams.from_next = &in;
  if (to < 0) streams.to_previous = &out;
  if (to > 0) streams.to_next = &out;
  return Move(op, streams, [&] {
    if (!is_between) return;
    in.limit = std::min(bytes, out.done + kPassedBytes);
    out.limit = in.done;
  });
}

absl::Status Chain::Move(const Op& op, const Streams& streams,
                         const std::function<void()>& process) {
  // Not only when nothing moves: a neighbour that sends a byte now and then would never let us.
  Clock::time_point look_at = std::min(Clock::now() + kTick, op.deadline);
  while (true) {
    process();
    bool has_moved = false;
    absl::Status status = MoveLink(op, next_, streams.to_next, streams.from_next, &has_moved);
    if (status.ok()) {
      status = MoveLink(op, previous_, streams.to_previous, streams.from_previous, &has_moved);
    }
    if (!status.ok()) return status;
    if (!has_moved) {
      if (EventsOf(streams).is_none()) return absl::OkStatus();
      Wait(streams, look_at);
    }
    if (Clock::now() < look_at) continue;
    status = Look(op, streams);
    if (!status.ok()) return status;
    look_at = std::min(Clock::now() + kTick, op.deadline);
  }
}

absl::Status Chain::MoveLink(const Op& op, const Link& link, Stream* to, Stream* from,
                             bool* has_moved) {
  absl::Status sent;
  if (to != nullptr) sent = Send(op, link, *to, has_moved);
  if (from == nullptr || (!sent.ok() && !IsLinkLost(sent))) return sent;
  // Who is gone may have said its goodbye before.
  absl::Status received = Receive(op, link, *from, has_moved);
  return sent.ok() || (!received.ok() && !IsLinkLost(received)) ? received : sent;
}

Chain::LinkEvents Chain::EventsOf(const Streams& streams) const {
  return {Events(previous_, streams.to_previous, streams.from_previous),
          Events(next_, streams.to_next, streams.from_next)};
}

absl::Status Chain::Send(const Op& op, const Link& link, Stream& stream, bool* has_moved) {
  if (link.sealed != nullptr) return SendSealed(op, link, stream, has_moved);
  while (stream.CanMove()) {
    iovec parts[2];
    msghdr message{};
    message.msg_iov = parts;
    if (!stream.IsGreeted()) {
      parts[message.msg_iovlen++] = {
          reinterpret_cast<char*>(&stream.greeting) + stream.greeting_done,
          sizeof stream.greeting - stream.greeting_done};
    }
    if (stream.NextBytes() != 0) {
      parts[message.msg_iovlen++] = {stream.Next(), stream.NextBytes()};
    }
    const ssize_t result = sendmsg(link.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return absl::OkStatus();
      return Lost(op, link, errno);
    }
    *has_moved = true;
    const size_t sent = static_cast<size_t>(result);
    const size_t greeting = std::min(sent, sizeof stream.greeting - stream.greeting_done);
    stream.greeting_done += greeting;
    stream.done += sent - greeting;
  }
  return absl::OkStatus();
}

absl::Status Chain::SendSealed(const Op& op, const Link& link, Stream& stream, bool* has_moved) {
  RecordSealer& out = link.sealed->out;
  while (stream.CanMove() || out.HasPending()) {
    if (!out.HasPending()) {
      const std::string_view greeting(
          reinterpret_cast<const char*>(&stream.greeting) + stream.greeting_done,
          sizeof stream.greeting - stream.greeting_done);
      const size_t most = RecordSealer::kMostBytes - greeting.size();
      const std::string_view data(stream.Next(), std::min(stream.NextBytes(), most));
      out.Seal(greeting, data);
      stream.greeting_done += greeting.size();
      stream.done += data.size();
    }
    const std::string_view pending = out.Pending();
    const ssize_t result =
        send(link.socket.get(), pending.data(), pending.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return absl::OkStatus();
      return Lost(op, link, errno);
    }
    *has_moved = true;
    out.Sent(static_cast<size_t>(result));
  }
  return absl::OkStatus();
}

absl::Status Chain::Receive(const Op& op, const Link& link, Stream& stream, bool* has_moved) {
  if (link.sealed != nullptr) return ReceiveSealed(op, link, stream, has_moved);
  while (stream.CanMove()) {
    const bool is_greeted = stream.IsGreeted();
    char* to = is_greeted ? stream.Next()
                          : reinterpret_cast<char*>(&stream.greeting) + stream.greeting_done;
    const size_t room =
        is_greeted ? stream.NextBytes() : sizeof stream.greeting - stream.greeting_done;
    const ssize_t result = recv(link.socket.get(), to, room, MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return absl::OkStatus();
      return Lost(op, link, errno);
    }
    if (result == 0) return Lost(op, link, 0);
    *has_moved = true;
    if (is_greeted) {
      stream.done += static_cast<size_t>(result);
      // What has come is worked on while more comes.
      return absl::OkStatus();
    }
    stream.greeting_done += static_cast<size_t>(result);
    if (!stream.IsGreeted()) continue;
    absl::Status status = Check(op, link, stream.greeting);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// PeerError() is told before the socket is emptied, so that it never misses a goodbye in both
// places.
absl::Status Chain::ReceiveSealed(const Op& op, const Link& link, Stream& stream, bool* has_moved) {
  link.sealed->may_have_unread = true;
  absl::Status status = OpenSealed(op, link, stream, has_moved);
  link.sealed->may_have_unread = link.sealed->in.HasUnread();
  return status;
}

// Looks at the socket once: what has come is worked on while more comes.
absl::Status Chain::OpenSealed(const Op& op, const Link& link, Stream& stream, bool* has_moved) {
  RecordOpener& in = link.sealed->in;
  bool has_looked = false;
  while (stream.CanMove()) {
    const bool is_greeted = stream.IsGreeted();
    char* to = is_greeted ? stream.Next()
                          : reinterpret_cast<char*>(&stream.greeting) + stream.greeting_done;
    const std::optional<size_t> opened = in.Read(
        to, is_greeted ? stream.NextBytes() : sizeof stream.greeting - stream.greeting_done);
    if (!opened) return Broken(op, link);
    if (*opened == 0) {
      if (has_looked) return absl::OkStatus();
      const std::span<char> room = in.Room();
      const ssize_t result = recv(link.socket.get(), room.data(), room.size(), MSG_DONTWAIT);
      if (result < 0 && errno == EINTR) continue;
      if (result < 0 && errno == EAGAIN) return absl::OkStatus();
      if (result <= 0) return Lost(op, link, result == 0 ? 0 : errno);
      in.Received(static_cast<size_t>(result));
      *has_moved = has_looked = true;
      continue;
    }
    *has_moved = true;
    if (is_greeted) {
      stream.done += *opened;
      continue;
    }
    stream.greeting_done += *opened;
    if (!stream.IsGreeted()) continue;
    absl::Status status = Check(op, link, stream.greeting);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void Chain::Wait(const Streams& streams, Clock::time_point until) const {
  const LinkEvents events = EventsOf(streams);
  pollfd polled[] = {{events.previous != 0 ? previous_.socket.get() : -1, events.previous, 0},
                     {events.next != 0 ? next_.socket.get() : -1, events.next, 0}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  // Whatever ends it (EINTR, too) the caller looks again.
  poll(polled, 2, static_cast<int>(std::max<int64_t>(0, left.count())));
}

absl::Status Chain::Look(const Op& op, const Streams& streams) {
  absl::Status interrupted = callbacks_.interrupted();
  if (!interrupted.ok()) return interrupted;
  if (stuck_sequence_ != op.sequence && IsStuck(op)) {
    stuck_sequence_ = op.sequence;
    callbacks_.on_stuck(op);
  }
  const LinkEvents events = EventsOf(streams);
  // Nothing left to wait for here: what has just come may have been the last of it.
  if (Clock::now() < op.deadline || events.is_none()) return absl::OkStatus();
  std::vector<int> silent;
  if ((events.previous & POLLIN) != 0) silent.push_back(previous_.rank);
  if ((events.next & POLLIN) != 0) silent.push_back(next_.rank);
  if (silent.empty()) silent.push_back(events.previous != 0 ? previous_.rank : next_.rank);
  return absl::DeadlineExceededError(absl::StrCat(Describe(op), " timed out after ",
                                                  NameDuration(op.timeout), ": ", NameRanks(silent),
                                                  " did not answer"));
}

absl::Status Chain::Broken(const Op& op, const Link& link) const {
  return absl::DataLossError(
      absl::StrCat(Describe(op), " failed: what came from rank ", link.rank,
                   " is not what it has sealed: its connection was tampered with on the way"));
}

absl::Status Chain::Lost(const Op& op, const Link& link, int error) const {
  absl::Status status =
      WithLeftPeer(absl::UnavailableError(absl::StrCat(
                       Describe(op), " failed: rank ", link.rank, " died: its connection ",
                       error == 0 ? "was closed" : std::strerror(error))),
                   link.rank);
  status.SetPayload(kLinkLost, absl::Cord("1"));
  return status;
}

absl::Status Chain::Check(const Op& op, const Link& link, const Greeting& greeting) const {
  if (greeting.magic == kGoodbye) {
    return WithLeftPeer(absl::UnavailableError(absl::StrCat(Describe(op), " failed: rank ",
                                                            link.rank, " has left the group")),
                        link.rank);
  }
  if (greeting.magic != kHello || greeting.rank != link.rank) {
    return absl::InternalError(
        absl::StrCat(Describe(op), " failed: rank ", link.rank, " sent garbage"));
  }
  const OpRecord mine = RecordOf(op);
  return rank_ < link.rank ? CheckSame(rank_, mine, link.rank, greeting.record)
                           : CheckSame(link.rank, greeting.record, rank_, mine);
}

void Chain::SayGoodbye() {
  const Greeting goodbye{kGoodbye, rank_, {}};
  for (const Link* link : {&previous_, &next_}) {
    // Between operations nothing is under way; a neighbour that is gone needs no goodbye.
    if (!link->is_open() || HasPending(*link)) continue;
    std::string_view word(reinterpret_cast<const char*>(&goodbye), sizeof goodbye);
    if (link->sealed != nullptr) {
      link->sealed->out.Seal(word, "");
      word = link->sealed->out.Pending();
    }
    (void)send(link->socket.get(), word.data(), word.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Chain::Shutdown() {
  for (const Link* link : {&previous_, &next_}) {
    if (link->is_open()) shutdown(link->socket.get(), SHUT_RDWR);
  }
}

absl::Status Chain::PeerError() const {
  for (const Link* link : {&previous_, &next_}) {
    char byte;
    if (!link->is_open()) continue;
    const ssize_t result = recv(link->socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    // As with what lies in the socket: an operation reads it, and it may be a goodbye.
    if (link->sealed != nullptr && link->sealed->may_have_unread) continue;
    if (result == 0 || (result < 0 && errno != EAGAIN && errno != EINTR)) {
      return WithLeftPeer(absl::UnavailableError(absl::StrCat("rank ", link->rank,
                                                              " died: its connection was closed")),
                          link->rank);
    }
  }
  return absl::OkStatus();
}

}  // namespace ddp::internal
