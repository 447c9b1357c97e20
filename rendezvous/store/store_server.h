// Serves PyTorch's TCPStore protocol to the workers of one round.
//
// One server is one key space: a new round gets a new server on a new socket, because the protocol
// carries no round and a straggler's late connection would otherwise write among the new keys.
// One thread of the server's own serves all connections: with four, a start of 8,192 ranks costs a
// sixth more of the processor and, on two cores, as much time. All public methods may be called
// from any thread, Close and the destructor from one.
#ifndef DDPRUN_RENDEZVOUS_STORE_STORE_SERVER_H_
#define DDPRUN_RENDEZVOUS_STORE_STORE_SERVER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/kv_store.h"
#include "rendezvous/net/peer_user.h"
#include "rendezvous/store/dispatch.h"
#include "rendezvous/store/wire.h"

namespace ddprun::rendezvous {

class StoreServer {
 public:
  enum class Bind {
    kNone,      // No socket: connections come by Adopt and Serve.
    kLoopback,  // 127.0.0.1, for processes of this user and of root alone.
  };

  // How long accept rests when this process has no descriptor left: without a rest it would spin.
  static constexpr std::chrono::milliseconds kAcceptRest{100};
  // Of the connections that others accepted: more than so many do not wait for room.
  static constexpr size_t kMaxUnserved = 64;

  struct Options {
    Bind bind = Bind::kLoopback;
    uint16_t port = 0;  // 0: the kernel chooses.
    StoreLimits limits;
    // Where there are as many, further ones wait until others close; those that have greeted, have
    // asked for nothing and are silent for idle_timeout are closed for them. 0: as many as this
    // process may have open files, but an eighth of these, at most 512, which its agent needs.
    size_t max_connections = 0;
    // Bound on keys, values and parked waits. What exceeds it closes the connection.
    size_t max_store_bytes = size_t{1} << 30;
    // Bound on half-received requests and unread replies, over all connections. Only what one
    // connection holds beyond 64 KiB counts.
    size_t max_transit_bytes = size_t{256} << 20;
    // A connection that has not said VALIDATE by then is dropped.
    std::chrono::milliseconds greeting_timeout{5000};
    std::chrono::milliseconds idle_timeout{5000};
    // When half of max_transit_bytes is in use, those who hold some of it and have neither sent
    // nor taken a byte for so long are dropped.
    std::chrono::milliseconds stalled_timeout{5000};
    // Called on the server's thread at each rest of accept; must not block. May be unset.
    std::function<void()> on_no_descriptor;
  };

  struct Stats {
    uint64_t accepted = 0;  // Adopted ones included.
    uint64_t open = 0;
    uint64_t dropped_silent = 0;    // No VALIDATE in time, or nothing after it and no room.
    uint64_t dropped_protocol = 0;  // Garbage, or a limit exceeded.
    uint64_t dropped_users = 0;     // Of other users, where the store is on loopback.
    uint64_t keys = 0;
    uint64_t accept_rests = 0;  // Times there was no descriptor, or no room, for a connection.
    uint64_t waiting = 0;       // Parked WAITs and BARRIERs.
  };

  // Binds and serves. Errors: FailedPrecondition when the port is taken (names it), Unavailable
  // or ResourceExhausted from the system otherwise. `clock` outlives the server.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const Options& options,
                                                            const Clock& clock);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves a connection that somebody else accepted and from which nothing was read.
  void Adopt(UniqueFd connection);
  // Serves the connections of a socket that listens, without a wait, too.  REQUIRES: Bind::kNone.
  void Serve(UniqueFd listener);

  // Closes the sockets and every connection, joins the thread, which ends after the request that it
  // is at. What Adopt and Serve are given afterwards is dropped. Idempotent.
  void Close();

  // The bound port; 0 with Bind::kNone.
  uint16_t port() const { return port_; }
  Stats stats() const;

 private:
  struct Connection {
    UniqueFd fd;
    StoreSession session;
    RequestParser parser;
    std::string in;   // Begins with the first byte of a request not carried out yet.
    std::string out;  // Replies; the first `sent` bytes are gone.
    size_t sent = 0;
    size_t charged = 0;  // Its share of transit_bytes_.
    uint32_t interest = 0;
    bool is_dead = false;
    TimePoint last_progress;
  };

  StoreServer(const Options& options, const Clock& clock);
  bool Watch(int fd, uint64_t tag);

  // The rest runs on the thread.
  void Run();
  int TimeoutMs() const;
  void RunTimers();
  void TakeAdopted();
  void WatchListeners();

  void AcceptSome(const UniqueFd& listener);
  void HandleAcceptError();
  void Rest();
  // Whether one more may be served, beside `coming`; for it another may be closed.
  bool MakeRoom(size_t coming);
  void ServeUnserved();
  // Takes the next time to greet; true if its client had not greeted and is dropped.
  bool EndNextGreeting();
  bool DropOldestUngreeted();
  bool DropOldestIdle();
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
  void PublishStoreStats();

  const Options options_;
  const Clock& clock_;
  const size_t max_connections_;
  uint16_t port_ = 0;
  UniqueFd epoll_;
  UniqueFd wake_event_;
  std::thread thread_;

  // Between the callers and the thread.
  std::mutex mutex_;
  std::vector<UniqueFd> adopted_;  // Guarded by mutex_, like what follows.
  std::vector<UniqueFd> new_listeners_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<uint64_t> accepted_{0};
  std::atomic<uint64_t> open_{0};
  std::atomic<uint64_t> dropped_silent_{0};
  std::atomic<uint64_t> dropped_protocol_{0};
  std::atomic<uint64_t> dropped_users_{0};
  std::atomic<uint64_t> keys_{0};
  std::atomic<uint64_t> accept_rests_{0};
  std::atomic<uint64_t> waiting_{0};

  // The thread's own.
  std::vector<UniqueFd> listeners_;
  std::deque<UniqueFd> unserved_;   // for room, at most kMaxUnserved, while accept rests
  std::optional<PeerUsers> users_;  // on loopback
  KvStore store_;
  size_t transit_bytes_ = 0;
  uint64_t next_client_;
  std::unordered_map<uint64_t, Connection> connections_;
  std::deque<std::pair<TimePoint, uint64_t>> ungreeted_;  // By deadline.
  std::vector<KvStore::Woken> wakes_;
  StoreCommand command_;
  std::vector<char> scratch_;
  std::optional<TimePoint> resume_accept_at_;  // While accept rests.
  TimePoint check_stalled_at_;
  TimePoint now_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STORE_STORE_SERVER_H_
