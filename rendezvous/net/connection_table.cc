#include "rendezvous/net/connection_table.h"

#include <utility>

namespace ddprun::rendezvous {

std::shared_ptr<ConnectionTable::Connection> ConnectionTable::Find(const std::string& peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(peer);
  return found == connections_.end() ? nullptr : found->second;
}

void ConnectionTable::Add(const std::string& peer, std::shared_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  connections_.insert_or_assign(peer, std::move(connection));
}

void ConnectionTable::Remove(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  connections_.erase(peer);
}

}  // namespace ddprun::rendezvous
