// The thread of Messages: its sockets, and what is under way on them.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_DRIVER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_DRIVER_H_

#include <poll.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker_runtime/comm/messages/message_link.h"
#include "worker_runtime/comm/messages/message_matching.h"
#include "worker_runtime/comm/messages/messages.h"
#include "worker_runtime/comm/tcp/acceptor.h"

namespace ddp::internal {

// Lives on its thread. What it finds is written into the Messages' own under its mutex.
class MessageDriver {
 public:
  // `no_memory` is how messages end where there is none, and is made while there is.
  MessageDriver(Messages& owner, absl::Status no_memory)
      : owner_(owner), no_memory_(std::move(no_memory)) {}
  void Run();

 private:
  using Pending = std::shared_ptr<Message>;

  // To a rank: this one has connected to it, and sends its messages on it.
  struct Outgoing {
    MessageSocket socket;
    bool is_connected = false;
    Hello hello{};
    // It proves itself, before it is sent any data: by the proof where there is a key, otherwise by
    // the nonce alone.
    LinkAnswer answer{};
    size_t answer_read = 0;
    MessageFrame frame;
    size_t frame_read = 0;
    std::map<uint64_t, Pending> offered;
    std::deque<Pending> accepted;
    // Its data are under way, behind a frame that is not queued: what is queued meanwhile waits
    // until they have gone.
    Pending moving;
    MessageFrame moving_frame;
    size_t frame_moved = 0;
    size_t moved = 0;
  };
  // From a rank, or from a stranger until it has said the hello.
  struct Incoming {
    MessageSocket socket;
    Clock::time_point since;
    Hello hello{};
    size_t hello_read = 0;
    // Where there is a key, once the hello was answered.
    std::unique_ptr<LinkSecrets> secrets{};
    Key proof{};
    size_t proof_read = 0;
    int rank = -1;
    bool is_replaced = false;  // the rank has connected again
    MessageFrame frame;
    size_t frame_read = 0;
    std::map<uint64_t, Pending> accepted;  // by the sender's id
    Pending moving;
    size_t moved = 0;
  };

  void RunWithMemory();
  // Ends all messages, also those that are started later, and refuses connections. Allocates
  // nothing.
  void EndForMemory();

  // False when the Messages end.
  bool TakeStarted();
  void StartSend(const Pending& message);
  void StartReceive(const Pending& message);
  void PostAgain(const Pending& message);
  void Accept(const MessageMatching::Offer& offer, Pending message);
  // The connection to the rank. Unavailable where there can be none.
  absl::StatusOr<Outgoing*> OutgoingTo(int rank);

  void Wait();
  size_t Strangers() const;
  void AcceptConnections();
  absl::Status Serve(int rank, Outgoing& link);
  absl::Status ReadAnswer(int rank, Outgoing& link);
  absl::Status WriteData(Outgoing& link);
  absl::Status Hear(Outgoing& link);
  absl::Status Serve(Incoming& link);
  absl::Status ReadHello(Incoming& link);
  absl::Status ReadProof(Incoming& link);
  void Believe(Incoming& link);
  absl::Status Hear(Incoming& link);

  // They lose what is under way on it; `why` is a sentence.
  void DropOutgoing(int rank, const std::string& why);
  void DropIncoming(Incoming& link, const std::string& why);
  void DropOldStrangers();

  // Ends it as Unavailable, once the group has had the time to find a cause.
  void Lose(const Pending& message, const std::string& why);
  void EndLost();
  void EndLate();
  void GiveUp(const Pending& message);
  void EndAll(const absl::Status& status);
  // By value: it may be the last that refers to the message.
  void End(Pending message, const absl::Status& status);

  Messages& owner_;
  const absl::Status no_memory_;
  MessageMatching matching_;
  std::vector<Pending> taken_;           // by TakeStarted(), until all are in pending_
  std::map<uint64_t, Pending> pending_;  // all, by id
  std::map<int, Outgoing> outgoing_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  struct Lost {
    Pending message;
    absl::Status why;
    Clock::time_point until;
  };
  std::vector<Lost> lost_;
  Clock::time_point next_look_;  // at the group's error
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_DRIVER_H_
