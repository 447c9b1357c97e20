#include "rendezvous/etcd/member_probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/connect_error.h"

namespace ddprun::rendezvous {
namespace {

// The client's preface (RFC 9113, 3.4): the fixed text and an empty SETTINGS frame.
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33);

constexpr size_t kFrameHeaderBytes = 9;
constexpr char kSettings = 4;

// A frame's header is its length in three bytes, its type, flags, and the stream, here none.
bool IsSettings(std::string_view header) {
  return header.size() == kFrameHeaderBytes && header[3] == kSettings &&
         header.substr(5) == std::string_view("\0\0\0\0", 4);
}

absl::Status Unanswered(int error) { return absl::UnavailableError(ConnectErrorText(error)); }

absl::Status WaitFor(int fd, short events, TimePoint by, const Interrupt& cancelled) {
  switch (cancelled.WaitForFd(fd, events, by)) {
    case Interrupt::Ready::kFd:
      return absl::OkStatus();
    case Interrupt::Ready::kTimeout:
      return absl::DeadlineExceededError("no answer in time");
    case Interrupt::Ready::kInterrupted:
      break;
  }
  return absl::CancelledError("not wanted any more");
}

}  // namespace

absl::StatusOr<bool> ProbeMember(const SocketAddress& address, TimePoint by,
                                 const Interrupt& cancelled) {
  const UniqueFd fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return Unanswered(errno);
  if (connect(fd.get(), address.get(), address.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return Unanswered(errno);
    if (absl::Status ready = WaitFor(fd.get(), POLLOUT, by, cancelled); !ready.ok()) return ready;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return Unanswered(error);
  if (send(fd.get(), kPreface.data(), kPreface.size(), MSG_NOSIGNAL) < 0) return Unanswered(errno);
  if (absl::Status ready = WaitFor(fd.get(), POLLIN, by, cancelled); !ready.ok()) return ready;
  char first[kFrameHeaderBytes] = {};
  const ssize_t received = recv(fd.get(), first, sizeof first, 0);
  if (received < 0) return Unanswered(errno);
  if (received == 0) {
    return absl::UnavailableError(
        "it closed the connection without a word, as one does that expects TLS (--rdzv-conf "
        "protocol=https)");
  }
  return IsSettings({first, static_cast<size_t>(received)});
}

}  // namespace ddprun::rendezvous
