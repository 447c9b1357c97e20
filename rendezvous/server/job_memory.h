// What one coordinator leaves to the next, and whether this one may speak for the job.
//
// A Coordinator owns one and calls it from its starter's thread (Begin, Forget, Leave) and from its
// own (Write, Look, AwaitTurn). JobFile keeps it on disk, for a coordinator that is the only one as
// it has the port; etcd's Leadership keeps it where several may want to be the one.
#ifndef DDPRUN_RENDEZVOUS_SERVER_JOB_MEMORY_H_
#define DDPRUN_RENDEZVOUS_SERVER_JOB_MEMORY_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

class JobMemory {
 public:
  virtual ~JobMemory() = default;

  // Takes the job up for a coordinator that listens on `port`. ALREADY_EXISTS: another one has it.
  virtual absl::StatusOr<Beginning> Begin(uint16_t port, Duration timeout) = 0;
  // After Begin. nullopt: no other coordinator can have the place.
  virtual std::optional<Election> election() const { return std::nullopt; }
  // A record that has not been written yet is replaced. `on_written`, which may be empty, is called
  // on a thread of the memory's when this record or a newer one is durable, or will never be; not
  // while it is tried again, for however long.
  virtual void Write(const Record& record, std::function<void()> on_written) = 0;
  // Called on the coordinator's thread whenever something happens: every second while a node is
  // there. Tells the user of what is asked for and does not come to an end.
  virtual void Look(TimePoint /*now*/) {}
  // The job is over: nothing of it is kept. The last call, returns after `timeout` at the latest.
  virtual void Forget(Duration timeout) = 0;
  // The coordinator ends before its job: another one may take it up at once, as long as nodes wait
  // for one, which is `nodes_wait`. The last call, too.
  virtual void Leave(Duration /*timeout*/, std::optional<Duration> /*nodes_wait*/) {}

  // Returns at once while the coordinator may speak, else when it may again, with `has_waited`.
  // False, after EndWaits: it may not.
  virtual bool AwaitTurn(bool& /*has_waited*/) { return true; }
  // No such wait goes on, and no later one begins.
  virtual void EndWaits() {}
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_JOB_MEMORY_H_
