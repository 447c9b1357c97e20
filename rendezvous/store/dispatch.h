// Carries out one request of one connection on the store and writes the reply. [pure]
#ifndef DDPRUN_RENDEZVOUS_STORE_DISPATCH_H_
#define DDPRUN_RENDEZVOUS_STORE_DISPATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "rendezvous/core/kv_store.h"
#include "rendezvous/store/wire.h"

namespace ddprun::rendezvous {

// What the store knows of one connection.
struct StoreSession {
  uint64_t client = 0;
  bool is_validated = false;
  bool has_asked = false;      // For more than to be greeted.
  KvStore::Ticket ticket = 0;  // What it waits on; 0 when it does not wait.
};

// False: the connection broke the protocol or a bound, and is to be closed. Otherwise the reply, if
// the command has one, is in `reply`; where session.ticket is set, StopWaiting answers when the
// ticket is woken. REQUIRES: a session that waits sends nothing but CANCEL_WAIT (the driver holds
// the rest back). `max_reply_bytes` bounds `reply` as a whole: MULTI_GET could name one large value
// many times.
[[nodiscard]] bool DispatchStoreCommand(const StoreCommand& command, size_t max_reply_bytes,
                                        StoreSession* session, KvStore* store, std::string* reply);

// Answers a wait that has ended. false: the ticket is not what the session waits on any more.
bool StopWaiting(KvStore::Ticket ticket, StoreSession* session, std::string* reply);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STORE_DISPATCH_H_
