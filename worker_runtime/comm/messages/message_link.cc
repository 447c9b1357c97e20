#include "worker_runtime/comm/messages/message_link.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace ddp::internal {
namespace {

bool IsPassing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

absl::StatusOr<bool> MessageSocket::Flush() {
  const absl::StatusOr<bool> is_written = Write(queued_.data(), queued_.size(), &written_);
  if (is_written.ok() && *is_written) {
    queued_.clear();
    written_ = 0;
  }
  return is_written;
}

absl::StatusOr<bool> MessageSocket::Write(const char* data, size_t size, size_t* done) {
  while (*done < size) {
    const ssize_t sent = send(fd_.get(), data + *done, size - *done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && IsPassing(errno)) return false;
    if (sent < 0) return absl::UnavailableError(std::strerror(errno));
    *done += static_cast<size_t>(sent);
  }
  return true;
}

absl::StatusOr<bool> MessageSocket::Read(char* data, size_t size, size_t* done) {
  while (*done < size) {
    const ssize_t received = recv(fd_.get(), data + *done, size - *done, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && IsPassing(errno)) return false;
    if (received < 0) return absl::UnavailableError(std::strerror(errno));
    if (received == 0) return absl::UnavailableError("it has closed the connection");
    *done += static_cast<size_t>(received);
  }
  return true;
}

}  // namespace ddp::internal
