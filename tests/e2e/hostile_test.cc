// Strangers at the ports of a running job: dropped, and the job does not notice.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include "rendezvous/base/unique_fd.h"
#include "tests/e2e/job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/contains.h"
#include "tests/support/descriptors.h"
#include "tests/support/loopback.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

// Whether the other side closes the connection; what it says before that is skipped.
bool IsDropped(const UniqueFd& fd, std::chrono::milliseconds patience = 20s) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  char skipped[4096];
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd poll_fd{fd.get(), POLLIN, 0};
    if (poll(&poll_fd, 1, 100) <= 0) continue;
    const ssize_t count = recv(fd.get(), skipped, sizeof skipped, 0);
    if (count == 0 || (count < 0 && errno != EINTR)) return true;
  }
  return false;
}

std::string Garbage(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

size_t ResidentKiB(int pid) {
  const std::string status = ReadFile("/proc/" + std::to_string(pid) + "/status");
  const size_t at = status.find("VmRSS:");
  return at == std::string::npos ? 0 : std::stoul(status.substr(at + 6));
}

void Disturb(uint16_t port) {
  std::vector<std::string> sayings = {
      "",
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2\r\n",
      // The first byte of TLS.
      "\x16\x03\x01" + Garbage(512, 99),
      // A store's greeting, then an oversized key.
      std::string("\x00\xce\xf7\x85\x3c\x03", 6) +
          std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + Garbage(100'000, 7),
      // HTTP/2's preface and nothing more.
      "PRI * HTTP/2.0\r\n",
  };
  for (uint32_t seed = 0; seed < 8; ++seed) sayings.push_back(Garbage(100'000, seed));
  std::vector<UniqueFd> connections;
  for (const std::string& saying : sayings) {
    connections.push_back(rendezvous::ConnectTo(port));
    rendezvous::SendAll(connections.back().get(), saying);
  }
  for (size_t i = 0; i < connections.size(); ++i) {
    CHECK_MESSAGE(IsDropped(connections[i]), "connection ", i, " to port ", port, " is kept");
  }
}

TEST_CASE("hostile: strangers at the rendezvous and store ports are dropped, the job goes on") {
  Job job;
  const std::vector<std::string> steps = {"env:MASTER_PORT@0", "touch:" + job.File("up{rank}"),
                                          "until:" + job.File("go")};
  auto a = job.Run(job.NodeOptions(1), steps);
  AwaitMissingNodes(*a);
  auto b = job.Run(job.NodeOptions(1), steps);
  REQUIRE(job.WaitForFile("up0"));
  REQUIRE(job.WaitForFile("up1"));
  REQUIRE_MESSAGE(a->WaitForOut("MASTER_PORT="), a->Describe());
  const int store_port = std::stoi(a->out().substr(a->out().find('=') + 1));

  const size_t before_kib = ResidentKiB(a->pid());
  Disturb(job.port());
  Disturb(store_port);
  CHECK_MESSAGE(ResidentKiB(a->pid()) < before_kib + 64 * 1024, "memory grew without bound");

  CHECK(a->err() != Contains("error"));
  job.Touch("go");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
}

// Connections to a port that say nothing. For each that is closed there is a new one at once.
class SilentCrowd {
 public:
  SilentCrowd(uint16_t port, size_t count)
      : address_(Loopback(port)), fds_(count), polled_(count), thread_([this] { Run(); }) {}
  ~SilentCrowd() {
    is_ending_ = true;
    thread_.join();
  }
  SilentCrowd(const SilentCrowd&) = delete;
  SilentCrowd& operator=(const SilentCrowd&) = delete;
  // How many were closed.
  size_t closed() const { return closed_; }

 private:
  void Run() {
    for (size_t i = 0; i < fds_.size(); ++i) Open(i);
    while (!is_ending_) {
      poll(polled_.data(), polled_.size(), 100);
      for (size_t i = 0; i < fds_.size() && !is_ending_; ++i) {
        if (polled_[i].revents == 0) continue;
        ++closed_;
        Open(i);
      }
    }
  }
  void Open(size_t i) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // Its end is a reset, which leaves no port behind that waits a minute.
    const linger reset{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    // One that finds nobody says so by poll, and is tried again.
    connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
    polled_[i] = {fd.get(), POLLRDHUP, 0};
    fds_[i] = std::move(fd);
  }

  const sockaddr_in address_;
  std::vector<UniqueFd> fds_;
  std::vector<pollfd> polled_;
  std::atomic<size_t> closed_{0};
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

TEST_CASE("hostile: thousands of silent connections that come again keep no node out of a job") {
  Job job;
  std::vector<std::string> more;
  SUBCASE("plain") {}
  SUBCASE("with a token") {
    more = {"--token-file=" + WriteFile(job.File("token"), std::string(32, 'b') + "\n", 0600)};
  }
  const std::vector<std::string> steps = {"touch:" + job.File("up{rank}"),
                                          "until:" + job.File("go")};
  auto a = job.Run(job.NodeOptions(1, "2", more), steps);
  AwaitMissingNodes(*a);
  constexpr size_t kSpare = 200;  // for the test itself
  const size_t count = std::min<size_t>(2000, AllowManyDescriptors() - kSpare);
  const SilentCrowd crowd(static_cast<uint16_t>(job.port()), count);
  // All have lost their places, most of them to others of the crowd.
  REQUIRE(Eventually([&] { return crowd.closed() > count; }));
  auto b = job.Run(job.NodeOptions(1, "2", more), steps);
  REQUIRE_MESSAGE(job.WaitForFile("up0"), a->Describe(), b->Describe());
  REQUIRE_MESSAGE(job.WaitForFile("up1"), a->Describe(), b->Describe());
  const size_t closed = crowd.closed();
  REQUIRE(Eventually([&] { return crowd.closed() > closed; }));  // they still come
  job.Touch("go");
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  const std::string said = a->err() + b->err();
  CHECK(said != Contains("error"));
}

}  // namespace
}  // namespace ddprun::testing
