#include "rendezvous/core/kv_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::rendezvous {
namespace {

// What a tree node, a string header and the allocator cost beside the bytes themselves.
constexpr size_t kEntryOverhead = 128;

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
  WakeAll(key);
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
  if (!Set(key, std::string_view(digits, static_cast<size_t>(end - digits)))) return std::nullopt;
  if (!barriers_.empty()) WakeBarrier(key, sum);
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
  const auto found = queues_.find(key);
  const size_t own = found == queues_.end() ? kEntryOverhead * 8 + key.size() : 0;
  if (!Charge(0, own + kEntryOverhead + value.size())) return false;
  std::deque<std::string>& queue =
      found == queues_.end() ? queues_.emplace(key, std::deque<std::string>()).first->second
                             : found->second;
  queue.emplace_back(value);
  WakeOne(key);
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

}  // namespace ddprun::rendezvous
