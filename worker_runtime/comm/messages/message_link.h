// One connection of messages: what flows on it, and its socket.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_LINK_H_
#define DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_LINK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"

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
class MessageSocket {
 public:
  explicit MessageSocket(ddprun::UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  void Queue(const void* bytes, size_t size) {
    queued_.append(static_cast<const char*>(bytes), size);
  }
  void Queue(const MessageFrame& frame) { Queue(&frame, sizeof frame); }
  bool HasQueued() const { return written_ < queued_.size(); }
  // Writes what is queued. False: the kernel takes no more now. Unavailable when it is broken.
  absl::StatusOr<bool> Flush();
  // The same for the caller's own `size` bytes, of which `*done` are written.
  absl::StatusOr<bool> Write(const char* data, size_t size, size_t* done);
  // Reads until `*done` is `size`. False: no more is there now. Unavailable when it is broken or
  // the other end has closed it.
  absl::StatusOr<bool> Read(char* data, size_t size, size_t* done);

 private:
  ddprun::UniqueFd fd_;
  std::string queued_;
  size_t written_ = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_LINK_H_
