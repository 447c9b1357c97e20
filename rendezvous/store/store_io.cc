// The half of StoreServer that moves bytes: receive, carry out, reply, hold back.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "rendezvous/store/store_server.h"

namespace ddprun::rendezvous {
namespace {

// More unread replies than this, and the connection's further requests wait.
constexpr size_t kOutputHigh = 64 << 10;
// More held requests than this, and the socket is not read. What a connection holds up to here
// is not counted as transit.
constexpr size_t kInputHigh = 64 << 10;
// What an idle connection may keep allocated per direction.
constexpr size_t kIdleCapacity = 4 << 10;
// Reads per event, so that one fast sender does not starve the others.
constexpr int kReadsPerEvent = 4;

void Empty(std::string* buffer) {
  if (buffer->capacity() > kIdleCapacity) {
    std::string().swap(*buffer);
  } else {
    buffer->clear();
  }
}

}  // namespace

void StoreServer::HandleEvents(uint64_t client, uint32_t events) {
  const auto found = connections_.find(client);
  if (found == connections_.end()) return;  // Removed earlier in this batch of events.
  Connection& connection = found->second;
  if ((connection.interest & EPOLLIN) != 0) {
    // Errors and hang-ups too: recv tells what happened.
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) Receive(connection);
  } else if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    connection.is_dead = true;  // Not reading it, and it is gone.
  }
  if (!connection.is_dead && (events & EPOLLOUT) != 0) Consume(connection, {});
  Settle(connection);
}

void StoreServer::Receive(Connection& connection) {
  for (int i = 0; i < kReadsPerEvent && !connection.is_dead; ++i) {
    const ssize_t count = recv(connection.fd.get(), scratch_.data(), scratch_.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      connection.is_dead = true;
      return;
    }
    connection.last_progress = now_;
    const auto size = static_cast<size_t>(count);
    Consume(connection, std::string_view(scratch_.data(), size));
    if (size < scratch_.size() || connection.in.size() > kInputHigh) return;
  }
}

void StoreServer::Consume(Connection& connection, std::string_view fresh) {
  const bool is_buffered = !connection.in.empty();
  if (is_buffered) connection.in.append(fresh);
  const std::string_view all = is_buffered ? std::string_view(connection.in) : fresh;
  size_t done = 0;
  Flush(connection);
  while (!connection.is_dead) {
    const size_t step = Execute(connection, all.substr(done));
    // No Flush after it: one that empties the output here would leave the requests that Execute
    // has just held back without an event that ever comes back to them.
    if (step == 0) break;
    done += step;
    Flush(connection);
  }
  if (!is_buffered) {
    connection.in.assign(all.substr(done));
  } else if (done == all.size()) {
    Empty(&connection.in);
  } else {
    connection.in.erase(0, done);
  }
}

bool StoreServer::MustHold(const Connection& connection, char next_op) const {
  const bool is_cancel = next_op == static_cast<char>(StoreOp::kCancelWait);
  if (connection.session.ticket != 0 && !is_cancel) return true;
  return connection.out.size() - connection.sent > kOutputHigh;
}

size_t StoreServer::Execute(Connection& connection, std::string_view bytes) {
  size_t done = 0;
  // Whoever closes the server waits for one request at most.
  while (done < bytes.size() && !is_stopping_ && !MustHold(connection, bytes[done])) {
    size_t used = 0;
    const auto result =
        connection.parser.Parse(bytes.substr(done), options_.limits, &command_, &used);
    if (result == RequestParser::Result::kNeedMore) break;
    if (result == RequestParser::Result::kBad ||
        !DispatchStoreCommand(command_, options_.max_transit_bytes, &connection.session, &store_,
                              &connection.out)) {
      DropBroken(connection);
      break;
    }
    done += used;
  }
  store_.TakeWoken(&wakes_);
  PublishStoreStats();
  return done;
}

void StoreServer::DropBroken(Connection& connection) {
  // One connection may break two bounds in one go; it is counted once.
  if (!connection.is_dead) ++dropped_protocol_;
  connection.is_dead = true;
}

void StoreServer::Flush(Connection& connection) {
  if (connection.out.empty()) return;
  std::string& out = connection.out;
  while (connection.sent < out.size()) {
    const ssize_t count = send(connection.fd.get(), out.data() + connection.sent,
                               out.size() - connection.sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      // What is gone counts as held, and while some rest always remains nothing else drops it.
      // Only once it is the larger part: then each byte sent pays for less than one moved.
      if (connection.sent > out.size() / 2) {
        out.erase(0, connection.sent);
        connection.sent = 0;
      }
      return;
    }
    if (count < 0) {
      connection.is_dead = true;
      return;
    }
    connection.sent += static_cast<size_t>(count);
    connection.last_progress = now_;
  }
  Empty(&out);
  connection.sent = 0;
}

void StoreServer::Settle(Connection& connection) {
  const size_t held = connection.in.size() + connection.out.size();
  const size_t charge = held > kInputHigh ? held : 0;
  if (charge != connection.charged) {
    const size_t total = transit_bytes_ += charge - connection.charged;
    const bool has_grown = charge > connection.charged;
    connection.charged = charge;
    if (has_grown && total > options_.max_transit_bytes) DropBroken(connection);
  }
  if (connection.is_dead) {
    Remove(connection.session.client);
    return;
  }
  const bool has_output = connection.sent < connection.out.size();
  const bool is_held = !connection.in.empty() && MustHold(connection, connection.in[0]);
  const bool can_read = !(is_held && connection.in.size() > kInputHigh);
  uint32_t interest = can_read ? EPOLLIN : EPOLLRDHUP;
  if (has_output) interest |= EPOLLOUT;
  if (interest == connection.interest) return;
  connection.interest = interest;
  epoll_event event{};
  event.events = interest;
  event.data.u64 = connection.session.client;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

void StoreServer::DeliverWakes() {
  for (size_t i = 0; i < wakes_.size(); ++i) {  // it grows by those that these requests wake
    const KvStore::Woken woken = wakes_[i];
    const auto found = connections_.find(woken.client);
    if (found == connections_.end()) continue;
    Connection& connection = found->second;
    if (!StopWaiting(woken.ticket, &connection.session, &connection.out)) continue;
    Consume(connection, {});
    Settle(connection);
  }
  wakes_.clear();
}

}  // namespace ddprun::rendezvous
