#include "rendezvous/server/port_listener.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/server/hello.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/scarce_descriptors.h"

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

TEST_CASE("port listener: a silent connection is closed when its time is over, not before") {
  const Served patient(std::chrono::hours(1));
  const UniqueFd kept = ConnectTo(patient.listener->port());
  const Served served(std::chrono::milliseconds(50));
  // One after the other: `kept` has been silent for twice the time by then, whatever the time is.
  for (int i = 0; i < 2; ++i) {
    const UniqueFd fd = ConnectTo(served.listener->port());
    CHECK(ReadToEnd(fd.get()) == "");
  }
  SendAll(kept.get(), "P");
  CHECK(ReadToEnd(kept.get()) == "http2");
}

TEST_CASE("port listener: a silent connection has five seconds unless somebody says otherwise") {
  CHECK(PortListener::kSilenceLimit <= std::chrono::seconds(5));
  CHECK(PortListener::Handlers().silence_limit == PortListener::kSilenceLimit);
}

TEST_CASE("port listener: without descriptors it rests, and serves when there are some") {
  const Served served(std::chrono::hours(1));
  UniqueFd late;
  {
    const testing::ScarceDescriptors scarce;
    const TimePoint begin = SteadyNow();
    late = ConnectTo(served.listener->port());  // the last descriptor is this end's
    SendAll(late.get(), "P");
    // Each try is followed by a whole rest, so a slow machine only makes them fewer.
    uint64_t rests = 0;
    while (rests < 3) {
      rests = served.listener->accept_rests();
      const Duration passed = SteadyNow() - begin;
      REQUIRE(rests <= 1 + static_cast<uint64_t>(passed / PortListener::kAcceptRest));
      REQUIRE(passed < std::chrono::seconds(60));
      std::this_thread::yield();
    }
  }
  CHECK(ReadToEnd(late.get()) == "http2");
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
