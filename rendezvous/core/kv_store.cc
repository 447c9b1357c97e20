#include "rendezvous/core/kv_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::rendezvous {
namespace {

// What a tree node, a string header and the allocator cost beside the bytes themselves.
constexpr size_t kEntryOverhead = 128;
// A ticket's place in a set and the key's in a map.
constexpr size_t kWaitOverhead = 192;
constexpr size_t kAll = SIZE_MAX;
constexpr int64_t kNoCount = INT64_MIN;  // Below every barrier that is waited at.

// What PyTorch's std::stoll takes: leading blanks, a sign, digits; whatever follows is ignored.
std::optional<int64_t> ParseLeadingNumber(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\n\v\f\r");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

bool KvStore::Charge(size_t before, size_t after) {
  if (after > before && after - before > max_bytes_ - bytes_) return false;
  bytes_ = bytes_ - before + after;
  return true;
}

bool KvStore::Store(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (!Charge(0, kEntryOverhead + key.size() + value.size())) return false;
    values_.emplace(key, value);
    return true;
  }
  std::string& held = found->second;
  if (!Charge(held.size(), value.size())) return false;
  // Assigning keeps the old capacity, and a client could hide megabytes behind one-byte values.
  if (held.capacity() > 2 * value.size() + 64) {
    held = std::string(value);
  } else {
    held.assign(value);
  }
  return true;
}

bool KvStore::Set(std::string_view key, std::string_view value) {
  if (!Store(key, value)) return false;
  Wake(key, kAll, kNoCount);
  return true;
}

bool KvStore::Append(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return Set(key, value);
  if (!Charge(0, value.size())) return false;
  found->second.append(value);
  return true;
}

std::optional<int64_t> KvStore::Add(std::string_view key, int64_t amount) {
  int64_t sum = 0;
  if (const std::string* held = Get(key)) {
    const std::optional<int64_t> current = ParseLeadingNumber(*held);
    if (!current.has_value()) return std::nullopt;
    sum = *current;
  }
  sum = static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(amount));  // Wraps.
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), sum);
  DDP_CHECK(error == std::errc());
  if (!Store(key, {digits, end})) return std::nullopt;
  Wake(key, kAll, sum);
  return sum;
}

std::optional<std::string> KvStore::CompareSet(std::string_view key, std::string_view expected,
                                               std::string_view desired) {
  const std::string* held = Get(key);
  if (held == nullptr && !expected.empty()) return std::string(expected);
  if (held != nullptr && *held != expected) return *held;
  if (!Set(key, desired)) return std::nullopt;
  return std::string(desired);
}

bool KvStore::QueuePush(std::string_view key, std::string_view value) {
  const size_t own = queues_.contains(key) ? 0 : kEntryOverhead * 8 + key.size();
  if (!Charge(0, own + kEntryOverhead + value.size())) return false;
  queues_[std::string(key)].emplace_back(value);
  // It has one taker: waking all would send the others to an empty queue.
  Wake(key, 1, kNoCount);
  return true;
}

bool KvStore::Delete(std::string_view key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  Charge(kEntryOverhead + found->first.size() + found->second.size(), 0);
  values_.erase(found);
  return true;
}

std::optional<std::string> KvStore::QueuePop(std::string_view key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return std::nullopt;
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  Charge(kEntryOverhead + value.size(), 0);
  if (found->second.empty()) {
    Charge(kEntryOverhead * 8 + found->first.size(), 0);
    queues_.erase(found);
  }
  return value;
}

const std::string* KvStore::Get(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool KvStore::Has(std::string_view key) const {
  return values_.contains(key) || (!queues_.empty() && queues_.contains(key));
}

bool KvStore::HasAll(const std::vector<std::string_view>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](std::string_view key) { return Has(key); });
}

std::vector<std::string_view> KvStore::SortedKeys() const {
  std::vector<std::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);  // any order
  return keys;
}

int64_t KvStore::QueueLength(std::string_view key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

KvStore::Parked KvStore::Wait(uint64_t client, const std::vector<std::string_view>& keys) {
  if (HasAll(keys)) return {};
  return Enter({.client = client, .keys = {keys.begin(), keys.end()}});
}

KvStore::Parked KvStore::Barrier(uint64_t client, std::string_view key, int64_t world_size) {
  const std::optional<int64_t> count = Add(key, 1);
  if (!count.has_value()) return {.is_refused = true};
  if (*count >= world_size) return {};
  return Enter({.client = client, .keys = {std::string(key)}, .world_size = world_size});
}

KvStore::Parked KvStore::Enter(PendingWait wait) {
  wait.bytes = kWaitOverhead;
  // A key is held here and, while the wait is listed under it, once more as the list's own key.
  for (const std::string& key : wait.keys) wait.bytes += kWaitOverhead + 2 * key.size();
  if (!Charge(0, wait.bytes)) return {.is_refused = true};
  const Ticket ticket = ++last_ticket_;
  DDP_CHECK(List(ticket, wait));
  waits_.emplace(ticket, std::move(wait));
  return {.ticket = ticket};
}

bool KvStore::List(Ticket ticket, PendingWait& wait) {
  // All of them, from the one that came last on: what appeared first may be gone again (DELETE_KEY,
  // QUEUE_POP) by the time the last one comes.
  for (size_t looked = 0; looked < wait.keys.size(); ++looked) {
    const std::string& key = wait.keys[wait.missing];
    if (wait.world_size.has_value() || !Has(key)) {
      waiting_[key].insert(ticket);
      return true;
    }
    wait.missing = (wait.missing + 1) % wait.keys.size();
  }
  return false;
}

bool KvStore::Cancel(Ticket ticket) {
  const auto found = waits_.find(ticket);
  if (found == waits_.end()) return false;
  const auto list = waiting_.find(found->second.keys[found->second.missing]);
  list->second.erase(ticket);
  if (list->second.empty()) waiting_.erase(list);
  Charge(found->second.bytes, 0);
  waits_.erase(found);
  return true;
}

void KvStore::Wake(std::string_view key, size_t most, int64_t count) {
  const auto list = waiting_.find(key);
  if (list == waiting_.end()) return;
  std::set<Ticket>& tickets = list->second;
  for (auto it = tickets.begin(); it != tickets.end();) {
    if (most == 0) break;
    PendingWait& wait = waits_.at(*it);
    const bool is_barrier = wait.world_size.has_value();
    if (is_barrier && count < *wait.world_size) {
      ++it;
      continue;
    }
    if (is_barrier || !List(*it, wait)) {
      if (!is_barrier) --most;
      woken_.push_back({wait.client, *it});
      Charge(wait.bytes, 0);
      waits_.erase(*it);
    }
    it = tickets.erase(it);
  }
  if (tickets.empty()) waiting_.erase(list);
}

void KvStore::TakeWoken(std::vector<Woken>* woken) {
  woken->insert(woken->end(), woken_.begin(), woken_.end());
  woken_.clear();
}

}  // namespace ddprun::rendezvous
