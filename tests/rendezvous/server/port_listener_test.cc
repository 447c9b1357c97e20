#include "rendezvous/server/port_listener.h"

#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "rendezvous/server/hello.h"
#include "tests/rendezvous/server/sockets.h"

namespace ddprun::rendezvous {
namespace {

struct Served {
  explicit Served(Duration silence_limit) {
    auto socket = BindListeningSocket("", 0);
    REQUIRE(socket.ok());
    PortListener::Handlers handlers;
    handlers.on_store = [](UniqueFd fd) { SendAll(fd.get(), "store"); };
    handlers.on_http2 = [](UniqueFd fd) { SendAll(fd.get(), "http2"); };
    handlers.hello_reply = MakeHelloReply("run-1");
    handlers.silence_limit = silence_limit;
    auto started = PortListener::Start(*std::move(socket), std::move(handlers));
    REQUIRE(started.ok());
    listener = *std::move(started);
  }
  std::string Ask(const std::string& bytes) const {
    const UniqueFd fd = ConnectTo(listener->port());
    SendAll(fd.get(), bytes);
    return ReadToEnd(fd.get());
  }
  std::unique_ptr<PortListener> listener;
};

TEST_CASE("port listener: the first byte decides who serves a connection") {
  const Served served(std::chrono::seconds(30));
  CHECK(served.Ask(std::string("\0", 1)) == "store");
  CHECK(served.Ask("P") == "http2");
  CHECK(served.Ask(kHelloRequest) == "ddprun/1 run run-1\n");
  CHECK(served.Ask("\x16") == "");
  CHECK(served.Ask("GET / HTTP/1.1\r\n\r\n") == "");
  CHECK(served.Ask("SSH-2.0-x\r\n") == "");
}

TEST_CASE("port listener: a silent connection is closed") {
  const Served served(std::chrono::milliseconds(50));
  const UniqueFd fd = ConnectTo(served.listener->port());
  CHECK(ReadToEnd(fd.get()) == "");
}

TEST_CASE("port listener: more silent connections than there is room for do not shut others out") {
  const Served served(std::chrono::milliseconds(500));
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < PortListener::kMaxSilent + 20; ++i) {
    silent.push_back(ConnectTo(served.listener->port()));
  }
  CHECK(served.Ask("P") == "http2");
  for (const UniqueFd& fd : silent) CHECK(ReadToEnd(fd.get()) == "");
}

TEST_CASE("port listener: a port that is taken is named") {
  const Served served(std::chrono::seconds(30));
  const auto second = BindListeningSocket("", served.listener->port());
  CHECK(absl::IsAlreadyExists(second.status()));
  const std::string port = std::to_string(served.listener->port());
  CHECK(std::string(second.status().message()).find("port " + port) != std::string::npos);
  CHECK(BindListeningSocket("not-an-ip", 0).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ddprun::rendezvous
