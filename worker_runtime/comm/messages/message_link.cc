#include "worker_runtime/comm/messages/message_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

namespace ddp::internal {
namespace {

bool IsPassing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

absl::StatusOr<bool> MessageSocket::Flush() {
  const absl::StatusOr<bool> is_greeted = WritePlain(greeting_.data(), greeting_.size(), &greeted_);
  if (!is_greeted.ok() || !*is_greeted || is_greeting_) return is_greeted;
  const absl::StatusOr<bool> is_written = Write(queued_.data(), queued_.size(), &written_);
  if (is_written.ok() && *is_written) {
    queued_.clear();
    written_ = 0;
  }
  return is_written;
}

absl::StatusOr<bool> MessageSocket::Write(const char* data, size_t size, size_t* done) {
  return sealed_ == nullptr ? WritePlain(data, size, done) : WriteSealed(data, size, done);
}

absl::StatusOr<bool> MessageSocket::WritePlain(const char* data, size_t size, size_t* done) {
  while (*done < size) {
    const ssize_t sent = send(fd_.get(), data + *done, size - *done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && IsPassing(errno)) return false;
    if (sent < 0) return absl::UnavailableError(std::strerror(errno));
    *done += static_cast<size_t>(sent);
  }
  return true;
}

absl::StatusOr<bool> MessageSocket::WriteSealed(const char* data, size_t size, size_t* done) {
  RecordSealer& out = sealed_->out;
  for (;;) {
    while (out.HasPending()) {
      const std::string_view pending = out.Pending();
      size_t sent = 0;
      const absl::StatusOr<bool> is_sent = WritePlain(pending.data(), pending.size(), &sent);
      out.Sent(sent);
      if (!is_sent.ok() || !*is_sent) return is_sent;
    }
    if (*done == size) return true;
    const size_t bytes = std::min(size - *done, RecordSealer::kMostBytes);
    out.Seal({data + *done, bytes}, "");
    *done += bytes;
  }
}

absl::StatusOr<std::optional<size_t>> MessageSocket::ReadSome(char* data, size_t size) {
  for (;;) {
    const ssize_t received = recv(fd_.get(), data, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && IsPassing(errno)) return std::nullopt;
    if (received < 0) return absl::UnavailableError(std::strerror(errno));
    if (received == 0) return absl::UnavailableError("it has closed the connection");
    return static_cast<size_t>(received);
  }
}

absl::StatusOr<bool> MessageSocket::Read(char* data, size_t size, size_t* done) {
  while (*done < size) {
    if (sealed_ != nullptr) {
      const std::optional<size_t> opened = sealed_->in.Read(data + *done, size - *done);
      if (!opened) {
        return absl::DataLossError(
            "what came from it is not what it has sealed: its connection was tampered with on the "
            "way");
      }
      *done += *opened;
      if (*opened > 0) continue;
    }
    const std::span<char> room =
        sealed_ != nullptr ? sealed_->in.Room() : std::span<char>(data + *done, size - *done);
    const absl::StatusOr<std::optional<size_t>> received = ReadSome(room.data(), room.size());
    if (!received.ok()) return received.status();
    if (!*received) return false;
    if (sealed_ != nullptr) {
      sealed_->in.Received(**received);
    } else {
      *done += **received;
    }
  }
  return true;
}

}  // namespace ddp::internal
