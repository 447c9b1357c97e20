// The ways of one agent to the others of its job, in TLS, for what speaks plainly on this machine:
// gRPC, and workers that look for their store.
//
// One thread carries all of them. A tunnel ends with either of its sides; why it could not be made
// is not told here: who wants to know asks by a greeting first (greet.h).
#ifndef DDPRUN_RENDEZVOUS_CLIENT_TUNNELS_H_
#define DDPRUN_RENDEZVOUS_CLIENT_TUNNELS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/peer_user.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/pipe_watch.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::rendezvous {

class Tunnels {
 public:
  // In which the other side has answered, and proved itself.
  static constexpr Duration kHandshakeLimit = std::chrono::seconds(10);
  // How long accept rests when this process has no descriptor left.
  static constexpr Duration kAcceptRest = std::chrono::milliseconds(100);

  static absl::StatusOr<std::unique_ptr<Tunnels>> Start(
      std::shared_ptr<const TlsIdentity> identity);
  ~Tunnels();
  Tunnels(const Tunnels&) = delete;
  Tunnels& operator=(const Tunnels&) = delete;

  const std::shared_ptr<const TlsIdentity>& identity() const { return identity_; }

  // The near end, non-blocking, of a tunnel to the coordinator at `address`, which is made
  // meanwhile; it is closed when that is not possible. Not open: no descriptor is left. From any
  // thread.
  UniqueFd Open(const SocketAddress& address);
  // Carries each connection that comes to `door`, a listening socket, to the store at `address`, in
  // place of what was relayed before: those connections end. `door` not open: nothing is relayed
  // any more. From any thread.
  void Relay(UniqueFd door, const SocketAddress& address);

 private:
  using Id = uint64_t;
  struct Tunnel : PipeWatch::Watched {
    bool is_relayed = false;
    std::optional<TimePoint> ready_by;  // until it is, and for its last words
  };
  struct NewRelay {
    UniqueFd door;
    SocketAddress address;
  };

  explicit Tunnels(std::shared_ptr<const TlsIdentity> identity);
  void Wake() const;
  // `unacknowledged_ms`: how long what was sent may be so; 0: as long as the kernel tries.
  std::unique_ptr<Pipe> Dial(const SocketAddress& address, UniqueFd inner, TlsPurpose purpose,
                             unsigned unacknowledged_ms) const;
  // The rest runs on the thread.
  void Run();
  Duration TimeToWait(TimePoint now) const;
  void TakeOrders(TimePoint now);
  void AcceptAll(TimePoint now);
  void Add(std::unique_ptr<Pipe> pipe, bool is_relayed, TimePoint now);
  void OnEvent(uint64_t tag, uint32_t events, TimePoint now);
  void DropLate(TimePoint now);
  void Drop(std::map<Id, Tunnel>::iterator tunnel);

  const std::shared_ptr<const TlsIdentity> identity_;
  PipeWatch watch_;
  const UniqueFd wake_;  // an eventfd: there are orders, or the end

  std::mutex mutex_;
  std::vector<std::unique_ptr<Pipe>> opened_;  // guarded by mutex_, like what follows
  std::optional<NewRelay> new_relay_;
  bool is_stopping_ = false;

  // The thread's own.
  PeerUsers users_;
  std::map<Id, Tunnel> tunnels_;
  Id next_id_;
  UniqueFd door_;
  uint32_t door_events_ = PipeWatch::kUnwatched;
  SocketAddress relay_to_;
  TimePoint accept_again_at_{};
  std::vector<char> scratch_;

  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_TUNNELS_H_
