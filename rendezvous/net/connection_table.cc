#include "rendezvous/net/connection_table.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace ddprun::rendezvous {

bool ConnectionTable::Add(int connection, TimePoint until) {
  UniqueFd duplicate(fcntl(connection, F_DUPFD_CLOEXEC, 0));
  const SocketAddress peer = PeerAddress(connection);
  if (!duplicate.is_open() || peer.size == 0) return false;
  const std::lock_guard lock(mutex_);
  connections_.insert_or_assign(AddressText(peer), Connection{std::move(duplicate), until});
  return true;
}

SocketAddress ConnectionTable::Joined(const SocketAddress& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(AddressText(peer));
  if (found == connections_.end()) return {};
  const SocketAddress local = LocalAddress(found->second.duplicate.get());
  connections_.erase(found);
  return local;
}

std::optional<TimePoint> ConnectionTable::DropLate(TimePoint now) {
  const std::lock_guard lock(mutex_);
  std::vector<pollfd> ends;
  for (const auto& [peer, connection] : connections_) {
    // gRPC shuts a connection down before it closes it: both ways closed is POLLHUP.
    ends.push_back({connection.duplicate.get(), 0, 0});
  }
  if (poll(ends.data(), ends.size(), 0) < 0) ends.clear();  // ENOMEM: they wait for their time
  TimePoint next = now + kLook;
  size_t i = 0;
  for (auto it = connections_.begin(); it != connections_.end(); ++i) {
    const bool has_ended = i < ends.size() && ends[i].revents != 0;
    const bool is_late = now >= it->second.until;
    if (is_late) shutdown(it->second.duplicate.get(), SHUT_RDWR);
    if (!has_ended && !is_late) next = std::min(next, it->second.until);
    it = has_ended || is_late ? connections_.erase(it) : std::next(it);
  }
  if (connections_.empty()) return std::nullopt;
  return next;
}

}  // namespace ddprun::rendezvous
