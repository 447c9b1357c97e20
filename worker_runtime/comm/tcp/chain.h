// One lane of the chain of nodes: this rank's links to the nodes before and after its own.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_CHAIN_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_CHAIN_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/kernels.h"
#include "worker_runtime/comm/op_record.h"
#include "worker_runtime/comm/tcp/reduce_streams.h"
#include "worker_runtime/comm/tcp/sealed_records.h"
#include "worker_runtime/comm/tcp/stream.h"

namespace ddp::internal {

// A connection to a rank that has proved itself. Closed at the ends of the chain.
struct Link {
  ddprun::UniqueFd socket;
  int rank = -1;
  std::unique_ptr<SealedChannel> sealed{};  // null: the bytes go as they are
  bool is_open() const { return socket.is_open(); }
};

// Partial sums go from the first node to the last in rank order, in the accumulator's type; the
// results come back. Both directions flow at once, piece by piece, so on full-duplex links a chain
// costs what a ring costs, and the order of summation is that of one host. Every operation starts
// with a record of it in both directions, against mix-ups.
//
// Used by the thread that executes operations, what is marked "any thread" excepted.
class Chain {
 public:
  // During an operation `interrupted` is asked a few times a second; what it returns ends it.
  // `on_stuck` is called once for an operation that waits for long.
  struct Callbacks {
    std::function<absl::Status()> interrupted;
    std::function<void(const Op& op)> on_stuck;
  };
  Chain(int rank, Link previous, Link next, Callbacks callbacks);
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  // An operation may take several calls; the first greets.
  absl::Status Reduce(const Op& op, const ReduceJob& job, bool is_first);
  // Returns when every node has called it.
  absl::Status Synchronize(const Op& op);
  // Carries bytes that one node has to all others. `direction` of that node: -1 before this one, 1
  // after it, 0 this one itself. REQUIRES: all nodes are in `op` (Synchronize).
  absl::Status Spread(const Op& op, int direction, void* data, size_t bytes);

  // Carries bytes from one node to one other: `from` and `to` are the directions of these, as
  // above. Nodes between them pass the bytes on; the others, and a call within one node, do
  // nothing. Where this node is neither, `data` is not looked at. REQUIRES: as Spread().
  absl::Status Carry(const Op& op, int from, int to, void* data, size_t bytes);

  // Tells the neighbours that this rank goes in order.
  void SayGoodbye();
  // Breaks the links, which the neighbours notice. Any thread, any number of times.
  void Shutdown();
  // Unavailable if a neighbour has closed its link. Any thread.
  absl::Status PeerError() const;

 private:
  absl::Status Move(const Op& op, const Streams& streams, const std::function<void()>& process);
  // Either stream may be null.
  absl::Status MoveLink(const Op& op, const Link& link, Stream* to, Stream* from, bool* has_moved);
  absl::Status Send(const Op& op, const Link& link, Stream& stream, bool* has_moved);
  absl::Status Receive(const Op& op, const Link& link, Stream& stream, bool* has_moved);
  absl::Status SendSealed(const Op& op, const Link& link, Stream& stream, bool* has_moved);
  absl::Status ReceiveSealed(const Op& op, const Link& link, Stream& stream, bool* has_moved);
  absl::Status OpenSealed(const Op& op, const Link& link, Stream& stream, bool* has_moved);
  // What poll() is to wait for on each link.
  struct LinkEvents {
    short previous = 0;
    short next = 0;
    bool is_none() const { return previous == 0 && next == 0; }
  };
  LinkEvents EventsOf(const Streams& streams) const;
  // Returns when a byte may move, or `until`.
  void Wait(const Streams& streams, Clock::time_point until) const;
  // Ok while the operation may still succeed.
  absl::Status Look(const Op& op, const Streams& streams);
  absl::Status Broken(const Op& op, const Link& link) const;
  absl::Status Lost(const Op& op, const Link& link, int error) const;
  absl::Status Check(const Op& op, const Link& link, const Greeting& greeting) const;

  const int rank_;
  const Link previous_;
  const Link next_;
  const Callbacks callbacks_;
  const Kernels& kernels_ = BestKernels();
  std::vector<char> ring_;
  uint64_t stuck_sequence_ = 0;  // the last operation for which on_stuck was called
};

// Whether `status` only says that a link broke: the cause may lie further along the chain.
bool IsLinkLost(const absl::Status& status);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_CHAIN_H_
