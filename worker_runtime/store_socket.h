// A TCP connection for request and reply, every step under a deadline. Internal.
#ifndef DDPRUN_WORKER_RUNTIME_STORE_SOCKET_H_
#define DDPRUN_WORKER_RUNTIME_STORE_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddp::internal {

using Deadline = ddprun::TimePoint;

// Tries every address of `host` (IPv6 and IPv4), once each, until one accepts. DeadlineExceeded
// or Unavailable, naming the last cause.
absl::StatusOr<ddprun::UniqueFd> ConnectOnce(const std::string& host, uint16_t port,
                                             Deadline deadline, const ddprun::Clock& clock);

class StoreSocket {
 public:
  // `clock` outlives the socket.
  StoreSocket(ddprun::UniqueFd fd, const ddprun::Clock& clock)
      : fd_(std::move(fd)), clock_(clock) {}

  // Unavailable when the peer is gone, DeadlineExceeded when it does not take the bytes in time.
  absl::Status Send(std::string_view bytes, Deadline deadline);
  // Exactly `size` bytes. On DeadlineExceeded what has come is kept for the next call.
  absl::Status Receive(void* into, size_t size, Deadline deadline);
  // Appends exactly `size` bytes to `into`, which grows only as they arrive.
  absl::Status ReceiveInto(std::string* into, size_t size, Deadline deadline);

 private:
  absl::Status Fill(Deadline deadline);

  const ddprun::UniqueFd fd_;
  const ddprun::Clock& clock_;
  std::string buffer_;  // Received, from `taken_` on not yet handed out.
  size_t taken_ = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_STORE_SOCKET_H_
