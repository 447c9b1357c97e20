// One thread of a StoreServer: an epoll loop over its share of the connections. Internal.
#ifndef DDPRUN_RENDEZVOUS_STORE_SHARD_H_
#define DDPRUN_RENDEZVOUS_STORE_SHARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/kv_store.h"
#include "rendezvous/store/dispatch.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/store/wire.h"

namespace ddprun::rendezvous {

// What the threads of one server have in common.
struct StoreShared {
  explicit StoreShared(const StoreServer::Options& the_options)
      : options(the_options), store(the_options.max_store_bytes) {}

  const StoreServer::Options options;
  std::mutex mutex;
  KvStore store;  // Guarded by `mutex`.

  std::atomic<size_t> transit_bytes{0};
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> open{0};
  std::atomic<uint64_t> dropped_silent{0};
  std::atomic<uint64_t> dropped_protocol{0};
  std::atomic<uint64_t> accept_rests{0};
};

// How a shard reaches the others. Called on shard threads.
class ShardPeers {
 public:
  virtual ~ShardPeers() = default;
  // Gives an accepted connection to the shard that shall serve it.
  virtual void Place(UniqueFd connection) = 0;
  // Passes the news to the shard of `woken.client` (ShardOfClient).
  virtual void Wake(const KvStore::Woken& woken) = 0;
};

class StoreShard {
 public:
  static constexpr int kMaxShards = 64;
  static int ShardOfClient(uint64_t client) { return static_cast<int>(client % kMaxShards); }

  // Starts the thread. `listener` may be closed ("none"). `shared` and `peers` outlive the shard.
  static absl::StatusOr<std::unique_ptr<StoreShard>> Start(int index, UniqueFd listener,
                                                           StoreShared& shared, ShardPeers& peers);
  ~StoreShard();

  // From any thread.
  void Adopt(UniqueFd connection);
  void Wake(const KvStore::Woken& woken);
  // Ends the loop and joins the thread. Sockets close with the destructor.
  void Stop();

 private:
  struct Connection {
    UniqueFd fd;
    StoreSession session;
    RequestParser parser;
    std::string in;   // Begins with the first byte of a request not carried out yet.
    std::string out;  // Replies; the first `sent` bytes are gone.
    size_t sent = 0;
    size_t charged = 0;  // Its share of transit_bytes.
    uint32_t interest = 0;
    bool is_dead = false;
    TimePoint last_progress;
  };

  StoreShard(int index, UniqueFd listener, UniqueFd epoll, UniqueFd wake_event, StoreShared& shared,
             ShardPeers& peers);

  void Run();
  int TimeoutMs() const;
  void RunTimers();
  void DrainInbox();

  void AcceptSome();
  void HandleAcceptError();
  bool DropOldestUngreeted();
  void Add(UniqueFd fd);
  void Remove(uint64_t client);
  void DropBroken(Connection& connection);
  void DropStalled();

  void HandleEvents(uint64_t client, uint32_t events);
  void Receive(Connection& connection);
  // Carries out what `fresh` completes, sends the replies, and keeps the rest.
  void Consume(Connection& connection, std::string_view fresh);
  size_t Execute(Connection& connection, std::string_view bytes);
  bool MustHold(const Connection& connection, char next_op) const;
  void Flush(Connection& connection);
  // After any of the above: accounts, sets the epoll interest, removes a dead connection.
  void Settle(Connection& connection);
  void DeliverWakes();

  const int index_;
  const UniqueFd listener_;
  const UniqueFd epoll_;
  const UniqueFd wake_event_;
  StoreShared& shared_;
  ShardPeers& peers_;
  std::thread thread_;
  std::atomic<bool> is_stopping_{false};

  std::mutex inbox_mutex_;
  std::vector<UniqueFd> inbox_connections_;  // Guarded by inbox_mutex_.
  std::vector<KvStore::Woken> inbox_wakes_;  // Guarded by inbox_mutex_.

  // The loop's own.
  uint64_t next_sequence_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::deque<std::pair<TimePoint, uint64_t>> ungreeted_;  // By deadline.
  std::deque<KvStore::Woken> wakes_;
  std::vector<KvStore::Woken> just_woken_;
  StoreCommand command_;
  std::vector<char> scratch_;
  bool is_accept_paused_ = false;
  TimePoint resume_accept_at_;
  TimePoint check_stalled_at_;
  TimePoint now_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STORE_SHARD_H_
