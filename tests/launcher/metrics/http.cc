#include "tests/launcher/metrics/http.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <cctype>
#include <cstdio>
#include <utility>

#include "rendezvous/base/check.h"
#include "tests/support/loopback.h"

namespace ddprun::testing {
namespace {

// Neither side of a test waits for the other for ever.
void LimitWaits(int fd) {
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  DDP_CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  DDP_CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
}

bool SendAll(int fd, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

// Up to `end`, or to the end of the stream where it is empty. False: the stream broke before.
bool ReceiveUntil(int fd, const std::string& end, std::string& text) {
  char chunk[16384];
  while (end.empty() || text.find(end) == std::string::npos) {
    const ssize_t count = recv(fd, chunk, sizeof chunk, 0);
    if (count == 0) return end.empty();
    if (count < 0) return false;
    text.append(chunk, static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

std::optional<std::string> HttpGet(uint16_t port, const std::string& target) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  DDP_CHECK(fd.is_open());
  LimitWaits(fd.get());
  const sockaddr_in to = Loopback(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return {};
  // 1.0: the answer is not in chunks and ends with the connection.
  if (!SendAll(fd.get(), "GET " + target + " HTTP/1.0\r\nHost: localhost\r\n\r\n")) return {};
  std::string answer;
  if (!ReceiveUntil(fd.get(), "", answer)) return {};
  const size_t header_end = answer.find("\r\n\r\n");
  if (header_end == std::string::npos) return {};
  return answer.substr(header_end + 4);
}

std::string UrlEncoded(const std::string& text) {
  std::string encoded;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", byte);
    encoded += std::isalnum(byte) != 0 ? std::string(1, letter) : std::string(code);
  }
  return encoded;
}

PageServer::PageServer(std::function<Page(const std::string&)> render)
    : render_(std::move(render)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in at = Loopback(0);
  socklen_t size = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  DDP_CHECK(bind(listener_.get(), address, size) == 0 && listen(listener_.get(), 16) == 0);
  DDP_CHECK(getsockname(listener_.get(), address, &size) == 0);
  port_ = ntohs(at.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

PageServer::~PageServer() {
  shutdown(listener_.get(), SHUT_RDWR);  // accept returns
  thread_.join();
}

std::string PageServer::Url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + path;
}

void PageServer::Serve() {
  while (true) {
    const UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.is_open()) return;
    LimitWaits(fd.get());
    std::string request;
    if (!ReceiveUntil(fd.get(), "\r\n\r\n", request)) continue;
    const Page page = render_(request);
    SendAll(fd.get(), "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + page.content_type +
                          "\r\nContent-Length: " + std::to_string(page.body.size()) + "\r\n\r\n" +
                          page.body);
    ++requests_;
  }
}

}  // namespace ddprun::testing
