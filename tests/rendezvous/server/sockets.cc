#include "tests/rendezvous/server/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "rendezvous/base/check.h"
#include "tests/support/loopback.h"

namespace ddprun::rendezvous {
namespace {

using testing::Loopback;

// Port 0: one that the system chooses.
UniqueFd Bind(uint16_t& port, in_addr_t ip = INADDR_LOOPBACK) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = Loopback(port);
  address.sin_addr.s_addr = htonl(ip);
  DDP_CHECK(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  socklen_t size = sizeof(address);
  DDP_CHECK(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port = ntohs(address.sin_port);
  return fd;
}

bool WaitReadable(int fd, int timeout_ms) {
  pollfd waiting{fd, POLLIN, 0};
  return poll(&waiting, 1, timeout_ms) == 1;
}

}  // namespace

// At every address, as a coordinator listens: a port that is free at 127.0.0.1 alone may be a
// connection's of another address of this machine.
ReservedPort::ReservedPort() : fd_(Bind(port_, INADDR_ANY)) {}

UniqueFd TryConnectTo(uint16_t port, const char* ip) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(port);
  DDP_CHECK(inet_pton(AF_INET, ip, &address.sin_addr) == 1);
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  if (connect(fd.get(), raw, sizeof(address)) != 0) fd.Reset();
  return fd;
}

UniqueFd ConnectTo(uint16_t port) {
  UniqueFd fd = TryConnectTo(port);
  DDP_CHECK(fd.is_open());
  return fd;
}

void SendAll(int fd, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t size = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (size <= 0) return;  // the other side is free to have enough
    sent += static_cast<size_t>(size);
  }
}

std::string ReadToEnd(int fd) {
  std::string all;
  std::array<char, 4096> bytes;
  while (WaitReadable(fd, 30'000)) {
    const ssize_t size = recv(fd, bytes.data(), bytes.size(), 0);
    if (size <= 0) return all;
    all.append(bytes.data(), static_cast<size_t>(size));
  }
  return all + "(still open)";
}

ForeignServer::ForeignServer(const std::string& answer, bool accepts, uint16_t port)
    : port_(port), listener_(Bind(port_)) {
  DDP_CHECK(listen(listener_.get(), 64) == 0);
  if (!accepts) return;
  thread_ = std::thread([this, answer] {
    while (!is_stopping_) {
      const UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.is_open()) return;
      std::array<char, 256> ignored;
      if (!WaitReadable(fd.get(), 1000)) continue;
      [[maybe_unused]] const ssize_t size = recv(fd.get(), ignored.data(), ignored.size(), 0);
      SendAll(fd.get(), answer);
    }
  });
}

ForeignServer::~ForeignServer() {
  is_stopping_ = true;
  shutdown(listener_.get(), SHUT_RDWR);  // ends accept
  if (thread_.joinable()) thread_.join();
}

Proxy::Proxy(uint16_t target) : target_(target), listener_(Bind(port_)) {
  DDP_CHECK(listen(listener_.get(), 64) == 0);
  thread_ = std::thread([this] { Run(); });
}

Proxy::~Proxy() {
  is_stopping_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  Release();
  thread_.join();
  Cut();
  for (std::thread& forwarder : forwarders_) forwarder.join();
}

void Proxy::Cut() {
  const std::lock_guard lock(mutex_);
  CutLocked();
}

void Proxy::CutLocked() {
  for (const UniqueFd& fd : fds_) shutdown(fd.get(), SHUT_RDWR);
}

void Proxy::Hold() {
  const std::lock_guard lock(mutex_);
  is_held_ = true;
  CutLocked();
}

void Proxy::Stall() {
  const std::lock_guard lock(mutex_);
  is_stalled_ = true;
}

bool Proxy::HasWaiting() {
  const std::lock_guard lock(mutex_);
  return has_waiting_;
}

void Proxy::Release() {
  {
    const std::lock_guard lock(mutex_);
    is_held_ = is_stalled_ = false;
  }
  released_.notify_all();
}

void Proxy::Run() {
  while (!is_stopping_) {
    UniqueFd inner(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!inner.is_open()) return;
    std::unique_lock lock(mutex_);
    has_waiting_ = is_held_;
    released_.wait(lock, [this] { return !is_held_; });
    has_waiting_ = false;
    UniqueFd outer = TryConnectTo(target_);
    if (!outer.is_open()) continue;  // the target is gone: closes, as it would
    const int a = inner.get();
    const int b = outer.get();
    fds_.push_back(std::move(inner));
    fds_.push_back(std::move(outer));
    forwarders_.emplace_back([this, a, b] { Forward(a, b); });
    forwarders_.emplace_back([this, a, b] { Forward(b, a); });
  }
}

void Proxy::Forward(int from, int to) {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t size = recv(from, bytes.data(), bytes.size(), 0);
    if (size <= 0) break;
    {
      std::unique_lock lock(mutex_);
      released_.wait(lock, [this] { return !is_stalled_; });
    }
    SendAll(to, std::string(bytes.data(), static_cast<size_t>(size)));
  }
  shutdown(to, SHUT_WR);
}

}  // namespace ddprun::rendezvous
