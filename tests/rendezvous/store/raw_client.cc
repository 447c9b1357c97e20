#include "tests/rendezvous/store/raw_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/loopback.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kDeadlineMs = 30'000;

// True when something can be read (or the connection is gone) before the deadline.
bool AwaitInput(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poll_fd, 1, kDeadlineMs) > 0;
}

}  // namespace

RawClient::RawClient(uint16_t port, bool is_ipv6)
    : fd_(socket(is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  REQUIRE_MESSAGE(fd_.is_open(), std::strerror(errno));
  const sockaddr_in v4 = testing::Loopback(port);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_loopback;
  const int result = is_ipv6
                         ? connect(fd_.get(), reinterpret_cast<sockaddr*>(&v6), sizeof(v6))
                         : connect(fd_.get(), reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  REQUIRE_MESSAGE(result == 0, std::strerror(errno));
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

RawClient RawClient::Greeted(const StoreServer& server) {
  RawClient client(server.port());
  // As PyTorch's and ours do, who wait for an answer: by then the server has accepted it.
  std::string ping;
  AppendRequest({StoreOp::kPing, 0x01020304, 0, {}}, &ping);
  client.Expect(Greeting() + ping, "\x04\x03\x02\x01");
  return client;
}

void RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0) return;  // Closed by the server: what the caller expects next will tell.
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

size_t RawClient::SendSome(std::string_view bytes) {
  const ssize_t count = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return count < 0 ? 0 : static_cast<size_t>(count);
}

std::string RawClient::Receive(size_t size) {
  std::string received;
  std::string chunk(64 << 10, '\0');
  while (received.size() < size && AwaitInput(fd_.get())) {
    const ssize_t count =
        recv(fd_.get(), chunk.data(), std::min(chunk.size(), size - received.size()), 0);
    if (count <= 0) break;
    received.append(chunk, 0, static_cast<size_t>(count));
  }
  return received;
}

void RawClient::Expect(std::string_view request, std::string_view reply) {
  Send(request);
  CHECK(Receive(reply.size()) == reply);
}

bool RawClient::IsClosed() {
  char byte;
  if (!AwaitInput(fd_.get())) return false;
  return recv(fd_.get(), &byte, 1, 0) <= 0;
}

void RawClient::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  fd_.Reset();
}

std::string Request(StoreOp op, const std::vector<std::string_view>& fields, int64_t number) {
  std::string bytes;
  AppendRequest({op, 0, number, fields}, &bytes);
  return bytes;
}

std::string Greeting() {
  std::string bytes;
  AppendRequest({StoreOp::kValidate, kStoreMagic, 0, {}}, &bytes);
  return bytes;
}

std::string Number(int64_t value) {
  std::string bytes;
  AppendI64(value, &bytes);
  return bytes;
}

std::string Bytes(std::string_view value) {
  std::string bytes;
  AppendBytes(value, &bytes);
  return bytes;
}

std::string Byte(char value) { return std::string(1, value); }

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

bool AllowOpenFiles(uint64_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= count) return true;
  if (limit.rlim_max < count) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace ddprun::rendezvous
