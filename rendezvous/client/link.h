// One agent's connection to a coordinator: it says events and hears actions. Decides nothing.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_LINK_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LINK_H_

#include <functional>
#include <memory>

#include "rendezvous/client/contact_core.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

// Driven by its owner's thread. The destructor ends it at once and without a word.
class Link {
 public:
  // Given Said, Heard, BeatAnswered and LinkEnded on any thread; must only pass them on. It is not
  // called any more once the link's destructor has returned.
  using Listener = std::function<void(ContactEvent)>;

  virtual ~Link() = default;

  // REQUIRES: what was said before is Said.
  virtual void Say(const SayEvent& what) = 0;
  // What was Heard or BeatAnswered last has been dealt with: the next may come.
  virtual void HearNext() = 0;
  // Nothing more will be said. LinkEnded follows when all that was said has been applied.
  virtual void Close() = 0;
};

// To a coordinator in this process.
std::unique_ptr<Link> OpenLocalLink(std::shared_ptr<Inbox> inbox, Link::Listener listener);

// To the coordinator at `address`. Connects and opens the stream.
std::unique_ptr<Link> OpenGrpcLink(const SocketAddress& address, Link::Listener listener);

// Streams that gRPC has not let go of yet.
int CountGrpcLinksForTest();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LINK_H_
