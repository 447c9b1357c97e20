#include "worker_runtime/store_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/refused.h"

namespace ddp::internal {
namespace {

using ddprun::Clock;
using std::chrono::milliseconds;

// An address that swallows packets must not cost the others their turn. The kernel repeats a SYN
// after 1 and after 3 seconds.
constexpr milliseconds kPerAddress{5000};
constexpr size_t kReadSize = 64 << 10;

absl::Status Gone(const char* what, int error) {
  return absl::UnavailableError(absl::StrCat("store connection: ", what, ": ", RefusedText(error)));
}

// OK when `events` (or an error, which the next call reports) are there.
absl::Status Await(int fd, short events, Deadline deadline, const Clock& clock) {
  while (true) {
    pollfd poll_fd{.fd = fd, .events = events, .revents = 0};
    const auto left = std::chrono::ceil<milliseconds>(clock.Left(deadline));
    const int ready = poll(&poll_fd, 1, static_cast<int>(left.count()));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Gone("poll", errno);
    if (ready == 0 && clock.Now() >= deadline) {
      return absl::DeadlineExceededError("store connection: timed out");
    }
  }
}

struct AddressList {
  int error = 0;
  int system_error = 0;
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list{nullptr, freeaddrinfo};
};

AddressList ResolveNow(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  AddressList result;
  addrinfo* list = nullptr;
  result.error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &list);
  result.system_error = errno;
  if (result.error == 0) result.list.reset(list);
  return result;
}

// getaddrinfo has no timeout and may take a minute of name servers that do not answer. The thread
// is left behind then; it shares the state and ends by itself.
absl::StatusOr<AddressList> Resolve(const std::string& host, uint16_t port, Deadline deadline,
                                    const Clock& clock) {
  AddressList numeric = ResolveNow(host, port, AI_NUMERICHOST);
  if (numeric.error == 0) return numeric;
  struct Shared {
    std::mutex mutex;
    std::condition_variable is_done_changed;
    bool is_done = false;
    AddressList result;
  };
  const auto shared = std::make_shared<Shared>();
  try {
    std::thread([shared, host, port] {
      AddressList result = ResolveNow(host, port, 0);
      const std::lock_guard lock(shared->mutex);
      shared->result = std::move(result);
      shared->is_done = true;
      shared->is_done_changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    // It passes, as where a neighbour has the threads.
    return absl::UnavailableError(NoThread(absl::StrCat("resolve ", host)).message());
  }
  std::unique_lock lock(shared->mutex);
  while (!shared->is_done) {
    if (clock.Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("resolve ", host, ": no answer in time"));
    }
    shared->is_done_changed.wait_for(lock, clock.Left(deadline));
  }
  const AddressList& result = shared->result;
  if (result.error != 0) {
    return absl::UnavailableError(absl::StrCat("resolve ", host, ": ",
                                               result.error == EAI_SYSTEM
                                                   ? std::strerror(result.system_error)
                                                   : gai_strerror(result.error)));
  }
  return std::move(shared->result);
}

absl::StatusOr<ddprun::UniqueFd> ConnectTo(const addrinfo& address, Deadline deadline,
                                           const Clock& clock) {
  ddprun::UniqueFd fd(
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd.is_open()) {
    // The machine's shortages pass.
    return errno == EMFILE ? Refused("store connection: socket", errno) : Gone("socket", errno);
  }
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    // EINTR: the attempt goes on in the background, as with EINPROGRESS.
    if (errno != EINPROGRESS && errno != EINTR) return Gone("connect", errno);
    if (auto status = Await(fd.get(), POLLOUT, deadline, clock); !status.ok()) return status;
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return Gone("connect", error);
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

}  // namespace

absl::StatusOr<ddprun::UniqueFd> ConnectOnce(const std::string& host, uint16_t port,
                                             Deadline deadline, const Clock& clock) {
  auto addresses = Resolve(host, port, deadline, clock);
  if (!addresses.ok()) return addresses.status();
  absl::Status last = absl::UnavailableError(absl::StrCat("resolve ", host, ": no address"));
  for (const addrinfo* address = addresses->list.get(); address != nullptr;
       address = address->ai_next) {
    auto fd = ConnectTo(*address, std::min(deadline, clock.Now() + kPerAddress), clock);
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return last;
}

absl::Status StoreSocket::Send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      if (auto status = Await(fd_.get(), POLLOUT, deadline, clock_); !status.ok()) return status;
    } else if (errno != EINTR) {
      return Gone("send", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status StoreSocket::Fill(Deadline deadline) {
  if (taken_ == buffer_.size()) {
    buffer_.clear();
    taken_ = 0;
  }
  char chunk[kReadSize];
  while (true) {
    const ssize_t count = recv(fd_.get(), chunk, sizeof(chunk), 0);
    if (count > 0) {
      buffer_.append(chunk, static_cast<size_t>(count));
      return absl::OkStatus();
    }
    if (count == 0) return absl::UnavailableError("store connection: closed by the store");
    if (errno == EAGAIN) {
      if (auto status = Await(fd_.get(), POLLIN, deadline, clock_); !status.ok()) return status;
    } else if (errno != EINTR) {
      return Gone("receive", errno);
    }
  }
}

absl::Status StoreSocket::Receive(void* into, size_t size, Deadline deadline) {
  while (buffer_.size() - taken_ < size) {
    if (absl::Status status = Fill(deadline); !status.ok()) return status;
  }
  std::memcpy(into, buffer_.data() + taken_, size);
  taken_ += size;
  return absl::OkStatus();
}

absl::Status StoreSocket::ReceiveInto(std::string* into, size_t size, Deadline deadline) {
  while (size > 0) {
    if (taken_ == buffer_.size()) {
      if (absl::Status status = Fill(deadline); !status.ok()) return status;
    }
    const size_t step = std::min(size, buffer_.size() - taken_);
    into->append(buffer_, taken_, step);
    taken_ += step;
    size -= step;
  }
  return absl::OkStatus();
}

}  // namespace ddp::internal
