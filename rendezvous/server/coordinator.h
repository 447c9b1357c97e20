// Runs one RendezvousMachine: its clock, its thread, its sessions.
//
// The agent that hosts the endpoint owns one, or `ddprun coordinator`, which runs it apart from any
// node. All machine steps and all Session calls happen on one thread of its own; agents are reached
// in this process (inbox) or, when Options::listen is given, over gRPC. Without it no socket is
// opened and gRPC is never initialised.
#ifndef DDPRUN_RENDEZVOUS_SERVER_COORDINATOR_H_
#define DDPRUN_RENDEZVOUS_SERVER_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/types.h"
#include "rendezvous/server/job_memory.h"
#include "rendezvous/server/session.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::rendezvous {

class Coordinator {
 public:
  struct Listen {
    std::string host;   // empty: every address of this machine, IPv6 and IPv4
    uint16_t port = 0;  // 0: the kernel chooses
    // Of an empty host: these alone, if this machine has one that others reach (ListenOnEach).
    std::vector<std::string> only = {};
  };
  struct Options {
    // None: the first node that joins gives its own.
    std::optional<Policy> policy;
    // The only run that is served; empty: the policy's, or else that of the first node that joins.
    std::string run_id;
    // By which agents prove that they are of the job; null: whoever reaches the port is one.
    std::shared_ptr<const TlsIdentity> identity;
    // Lives in no member's agent. Agents are told so, and never take its port.
    bool is_apart = false;
    std::optional<Listen> listen;
    bool is_for_own_user = false;  // PortListener::Handlers
    // Keeps the job's file until the job is over; empty: a coordinator that is started again knows
    // of this one what agents tell it.
    std::string run_dir;
    // Told on a thread of the file's, which may outlive the coordinator, why it cannot be written;
    // must not block. May be unset.
    std::function<void(const std::string&)> on_file_lost;
    // What keeps it in place of a file.
    std::shared_ptr<JobMemory> memory;
    // A connection to the port whose first byte is 0x00, unread: a worker that looks for its store.
    // Called on the listener's thread; must not block. Not set: such connections are closed.
    std::function<void(UniqueFd)> on_store_connection;
    // Given a line for each event and action of the machine, but for heartbeats and deadlines that
    // nothing follows from, on the coordinator's thread, until Stop; must not block. Not set: none
    // is rendered.
    std::function<void(const std::string&)> log_step;
    // Called on the listener's thread each time a connection must wait because this process has no
    // descriptor for it; must not block. May be unset.
    std::function<void()> on_no_descriptor;
    // Likewise, with a sentence on a connection that has not proved that it is of the job, once for
    // each of a few addresses.
    std::function<void(const std::string&)> on_refused;
    // Called once on the coordinator's thread, with the reason as half a sentence, when an elected
    // coordinator should leave its place to another; must not block. May be unset.
    std::function<void(const std::string&)> on_resigns;
    // Called once on the coordinator's thread when the verdict is known everywhere it can be, or
    // the job was given up; must not block. May be unset.
    std::function<void()> on_finished;
    // Called once for each quarantine, on the coordinator's thread: what there is to do about the
    // host. Must not block. May be unset.
    std::function<void(const std::string& host, const std::string& reason)> on_bad_node;
  };

  // ALREADY_EXISTS: the port is taken, or by the memory's word the job. UNAVAILABLE,
  // INVALID_ARGUMENT: other trouble with the address. All name it. RESOURCE_EXHAUSTED: the system
  // has no thread for it. `clock` outlives it, and its file's threads.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(Options options, const Clock& clock);
  // Stops.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Where agents of this process open their sessions. It may outlive the coordinator, and takes
  // nothing from then on.
  std::shared_ptr<Inbox> inbox() const;
  // How the job ended, from the start where an earlier coordinator wrote it down; else empty until
  // on_finished.
  std::optional<Verdict> verdict() const;
  // The verdict's; kRendezvousExitCode where there is none.
  int exit_code() const;
  // Closes the port and every session, then ends the thread. Idempotent. In an agent it first waits
  // up to a second for the other nodes to leave: a job that all nodes have left is forgotten.
  void Stop();
  // Stops at once, and leaves the job to the coordinator that took its place.
  void Resign();
  // A node has joined, or the policy was given.  REQUIRES: Stop was called.
  bool has_job() const;

  // Where it listens, or did; 0 without Options::listen.
  uint16_t port() const { return port_; }
  // Listen::only, where it listens on those; else empty.
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  class Loop;
  struct Door;
  Coordinator();

  std::shared_ptr<Loop> loop_;  // shared with sessions, which may be destroyed later
  std::unique_ptr<Door> door_;
  uint16_t port_ = 0;
  std::vector<std::string> hosts_;
  bool forgets_deserted_ = false;
  bool may_have_successor_ = false;
  // Shared with the loop; null without Options::run_dir and memory.
  std::shared_ptr<JobMemory> memory_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_COORDINATOR_H_
