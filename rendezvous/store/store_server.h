// Serves PyTorch's TCPStore protocol to the workers of one round.
//
// One server is one key space: a new round gets a new server on a new socket, because the protocol
// carries no round and a straggler's late connection would otherwise write among the new keys.
// Connections are spread over a few threads of the server's own, which start when connections
// need them. All methods may be called from any thread, Close and the destructor from one.
#ifndef DDPRUN_RENDEZVOUS_STORE_STORE_SERVER_H_
#define DDPRUN_RENDEZVOUS_STORE_STORE_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/wire.h"

namespace ddprun::rendezvous {

class StoreServer {
 public:
  enum class Bind {
    kNone,      // No socket: connections come by Adopt.
    kLoopback,  // 127.0.0.1.
    kAll,       // [::], which takes IPv4 too; 0.0.0.0 where there is no IPv6.
  };

  // How long accept rests when this process has no descriptor left: without a rest it would spin.
  static constexpr std::chrono::milliseconds kAcceptRest{100};

  struct Options {
    Bind bind = Bind::kLoopback;
    uint16_t port = 0;  // 0: the kernel chooses.
    // Upper bound; a thread more is used per `connections_per_thread` connections.
    int max_threads = 4;
    int connections_per_thread = 2048;
    StoreLimits limits;
    // Bound on keys, values and parked waits. What exceeds it closes the connection.
    size_t max_store_bytes = size_t{1} << 30;
    // Bound on half-received requests and unread replies, over all connections. Only what one
    // connection holds beyond 64 KiB counts.
    size_t max_transit_bytes = size_t{256} << 20;
    // A connection that has not said VALIDATE by then is dropped.
    std::chrono::milliseconds greeting_timeout{5000};
    // When half of max_transit_bytes is in use, those who hold some of it and have neither sent
    // nor taken a byte for so long are dropped.
    std::chrono::milliseconds stalled_timeout{5000};
    // Called on a thread of the server's at each rest of accept; must not block. May be unset.
    std::function<void()> on_no_descriptor;
  };

  struct Stats {
    uint64_t accepted = 0;  // Adopted ones included.
    uint64_t open = 0;
    uint64_t dropped_silent = 0;    // No VALIDATE in time.
    uint64_t dropped_protocol = 0;  // Garbage, or a limit exceeded.
    uint64_t keys = 0;
    uint64_t accept_rests = 0;  // Times the system had no descriptor for a connection.
    uint64_t waiting = 0;       // Parked WAITs and BARRIERs.
  };

  // Binds and serves. Errors: FailedPrecondition when the port is taken (names it), Unavailable
  // or ResourceExhausted from the system otherwise.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const Options& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves a connection that somebody else accepted and from which nothing was read.
  void Adopt(UniqueFd connection);

  // Closes the socket and every connection, joins the threads, which end after the request that
  // they are at. Adopt afterwards drops what it is given. Idempotent.
  void Close();

  // The bound port; 0 with Bind::kNone.
  uint16_t port() const;
  Stats stats() const;

 private:
  class Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STORE_STORE_SERVER_H_
