#include "launcher/control/control_client.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "launcher/control/control_socket.h"
#include "tests/launcher/control/http_testing.h"
#include "tests/launcher/control/short_dir.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::RawClient;
using testing::TestServer;

// Something behind a control socket that is no server of ours: what it does with its one caller.
class OddServer {
 public:
  explicit OddServer(std::function<void(int fd)> talk) {
    setenv("DDPRUN_CONTROL_DIR", dir_.File("control").c_str(), 1);
    absl::StatusOr<ControlSocket> made = ListenForControl();
    REQUIRE(made.ok());
    path_ = made->path;
    thread_ = std::thread([listening = std::move(made->listening), talk = std::move(talk)] {
      pollfd polled{listening.get(), POLLIN, 0};
      if (poll(&polled, 1, 20'000) <= 0) return;
      const UniqueFd fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
      talk(fd.get());
    });
  }
  ~OddServer() { thread_.join(); }
  const std::string& path() const { return path_; }

 private:
  testing::ShortDir dir_;
  std::string path_;
  std::thread thread_;
};

// Takes the request's first bytes.
void Hear(int fd) {
  char bytes[4096];
  static_cast<void>(recv(fd, bytes, sizeof bytes, 0));
}

// False: the reader is gone.
bool Say(int fd, const std::string& bytes) {
  size_t said = 0;
  while (said < bytes.size()) {
    const ssize_t now = send(fd, bytes.data() + said, bytes.size() - said, MSG_NOSIGNAL);
    if (now <= 0) return false;
    said += static_cast<size_t>(now);
  }
  return true;
}

absl::StatusOr<ControlReply> AskOdd(std::function<void(int fd)> talk,
                                    Duration timeout = seconds(20)) {
  const OddServer server(std::move(talk));
  return AskControl(server.path(), "GET", "/status.json", timeout);
}

TEST_CASE("control client: asks, and gets what the agent says, refusals too") {
  TestServer server([](const HttpRequest& request, const HttpServer::Answer& answer) {
    if (request.path == "/none") return answer({.status = 404, .body = "no\n"});
    if (request.path == "/big") return answer({.body = std::string(9 << 20, 'x')});
    answer({.body = request.method + " " + request.path + " " + request.query.at("x")});
  });
  const auto ask = [&](const std::string& method, const std::string& target) {
    const absl::StatusOr<ControlReply> reply =
        AskControl(server.socket_path(), method, target, seconds(20));
    REQUIRE(reply.ok());
    return *reply;
  };
  CHECK(ask("GET", "/a?x=" + QueryValue("b c&d=e/ü")).body == "GET /a b c&d=e/ü");
  CHECK(ask("POST", "/stop?x=1").body == "POST /stop 1");
  CHECK(ask("GET", "/none").status == 404);
  CHECK(ask("GET", "/none").body == "no\n");
  CHECK(ask("GET", "/big").body.size() == size_t{9} << 20);
}

TEST_CASE("control client: a value in a query has no character that means something there") {
  CHECK(QueryValue("aZ09-_.") == "aZ09-_.");
  CHECK(QueryValue("a b&c=d%\n\xff") == "a%20b%26c%3dd%25%0a%ff");
}

TEST_CASE("control client: nobody there, and nobody who answers, are said in time") {
  const absl::Status none = AskControl("/nowhere/1.sock", "GET", "/", seconds(1)).status();
  CHECK(none.message() == Contains("connect to /nowhere/1.sock"));
  TestServer silent([](const HttpRequest&, const HttpServer::Answer&) {});
  // lower bound: it never answers
  const absl::Status late = AskControl(silent.socket_path(), "GET", "/", milliseconds(50)).status();
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(late.message() == "no answer from the ddprun behind " + silent.socket_path() +
                              " in time; it is process " + std::to_string(getpid()));
}

TEST_CASE("control client: an answer that ends too early, or is none, is an error") {
  const absl::Status nothing = AskOdd(Hear).status();
  CHECK(absl::IsUnavailable(nothing));
  CHECK(nothing.message() == Contains(" has not taken the question: it has ended, or too many "));
  // With the question unread the connection is reset, which is no answer's middle either.
  const absl::Status unread = AskOdd([](int fd) {
                                pollfd asked{fd, POLLIN, 0};
                                poll(&asked, 1, 20'000);
                              }).status();
  CHECK(absl::IsUnavailable(unread));
  CHECK(unread.message() == Contains(" has not taken the question: it has ended, or too many "));
  const absl::Status half = AskOdd([](int fd) {
                              Hear(fd);
                              Say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
                            }).status();
  CHECK(absl::IsUnavailable(half));
  CHECK(half.message() == Contains("has ended in the middle of its answer"));
  const absl::Status odd = AskOdd([](int fd) {
                             Hear(fd);
                             Say(fd, "SSH-2.0-OpenSSH_9.2\r\n");
                           }).status();
  CHECK(absl::IsDataLoss(odd));
  CHECK(odd.message() == Contains(" is no ddprun: "));
  const absl::Status zeros = AskOdd([](int fd) {
                               Hear(fd);
                               Say(fd, std::string(100'000, '\0'));
                             }).status();
  CHECK(absl::IsDataLoss(zeros));
}

TEST_CASE("control client: an answer without a length ends with the connection; in chunks, too") {
  const absl::StatusOr<ControlReply> plain = AskOdd([](int fd) {
    Hear(fd);
    Say(fd, "HTTP/1.1 200 OK\r\n\r\nall of it");
  });
  REQUIRE(plain.ok());
  CHECK(plain->body == "all of it");
  const absl::StatusOr<ControlReply> chunks = AskOdd([](int fd) {
    Hear(fd);
    Say(fd, "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    Say(fd, "2\r\nde\r\n0\r\n\r\n");
  });
  REQUIRE(chunks.ok());
  CHECK(chunks->status == 503);
  CHECK(chunks->body == "abcde");
}

TEST_CASE("control client: no more than 64 MiB are taken") {
  const absl::Status said = AskOdd([](int fd) {
                              Hear(fd);
                              Say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 70000000\r\n\r\n");
                            }).status();
  CHECK(absl::IsDataLoss(said));
  const absl::Status endless = AskOdd([](int fd) {
                                 Hear(fd);
                                 Say(fd, "HTTP/1.1 200 OK\r\n\r\n");
                                 const std::string more(1 << 20, 'x');
                                 while (Say(fd, more)) continue;
                               }).status();
  CHECK(absl::IsDataLoss(endless));
  const absl::Status headers = AskOdd([](int fd) {
                                 Hear(fd);
                                 Say(fd, "HTTP/1.1 200 OK\r\n");
                                 while (Say(fd, "X: y\r\n")) continue;
                               }).status();
  CHECK(absl::IsDataLoss(headers));
}

TEST_CASE("control client: an answer that trickles in ends with the deadline") {
  const absl::Status late = AskOdd(
                                [](int fd) {
                                  Hear(fd);
                                  Say(fd, "HTTP/1.1 200 OK\r\n\r\n");
                                  // Until the client has closed its end.
                                  char byte = 0;
                                  static_cast<void>(recv(fd, &byte, 1, 0));
                                },
                                seconds(1))
                                .status();
  CHECK(absl::IsDeadlineExceeded(late));
}

}  // namespace
}  // namespace ddprun::launcher
