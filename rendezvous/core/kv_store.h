// The job's key-value store without its sockets: values, counters, queues, and the clients that
// wait for them. [pure]
//
// One driver owns it and calls it from one thread. Semantics are those of PyTorch's TCPStore.
// A client that has to wait gets a ticket; when what it waits for is there the ticket appears in
// TakeWoken() and is spent. Memory is bounded: what would exceed the bound is refused and changes
// nothing.
#ifndef DDPRUN_RENDEZVOUS_CORE_KV_STORE_H_
#define DDPRUN_RENDEZVOUS_CORE_KV_STORE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::rendezvous {

class KvStore {
 public:
  // Never used twice; 0 is "none". Tickets given out later are greater.
  using Ticket = uint64_t;

  struct Woken {
    uint64_t client;
    Ticket ticket;
  };

  // What a Wait or Barrier led to. `ticket` is 0 when there is nothing to wait for.
  struct Parked {
    bool is_refused = false;
    Ticket ticket = 0;
  };

  explicit KvStore(size_t max_bytes) : max_bytes_(max_bytes) {}
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  // Commands that store. false / nullopt: refused, nothing changed.
  [[nodiscard]] bool Set(std::string_view key, std::string_view value);
  [[nodiscard]] bool Append(std::string_view key, std::string_view value);
  // Refused too when the value does not begin with a decimal number. The sum wraps.
  [[nodiscard]] std::optional<int64_t> Add(std::string_view key, int64_t amount);
  // Returns what the store holds afterwards, except: an absent key with a non-empty `expected`
  // returns `expected`, as PyTorch does.
  [[nodiscard]] std::optional<std::string> CompareSet(std::string_view key,
                                                      std::string_view expected,
                                                      std::string_view desired);
  [[nodiscard]] bool QueuePush(std::string_view key, std::string_view value);

  // Commands that remove.
  bool Delete(std::string_view key);
  std::optional<std::string> QueuePop(std::string_view key);

  // Waits until every key has a value or a non-empty queue.
  [[nodiscard]] Parked Wait(uint64_t client, const std::vector<std::string_view>& keys);
  // Counts one arrival in the counter `key`, then waits until it is at least `world_size`.
  [[nodiscard]] Parked Barrier(uint64_t client, std::string_view key, int64_t world_size);
  // Ends a wait. false: it had been woken (or cancelled) before.
  bool Cancel(Ticket ticket);
  // Appends the clients whose wait has ended since the last call, in a fixed order.
  void TakeWoken(std::vector<Woken>* woken);

  // Queries.
  // The value, or null. Valid until the next command.
  const std::string* Get(std::string_view key) const;
  bool HasAll(const std::vector<std::string_view>& keys) const;
  // Values only: queues are not counted and not listed.
  int64_t key_count() const { return static_cast<int64_t>(values_.size()); }
  std::vector<std::string_view> SortedKeys() const;
  int64_t QueueLength(std::string_view key) const;
  size_t bytes() const { return bytes_; }
  size_t waiting_count() const { return waits_.size(); }

 private:
  friend struct KvStoreInspector;  // of the tests
  // Ordered: what comes out of pure code may not depend on hashing. A lookup among 100,000 keys
  // costs a tenth of the system calls around it.
  template <typename T>
  using ByKey = std::map<std::string, T, std::less<>>;

  struct PendingWait {
    uint64_t client = 0;
    std::vector<std::string> keys;           // A barrier has one, its counter.
    std::optional<int64_t> world_size = {};  // Of a barrier.
    size_t bytes = 0;
    size_t missing = 0;  // The one of `keys` under which it is listed.
  };

  bool Has(std::string_view key) const;
  // Takes `after` - `before` more bytes, or refuses.
  bool Charge(size_t before, size_t after);
  bool Store(std::string_view key, std::string_view value);
  Parked Enter(PendingWait wait);
  // Lists the wait under the next of its keys that is missing. false: none is.
  bool List(Ticket ticket, PendingWait& wait);
  // `key` is there, and as a counter stands at `count`. Ends at most `most` of the plain waits.
  void Wake(std::string_view key, size_t most, int64_t count);

  const size_t max_bytes_;
  size_t bytes_ = 0;
  ByKey<std::string> values_;
  ByKey<std::deque<std::string>> queues_;  // Never an empty one.

  Ticket last_ticket_ = 0;
  std::map<Ticket, PendingWait> waits_;
  ByKey<std::set<Ticket>> waiting_;  // Each once, by a key that it misses.
  std::vector<Woken> woken_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_KV_STORE_H_
