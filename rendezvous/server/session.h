// The seam between the coordinator's driver and the ways in which agents reach it.
#ifndef DDPRUN_RENDEZVOUS_SERVER_SESSION_H_
#define DDPRUN_RENDEZVOUS_SERVER_SESSION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/types.h"
#include "rendezvous/net/connection_table.h"

namespace ddprun::rendezvous {

// One agent's connection as the driver sees it. Called on the driver's thread only; no call may
// block. Shared by the driver and by the transport that made it: whichever ends first.
class Session {
 public:
  virtual ~Session() = default;

  // Tells the agent. `action` is never CloseSession or Finish. After a Refuse, Close follows.
  // `current` holds the coordinator's epoch and round, which every message carries.
  virtual void Send(TimePoint now, const Stamp& current, const Action& action) = 0;
  // The event that was posted last has been applied: the next one may be posted. The answer to a
  // heartbeat tells the agent how long it is to the next.
  virtual void Processed(const Stamp& current, const Event& event, Duration beat_interval) = 0;
  // Ends the connection once what was sent is out. Nothing is called afterwards.
  virtual void Close() = 0;
};

// Where sessions put what agents say. Thread-safe; nothing blocks.
class Inbox {
 public:
  virtual ~Inbox() = default;

  // Announces a session and numbers it; nullopt: there are too many, or the coordinator stops.
  virtual std::optional<SessionId> Open(std::shared_ptr<Session> session) = 0;
  // Hands over what the session said; the event's own session is filled in. A transport posts the
  // next event of a session only after Processed, which bounds the inbox; SessionBroken needs no
  // turn and is the last one.
  virtual void Post(SessionId session, Event event) = 0;
};

// Serves remote agents on connections that others accept, seen without gRPC. The destructor ends
// every session.
class Frontend {
 public:
  virtual ~Frontend() = default;
  // Takes an HTTP/2 connection, unread and non-blocking.
  virtual void Take(UniqueFd connection) = 0;
};

// `run_id` gives the run that is served, as clean text; empty: none yet, any is welcome. It is
// called on any thread. `connections` outlives the frontend, which says there who has joined.
absl::StatusOr<std::unique_ptr<Frontend>> StartGrpcFrontend(std::shared_ptr<Inbox> inbox,
                                                            std::function<std::string()> run_id,
                                                            ConnectionTable& connections);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SESSION_H_
