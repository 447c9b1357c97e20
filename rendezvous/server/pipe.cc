#include "rendezvous/server/pipe.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {
namespace {

// The kernel gives the socket a name that nobody has. Empty: it does not.
std::string NameByKernel(int fd) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, raw, sizeof(address.sun_family)) != 0) return "";
  socklen_t size = sizeof(address);
  constexpr size_t kHead = offsetof(sockaddr_un, sun_path) + 1;  // an abstract name begins with 0
  if (getsockname(fd, raw, &size) != 0 || size <= kHead) return "";
  return std::string(address.sun_path + 1, size - kHead);
}

// How much was read into `scratch`; 0: the other side has closed; nullopt: nothing now.
std::optional<size_t> Read(int fd, std::vector<char>& scratch) {
  const ssize_t size = recv(fd, scratch.data(), scratch.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return std::nullopt;
  return static_cast<size_t>(std::max<ssize_t>(size, 0));
}

// How much of `bytes` has gone out; nullopt: the connection is broken.
std::optional<size_t> Write(int fd, std::string_view bytes) {
  const ssize_t size = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (size >= 0) return static_cast<size_t>(size);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  return std::nullopt;
}

// Writes `bytes`; what does not go out is `rest` then. False: the connection is broken.
bool WriteOrKeep(int fd, std::string_view bytes, std::string& rest) {
  const std::optional<size_t> written = Write(fd, bytes);
  if (!written) return false;
  rest = std::string(bytes.substr(*written));
  return true;
}

}  // namespace

std::unique_ptr<Pipe> Pipe::Open(UniqueFd outer, ConnectionTable& connections, UniqueFd& for_grpc) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return nullptr;
  UniqueFd inner(ends[0]);
  for_grpc.Reset(ends[1]);
  // gRPC tells the name of the end that it does not have.
  const std::string name = NameByKernel(inner.get());
  auto connection = std::make_shared<ConnectionTable::Connection>();
  connection->peer = PeerAddress(outer.get());
  connection->local = LocalAddress(outer.get());
  if (name.empty() || connection->peer.size == 0) {
    errno = ECONNRESET;
    return nullptr;
  }
  return std::unique_ptr<Pipe>(new Pipe(std::move(outer), std::move(inner), "unix-abstract:" + name,
                                        connections, std::move(connection)));
}

Pipe::Pipe(UniqueFd outer, UniqueFd inner, std::string name, ConnectionTable& connections,
           std::shared_ptr<ConnectionTable::Connection> connection)
    : outer_(std::move(outer)),
      inner_(std::move(inner)),
      name_(std::move(name)),
      connections_(connections),
      connection_(std::move(connection)) {
  connections_.Add(name_, connection_);
}

Pipe::~Pipe() { connections_.Remove(name_); }

uint32_t Pipe::outer_events() const {
  const bool reads = inner_.is_open() && inward_.empty();
  return (reads ? EPOLLIN : 0U) | (outward_.empty() ? 0U : EPOLLOUT);
}

uint32_t Pipe::inner_events() const {
  return (outward_.empty() ? EPOLLIN : 0U) | (inward_.empty() ? 0U : EPOLLOUT);
}

void Pipe::CloseInner(std::vector<char>& scratch) {
  // As much as the socket holds, which is bounded.
  while (const std::optional<size_t> size = Read(inner_.get(), scratch)) {
    if (*size == 0) break;
    outward_.append(scratch.data(), *size);
  }
  inner_.Reset();
  inward_.clear();
}

bool Pipe::CarryIn(TimePoint now, std::vector<char>& scratch) {
  if (!inner_.is_open()) return true;
  std::string_view bytes = inward_;
  if (bytes.empty()) {
    const std::optional<size_t> size = Read(outer_.get(), scratch);
    if (!size) return true;
    bytes = std::string_view(scratch.data(), *size);
    if (bytes.empty() || !limits_.Takes(now, has_joined(), bytes)) return false;
  }
  // Where gRPC has closed its end, that is told as an event of its own.
  if (!WriteOrKeep(inner_.get(), bytes, inward_)) inward_.clear();
  return true;
}

bool Pipe::CarryOut(std::vector<char>& scratch) {
  std::string_view bytes = outward_;
  if (bytes.empty()) {
    if (!inner_.is_open()) return false;
    const std::optional<size_t> size = Read(inner_.get(), scratch);
    if (!size) return true;
    bytes = std::string_view(scratch.data(), *size);
  }
  const size_t all = bytes.size();
  if (!WriteOrKeep(outer_.get(), bytes, outward_)) return false;
  limits_.Sent(all - outward_.size());
  return inner_.is_open() || !outward_.empty();
}

}  // namespace ddprun::rendezvous
