// Messages between two ranks, apart from the group's collectives.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGES_H_
#define DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGES_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "ddp/communicator.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/messages/message_peers.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/comm/tcp/link_key.h"

namespace ddp::internal {

// One send or receive. Guarded by the mutex of Messages until it is done, but for what is const.
struct Message {
  bool is_send = false;
  int peer = -1;  // -1: a receive from any rank
  uint64_t tag = 0;
  char* data = nullptr;  // not written to by a send
  size_t bytes = 0;
  uint64_t id = 0;
  std::chrono::milliseconds timeout{0};
  Clock::time_point started_at;
  Clock::time_point ended_at;
  bool is_done = false;
  bool is_accepted = false;  // a receive has met its send, and nothing but data is missing
  int source = -1;
  absl::Status status;
};

// "send to rank 3 (tag 7, 4096 bytes)".
std::string Describe(const Message& message);

// The messages of one rank. A port is open from the start; a thread and connections come with the
// first call. Who sends connects to who receives, and who receives from a named rank connects to it
// as well, to hear of its end. A message is offered, accepted by a receive, and sent then: so none
// is kept for a receive that has not been posted. A connection says the group's secret first and is
// answered with another; who cannot is dropped.
//
// Any thread calls. REQUIRES: it outlives the Works.
class Messages {
 public:
  // `listener` takes the connections at this rank's place among `peers`. `group_error` is the
  // group's own error, on which messages end, too. With a `key` both ends of a connection prove
  // that they have it, in place of the secrets, and all that follows is sealed; null: it is plain.
  Messages(int rank, MessagePeers peers, ddprun::UniqueFd listener,
           std::shared_ptr<const LinkKey> key, std::function<absl::Status()> group_error);
  // Ends what is under way with Aborted.
  ~Messages();

  // `message.is_send`, `peer`, `tag`, `data`, `bytes` and `timeout` say what.
  std::unique_ptr<Work> Start(Message message);
  // Ends all that is under way, and all that is started later, with `status`.
  void Fail(const absl::Status& status);

 private:
  friend class MessageWork;
  friend class MessageDriver;

  absl::Status Check(const Message& message) const;
  // REQUIRES of both: the caller holds mutex_.
  absl::Status StartThread(const Message& first);
  void Wake();

  const int rank_;
  const MessagePeers peers_;
  const ddprun::UniqueFd listener_;
  const std::shared_ptr<const LinkKey> key_;
  const std::function<absl::Status()> group_error_;

  std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by mutex_.
  std::vector<std::shared_ptr<Message>> started_;  // not yet seen by the thread
  uint64_t last_id_ = 0;
  absl::Status failure_;
  bool is_stopping_ = false;
  ddprun::UniqueFd wake_;  // an eventfd, there before the thread
  std::thread thread_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGES_H_
