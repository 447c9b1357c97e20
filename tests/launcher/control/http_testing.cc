#include "tests/launcher/control/http_testing.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <utility>

#include "launcher/control/control_socket.h"
#include "rendezvous/base/check.h"
#include "rendezvous/net/listening_socket.h"

namespace ddprun::launcher::testing {
namespace {

constexpr int kPatienceMs = 20'000;

}  // namespace

TestServer::TestServer(HttpServer::Handler handler)
    : work_(boost::asio::make_work_guard(io_)),
      server_(std::make_unique<HttpServer>(io_, std::move(handler))) {
  setenv("DDPRUN_CONTROL_DIR", dir_.File("control").c_str(), 1);
  absl::StatusOr<ControlSocket> socket = ListenForControl();
  DDP_CHECK(socket.ok());
  socket_path_ = socket->path;
  server_->Listen(std::move(socket->listening), true);
  absl::StatusOr<UniqueFd> tcp = rendezvous::ListenOn("127.0.0.1", 0);
  DDP_CHECK(tcp.ok());
  port_ = rendezvous::LocalPort(tcp->get());
  server_->Listen(*std::move(tcp), false, {"node1"});
  thread_ = std::thread([this] { io_.run(); });
}

TestServer::~TestServer() {
  Do([this](HttpServer&) { server_.reset(); });
  work_.reset();
  thread_.join();
}

void TestServer::Do(const std::function<void(HttpServer&)>& work) {
  std::promise<void> done;
  boost::asio::post(io_, [&] {
    work(*server_);
    done.set_value();
  });
  done.get_future().wait();
}

void TestServer::Publish(const std::string& event) {
  Do([&](HttpServer& server) {
    server.Publish("all", std::make_shared<const std::string>(event));
  });
}

bool TestServer::AwaitStreams(size_t count) {
  return Await([&] {
    size_t seen = 0;
    Do([&seen](HttpServer& server) { seen = server.stream_count("all"); });
    return seen == count;
  });
}

RawClient::RawClient(const std::string& socket_path) {
  absl::StatusOr<UniqueFd> fd =
      ConnectToControl(socket_path, std::chrono::milliseconds(kPatienceMs));
  DDP_CHECK(fd.ok());
  fd_ = *std::move(fd);
}

RawClient::RawClient(uint16_t port, uint8_t host)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  DDP_CHECK(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  DDP_CHECK(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

bool RawClient::Send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    pollfd polled{fd_.get(), POLLOUT, 0};
    if (poll(&polled, 1, kPatienceMs) <= 0) return false;
    const ssize_t now = send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (now > 0) sent += static_cast<size_t>(now);
  }
  return true;
}

bool RawClient::ReadMore() {
  pollfd polled{fd_.get(), POLLIN, 0};
  if (poll(&polled, 1, kPatienceMs) <= 0) return false;
  char bytes[65536];
  const ssize_t got = recv(fd_.get(), bytes, sizeof bytes, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  read_.append(bytes, static_cast<size_t>(got));
  return true;
}

std::string RawClient::ReadUntil(const std::string& part) {
  while (read_.find(part) == std::string::npos && ReadMore()) continue;
  return read_;
}

std::string RawClient::ReadAll() {
  while (ReadMore()) continue;
  return std::exchange(read_, "");
}

std::string RawClient::Take(const std::string& part) {
  ReadUntil(part);
  const size_t at = read_.find(part);
  if (at == std::string::npos) return "NOT FOUND IN: " + read_;
  std::string taken = read_.substr(0, at + part.size());
  read_.erase(0, at + part.size());
  return taken;
}

void RawClient::HalfClose() { shutdown(fd_.get(), SHUT_WR); }

bool Await(const std::function<bool()>& claim) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!claim()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ddprun::launcher::testing
