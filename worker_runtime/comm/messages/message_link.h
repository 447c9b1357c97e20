// One connection of messages: what flows on it, and its socket.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_LINK_H_
#define DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_LINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/tcp/sealed_records.h"

namespace ddp::internal {

// A message needs three: the sender offers it, the receiver accepts or refuses it, the sender sends
// its data, which follow the frame. So nobody holds bytes that no receive has asked for.
struct MessageFrame {
  enum Kind : uint32_t { kOffer = 1, kAccept, kRefuse, kData, kWithdraw };
  uint32_t kind = 0;
  uint32_t unused = 0;
  uint64_t id = 0;     // the sender's number of the message
  uint64_t tag = 0;    // of kOffer
  uint64_t bytes = 0;  // of kOffer and kData; kRefuse: what the receive has room for
};
static_assert(sizeof(MessageFrame) == 32);

// A non-blocking socket, what waits to be written to it, and what has come of the next piece.
//
// One that is to be sealed starts in the clear: Greet() says the words with which both ends prove
// themselves, and what is queued waits until Seal().
class MessageSocket {
 public:
  MessageSocket(ddprun::UniqueFd fd, bool is_to_be_sealed)
      : fd_(std::move(fd)), is_greeting_(is_to_be_sealed) {}

  int fd() const { return fd_.get(); }
  void Greet(const void* bytes, size_t size) {
    greeting_.append(static_cast<const char*>(bytes), size);
  }
  // All that is written and read from now on; the greeting that is not yet written goes before.
  void Seal(std::unique_ptr<SealedChannel> channel) {
    sealed_ = std::move(channel);
    is_greeting_ = false;
  }
  void Queue(const void* bytes, size_t size) {
    queued_.append(static_cast<const char*>(bytes), size);
  }
  void Queue(const MessageFrame& frame) { Queue(&frame, sizeof frame); }
  bool HasQueued() const {
    return greeted_ < greeting_.size() || (!is_greeting_ && written_ < queued_.size()) ||
           (sealed_ != nullptr && sealed_->out.HasPending());
  }
  // Writes what is queued. False: the kernel takes no more now. Unavailable when it is broken.
  absl::StatusOr<bool> Flush();
  // The same for the caller's own `size` bytes, of which `*done` are written, sealed ones before
  // they have gone.
  absl::StatusOr<bool> Write(const char* data, size_t size, size_t* done);
  // Reads until `*done` is `size`. False: no more is there now. Unavailable when it is broken or
  // the other end has closed it.
  absl::StatusOr<bool> Read(char* data, size_t size, size_t* done);

 private:
  absl::StatusOr<bool> WritePlain(const char* data, size_t size, size_t* done);
  absl::StatusOr<bool> WriteSealed(const char* data, size_t size, size_t* done);
  // Nothing: no more is there now.
  absl::StatusOr<std::optional<size_t>> ReadSome(char* data, size_t size);

  ddprun::UniqueFd fd_;
  bool is_greeting_;
  std::unique_ptr<SealedChannel> sealed_;
  std::string greeting_;
  size_t greeted_ = 0;
  std::string queued_;
  size_t written_ = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_LINK_H_
