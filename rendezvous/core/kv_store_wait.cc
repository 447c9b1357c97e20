// The waiting half of KvStore: who waits for which key, and who is woken by what.
#include <algorithm>
#include <optional>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun::rendezvous {
namespace {

// A ticket's place in a set and the key's in a map.
constexpr size_t kWaitOverhead = 192;

}  // namespace

KvStore::Parked KvStore::Wait(uint64_t client, const std::vector<std::string_view>& keys) {
  if (HasAll(keys)) return {};
  PendingWait wait;
  wait.client = client;
  wait.bytes = kWaitOverhead;
  // A key is held here and, while it is missing, once more as the index's own key.
  for (std::string_view key : keys) wait.bytes += kWaitOverhead + 2 * key.size();
  if (!Charge(0, wait.bytes)) return {.is_refused = true};
  wait.keys.assign(keys.begin(), keys.end());
  std::sort(wait.keys.begin(), wait.keys.end());
  wait.keys.erase(std::unique(wait.keys.begin(), wait.keys.end()), wait.keys.end());
  const Ticket ticket = ++last_ticket_;
  const bool is_complete = Register(ticket, &wait);
  DDP_CHECK(!is_complete);
  waits_.emplace(ticket, std::move(wait));
  return {.ticket = ticket};
}

KvStore::Parked KvStore::Barrier(uint64_t client, std::string_view key, int64_t world_size) {
  const std::optional<int64_t> count = Add(key, 1);
  if (!count.has_value()) return {.is_refused = true};
  if (*count >= world_size) return {};
  PendingWait wait;
  wait.client = client;
  wait.keys.emplace_back(key);
  wait.world_size = world_size;
  wait.bytes = 2 * (kWaitOverhead + key.size());
  if (!Charge(0, wait.bytes)) return {.is_refused = true};
  const Ticket ticket = ++last_ticket_;
  barriers_[wait.keys[0]].insert(ticket);
  waits_.emplace(ticket, std::move(wait));
  return {.ticket = ticket};
}

bool KvStore::Register(Ticket ticket, PendingWait* wait) {
  wait->missing = 0;
  for (const std::string& key : wait->keys) {
    if (Has(key)) continue;
    waiting_[key].insert(ticket);
    ++wait->missing;
  }
  return wait->missing == 0;
}

void KvStore::Unregister(ByKey<std::set<Ticket>>* waiting, const std::string& key, Ticket ticket) {
  const auto found = waiting->find(key);
  if (found == waiting->end()) return;
  found->second.erase(ticket);
  if (found->second.empty()) waiting->erase(found);
}

bool KvStore::Cancel(Ticket ticket) {
  const auto found = waits_.find(ticket);
  if (found == waits_.end()) return false;
  ByKey<std::set<Ticket>>* index = found->second.world_size > 0 ? &barriers_ : &waiting_;
  for (const std::string& key : found->second.keys) Unregister(index, key, ticket);
  Charge(found->second.bytes, 0);
  waits_.erase(found);
  return true;
}

void KvStore::Finish(Ticket ticket) {
  const auto found = waits_.find(ticket);
  woken_.push_back({found->second.client, ticket});
  Charge(found->second.bytes, 0);
  waits_.erase(found);
}

void KvStore::KeyAppeared(Ticket ticket) {
  PendingWait& wait = waits_.at(ticket);
  if (--wait.missing > 0) return;
  // What appeared first may be gone again (DELETE_KEY, QUEUE_POP) by the time the last one came.
  if (Register(ticket, &wait)) Finish(ticket);
}

void KvStore::WakeAll(std::string_view key) {
  if (waiting_.empty()) return;
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const std::set<Ticket> tickets = std::move(found->second);
  waiting_.erase(found);
  for (const Ticket ticket : tickets) KeyAppeared(ticket);
}

// A pushed item has one taker: waking all would send the others to an empty queue.
void KvStore::WakeOne(std::string_view key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const Ticket first = *found->second.begin();
  found->second.erase(first);
  if (found->second.empty()) waiting_.erase(found);
  KeyAppeared(first);
}

void KvStore::WakeBarrier(std::string_view key, int64_t count) {
  const auto found = barriers_.find(key);
  if (found == barriers_.end()) return;
  std::set<Ticket>& tickets = found->second;
  for (auto it = tickets.begin(); it != tickets.end();) {
    if (waits_.at(*it).world_size > count) {
      ++it;
      continue;
    }
    Finish(*it);
    it = tickets.erase(it);
  }
  if (tickets.empty()) barriers_.erase(found);
}

void KvStore::TakeWoken(std::vector<Woken>* woken) {
  woken->insert(woken->end(), woken_.begin(), woken_.end());
  woken_.clear();
}

}  // namespace ddprun::rendezvous
