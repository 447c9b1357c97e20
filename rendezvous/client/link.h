// One agent's connection to a coordinator, here or over gRPC: it says events and hears actions.
// Decides nothing.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_LINK_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LINK_H_

#include <functional>
#include <memory>

#include "rendezvous/base/clock.h"
#include "rendezvous/client/contact_core.h"
#include "rendezvous/client/tunnels.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

// Driven by its owner's thread.
class Link {
 public:
  // Given Said, Heard, BeatAnswered and LinkEnded on any thread; must only pass them on. Words that
  // were under way may still come when the owner has let go.
  using Listener = std::function<void(ContactEvent)>;

  virtual ~Link() = default;

  // REQUIRES: what was said before is Said.
  virtual void Say(const SayEvent& what) = 0;
  // What was Heard or BeatAnswered last has been dealt with: the next may come.
  virtual void HearNext() = 0;
  // Nothing more will be said. LinkEnded follows when all that was said has been applied.
  virtual void HalfClose() = 0;
};

// Letting go of it ends the link at once and without a word. The link itself lives until whoever
// carries it, gRPC or the coordinator, has let go as well.
using OwnedLink = std::unique_ptr<Link, std::function<void(Link*)>>;

// To a coordinator in this process.
OwnedLink OpenLocalLink(std::shared_ptr<Inbox> inbox, Link::Listener listener);

// To the coordinator at `address`, through `tunnels` unless there are none. Connects and opens the
// stream. What it hears is dated by `clock`, which outlives it.
OwnedLink OpenGrpcLink(const SocketAddress& address, Tunnels* tunnels, Link::Listener listener,
                       const Clock& clock);

// Streams that gRPC has not let go of yet.
int CountGrpcLinksForTest();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LINK_H_
