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

bool MakeSocketPair(UniqueFd& one, UniqueFd& other) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  one.Reset(ends[0]);
  other.Reset(ends[1]);
  return true;
}

std::unique_ptr<Pipe> Pipe::Open(UniqueFd outer, std::unique_ptr<TlsStream> tls,
                                 ConnectionTable& connections, UniqueFd& for_grpc) {
  UniqueFd inner;
  if (!MakeSocketPair(inner, for_grpc)) return nullptr;
  // gRPC tells the name of the end that it does not have.
  const std::string name = NameByKernel(inner.get());
  auto connection = std::make_shared<ConnectionTable::Connection>();
  connection->peer = PeerAddress(outer.get());
  connection->local = LocalAddress(outer.get());
  if (name.empty() || connection->peer.size == 0) {
    errno = ECONNRESET;
    return nullptr;
  }
  auto pipe = std::make_unique<Pipe>(std::move(outer), std::move(inner), std::move(tls));
  pipe->grpc_.emplace(Grpc{"unix-abstract:" + name, &connections, connection, {}});
  connections.Add(pipe->grpc_->name, std::move(connection));
  return pipe;
}

Pipe::Pipe(UniqueFd outer, UniqueFd inner, std::unique_ptr<TlsStream> tls)
    : outer_(std::move(outer)), inner_(std::move(inner)), tls_(std::move(tls)) {
  if (tls_ != nullptr) outward_ = tls_->TakeOutgoing();  // a client speaks first
}

Pipe::~Pipe() {
  if (grpc_) grpc_->connections->Remove(grpc_->name);
}

uint32_t Pipe::outer_events() const {
  const bool reads = inner_.is_open() && inward_.empty();
  return (reads ? EPOLLIN : 0U) | (outward_.empty() ? 0U : EPOLLOUT);
}

uint32_t Pipe::inner_events() const {
  return (outward_.empty() && is_ready() ? EPOLLIN : 0U) | (inward_.empty() ? 0U : EPOLLOUT);
}

void Pipe::CloseInner(std::vector<char>& scratch) {
  // As much as the socket holds, which is bounded.
  while (const std::optional<size_t> size = Read(inner_.get(), scratch)) {
    if (*size == 0) break;
    if (is_ready()) outward_ += Encrypted(std::string_view(scratch.data(), *size));
  }
  inner_.Reset();
  inward_.clear();
}

bool Pipe::CarryFirst(TimePoint now, std::string plain) {
  return plain.empty() || PassIn(now, plain);
}

bool Pipe::PassIn(TimePoint now, std::string_view plain) {
  if (grpc_ && !grpc_->limits.Takes(now, has_joined(), plain)) return false;
  // Where the inner end is closed, that is told as an event of its own.
  if (!WriteOrKeep(inner_.get(), plain, inward_)) inward_.clear();
  return true;
}

bool Pipe::CarryIn(TimePoint now, std::vector<char>& scratch) {
  if (!inner_.is_open()) return true;
  if (!inward_.empty()) {
    const std::string kept = std::move(inward_);
    if (!WriteOrKeep(inner_.get(), kept, inward_)) inward_.clear();
    return true;
  }
  const std::optional<size_t> size = Read(outer_.get(), scratch);
  if (!size) return true;
  const std::string_view bytes(scratch.data(), *size);
  if (bytes.empty()) return false;
  if (tls_ == nullptr) return PassIn(now, bytes);
  std::string plain;
  const bool goes_on = tls_->Receive(bytes, plain);
  outward_ += tls_->TakeOutgoing();
  // What came before a reset is for the inner end, though nothing can be said any more.
  const bool is_passed = plain.empty() || PassIn(now, plain);
  return (outward_.empty() || FlushOut()) && is_passed && goes_on;
}

bool Pipe::FlushOut() {
  const std::string bytes = std::move(outward_);
  return WriteOrKeep(outer_.get(), bytes, outward_);
}

std::string Pipe::Encrypted(std::string_view plain) {
  if (tls_ == nullptr) return std::string(plain);
  tls_->Send(plain);
  return tls_->TakeOutgoing();
}

bool Pipe::CarryOut(std::vector<char>& scratch) {
  if (outward_.empty()) {
    if (!inner_.is_open()) return false;
    if (!is_ready()) return true;
    const std::optional<size_t> size = Read(inner_.get(), scratch);
    if (!size) return true;
    // gRPC's end is one of a pair of sockets, of which a hang-up is told as an event of its own.
    if (*size == 0) return grpc_.has_value();
    outward_ = Encrypted(std::string_view(scratch.data(), *size));
  }
  const size_t all = outward_.size();
  if (!FlushOut()) return false;
  if (grpc_) grpc_->limits.Sent(all - outward_.size());
  return inner_.is_open() || !outward_.empty();
}

}  // namespace ddprun::rendezvous
