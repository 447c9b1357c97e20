// The rendezvous port: listening sockets of our own, whose connections are told apart by their
// first byte before anything else may cost memory or time.
//
//   0x00 a worker that looks for its store    'P' HTTP/2, for gRPC (pipe.h)
//   0x01 a hello (hello.h), answered here     anything else is closed
//
// A connection that says nothing for 5 s is closed, too. Where the job has an identity
// (rendezvous/tls), all of this comes in TLS, which ends here: before the other side has proved
// that it is of the job nothing of what it says is heard by anybody else, and it is told nothing
// but that this is TLS. What it says then must be what its key is for (token_keys.h).
//
// An HTTP/2 connection is closed when no agent has joined over it within the same 5 s, counted from
// when it was accepted. Until then it is a stranger's, as one that says nothing is.
//
// There are at most 256 strangers at a time. The next one takes the place of the oldest one that
// has said nothing for a tenth of a second, of the address with most of those: whoever speaks gets
// in beside thousands that do not. One that has begun HTTP/2 has half a second, which gRPC needs
// for a call where thousands of agents come at once, and one that has begun a call, or TLS with the
// job's token, a second. While agents join, places become free of themselves, and nobody is dropped
// before its 5 s: an agent that is slow to speak would come again, and again be too slow. Until one
// may go nobody is accepted, and waits in the kernel's backlog. More than that is not kept of an
// address: behind one may be a whole cluster (NAT), and on one machine all agents are 127.0.0.1.
//
// One thread; the sockets are bound without SO_REUSEPORT, so that a second coordinator on the port
// is an error and never a silent partner.
#ifndef DDPRUN_RENDEZVOUS_SERVER_PORT_LISTENER_H_
#define DDPRUN_RENDEZVOUS_SERVER_PORT_LISTENER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/connection_table.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/peer_user.h"
#include "rendezvous/server/pipe_watch.h"
#include "rendezvous/tls/identity.h"
#include "rendezvous/tls/stream.h"

namespace ddprun::rendezvous {

class PortListener {
 public:
  static constexpr size_t kMaxStrangers = 256;
  static constexpr Duration kSilenceLimit = std::chrono::seconds(5);
  // How long one that has said nothing keeps its place for a first byte.
  static constexpr Duration kFirstBytePatience = std::chrono::milliseconds(100);
  // How long one that has begun HTTP/2 keeps its place for a call.
  static constexpr Duration kCallPatience = std::chrono::milliseconds(500);
  // How long all keep theirs behind a join.
  static constexpr Duration kJoinPatience = std::chrono::milliseconds(200);
  // How long accept rests when this process has no descriptor left: without a rest it would spin.
  static constexpr Duration kAcceptRest = std::chrono::milliseconds(100);
  // How long the end waits for what has been said last to go out.
  static constexpr Duration kEndLimit = std::chrono::seconds(1);
  // How many refusals are told, each once an address: strangers would fill the log.
  static constexpr size_t kMaxToldRefusals = 8;

  struct Handlers {
    // Called on the listener's thread with the connection unread and non-blocking.
    std::function<void(UniqueFd)> on_store;  // not set: closed
    // Likewise, with gRPC's end of the connection.
    std::function<void(UniqueFd)> on_http2;
    // Likewise, at each rest of accept; may be unset.
    std::function<void()> on_no_descriptor;
    // Likewise, with a sentence on an address whose connection has not proved that it is of the
    // job; may be unset.
    std::function<void(const std::string&)> on_refused;
    ConnectionTable* connections = nullptr;       // of on_http2's; outlives the listener
    std::function<std::string()> hello_reply;     // not set, like on_http2: closed
    std::shared_ptr<const TlsIdentity> identity;  // null: nothing comes in TLS
    Duration silence_limit = kSilenceLimit;  // a fifth of it for callers, where there are too many
    Duration end_limit = kEndLimit;
    bool is_for_own_user = false;  // on loopback: connections of other users are closed
  };

  // Serves `listening_sockets` until CloseDoor. `clock` outlives the listener.
  static absl::StatusOr<std::unique_ptr<PortListener>> Start(
      std::vector<UniqueFd> listening_sockets, Handlers handlers, const Clock& clock);
  // Carries what on_http2's owner has said before it closed its ends.
  ~PortListener();
  PortListener(const PortListener&) = delete;
  PortListener& operator=(const PortListener&) = delete;

  // Frees the port. No handler is called from then on; the connections of on_http2 go on.
  // REQUIRES: not called before.
  void CloseDoor();

 private:
  using Id = uint64_t;
  struct Connection : PipeWatch::Watched {  // the pipe: of HTTP/2, and of all that goes on in TLS
    UniqueFd fd;                            // not open with a pipe, which has it
    std::string ip;
    TimePoint since;
    bool is_answered = false;        // a hello: stays until the other side has read and closed
    std::unique_ptr<TlsStream> tls;  // until there is a pipe, which has it then
  };
  using Connections = std::map<Id, Connection>;

  struct Door {
    UniqueFd fd;
    uint32_t events = PipeWatch::kUnwatched;
  };

  PortListener(std::vector<UniqueFd> listening_sockets, Handlers handlers, const Clock& clock);
  void Run();
  void OnCloseDoor();
  void WatchDoors(TimePoint now);
  void OnStop(TimePoint now);
  TimePoint NextDeadline(TimePoint now) const;
  void AcceptAll(const UniqueFd& door, TimePoint now);
  // Where there is a stranger too many, drops one if one may go by now.
  void KeepStrangersFew(TimePoint now);
  // How long a stranger keeps its place where others want it.
  Duration PatienceWith(const Connection& connection) const;
  bool is_full() const { return strangers_.size() > kMaxStrangers; }
  void Rest(TimePoint now);  // there is no descriptor left
  void OnEvent(uint64_t tag, uint32_t events, TimePoint now);
  void OnReadable(Connections::iterator connection, TimePoint now);
  void OnSecret(Connections::iterator connection, TimePoint now);
  // A connection in TLS begins with a byte that its key is not for.
  bool IsMisused(const Connection& connection, char first) const;
  std::string WhyRefused(const Connection& connection) const;
  void TellRefused(const Connection& connection);
  // `plain`: what was read already, in TLS.
  void OnFirstByte(Connections::iterator connection, char first, std::string plain, TimePoint now);
  void AnswerHello(Connection& connection);
  void LookAtStrangers(TimePoint now);
  void Drop(Connections::iterator connection);

  const Handlers handlers_;
  const Clock& clock_;
  Interrupt close_door_;
  std::promise<void> door_closed_;
  Interrupt stop_;
  PipeWatch watch_;

  // The thread's own.
  std::optional<PeerUsers> users_;  // for our own user's connections alone
  std::vector<Door> doors_;
  Connections connections_;  // by age
  std::set<std::string> told_refusals_;
  std::set<Id> strangers_;  // of them; one that has joined stays until it is looked at
  Id next_id_;
  TimePoint accept_again_at_{};  // after a lack of descriptors
  TimePoint joined_at_{};        // when a stranger joined last
  TimePoint room_at_{};          // where there is a stranger too many, and none may go yet
  std::optional<TimePoint> ends_at_;
  std::vector<char> scratch_;

  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_PORT_LISTENER_H_
