// What others than the group's ranks can do at a rank's port for messages.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/net/listening_socket.h"
#include "tests/worker_runtime/comm/tcp/intruder.h"
#include "worker_runtime/comm/messages/messages.h"
#include "worker_runtime/comm/tcp/acceptor.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;
using ddprun::testing::Intruder;

struct Ends {
  MessagePeers peers;
  UniqueFd listeners[2];
  std::unique_ptr<Messages> ranks[2];

  // `port_of_1` is what rank 0 is told; 0: the true one.
  explicit Ends(uint16_t port_of_1 = 0) {
    peers.hello.fill(1);
    peers.answer.fill(2);
    for (UniqueFd& listener : listeners) {
      auto opened = ddprun::rendezvous::ListenOn("127.0.0.1", 0);
      REQUIRE(opened.ok());
      listener = *std::move(opened);
      peers.places.push_back({"127.0.0.1", ddprun::rendezvous::LocalPort(listener.get())});
    }
    port = peers.places[1].port;
    if (port_of_1 != 0) peers.places[1].port = port_of_1;
    for (int rank : {0, 1}) {
      ranks[rank] = std::make_unique<Messages>(rank, peers, std::move(listeners[rank]), nullptr,
                                               [] { return absl::OkStatus(); });
    }
  }
  std::unique_ptr<Work> Send(int* value) {
    return ranks[0]->Start({.is_send = true,
                            .peer = 1,
                            .data = reinterpret_cast<char*>(value),
                            .bytes = sizeof *value,
                            .timeout = std::chrono::seconds(60)});
  }
  std::unique_ptr<Work> Receive(int* value) {
    return ranks[1]->Start({.peer = 0,
                            .data = reinterpret_cast<char*>(value),
                            .bytes = sizeof *value,
                            .timeout = std::chrono::seconds(60)});
  }
  uint16_t port = 0;
};

std::string Bytes(const Hello& hello) {
  return std::string(reinterpret_cast<const char*>(&hello), sizeof hello);
}

TEST_CASE("strangers: who cannot say the secret is dropped, and messages pass") {
  Ends ends;
  std::vector<Intruder> strangers;
  Nonce wrong = ends.peers.hello;
  wrong[15] ^= 1;
  for (const std::string& words :
       {std::string(32, 'x'), Bytes(MakeHello(wrong, 0, 1)),
        Bytes(MakeHello(ends.peers.hello, 0, 0)), Bytes(MakeHello(ends.peers.hello, 2, 1)),
        Bytes(MakeHello(ends.peers.hello, -1, 1))}) {
    strangers.emplace_back(ends.port);
    strangers.back().Say(words);
  }
  // More than are heard together, and silent.
  std::vector<Intruder> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(ends.port);
  int sent = 5, received = 0;
  const auto send = ends.Send(&sent);
  const auto receive = ends.Receive(&received);
  CHECK(receive->Wait().ok());
  CHECK(send->Wait().ok());
  CHECK(received == 5);
  for (Intruder& stranger : strangers) CHECK(stranger.IsDropped());
}

TEST_CASE("strangers: a rank that says what no rank does is dropped, and others' messages pass") {
  Ends ends;
  int value = 0;
  const auto receive = ends.Receive(&value);
  for (const uint32_t kind : {0u, 2u, 4u, 99u}) {
    CAPTURE(kind);
    Intruder intruder(ends.port);
    std::string frame(32, '\0');
    frame[0] = static_cast<char>(kind);
    frame[8] = 77;  // a message that nobody has offered
    intruder.Say(Bytes(MakeHello(ends.peers.hello, 0, 1)) + frame);
    CHECK(intruder.IsDropped());
  }
  int sent = 6;
  const auto send = ends.Send(&sent);
  CHECK(send->Wait().ok());
  CHECK(receive->Wait().ok());
  CHECK(value == 6);
}

TEST_CASE("strangers: who answers without the secret is sent nothing of a message") {
  auto listener = ddprun::rendezvous::ListenOn("127.0.0.1", 0);
  REQUIRE(listener.ok());
  Ends ends(ddprun::rendezvous::LocalPort(listener->get()));
  int sent = 7;
  const auto send_work = ends.Send(&sent);
  pollfd polled{listener->get(), POLLIN, 0};
  REQUIRE(poll(&polled, 1, 30'000) == 1);
  const UniqueFd impostor(accept(listener->get(), nullptr, nullptr));
  REQUIRE(impostor.is_open());
  // It echoes the hello's secret, and accepts the message.
  std::string answer(16, '\1');
  std::string frame(32, '\0');
  frame[0] = 2;
  frame[8] = 1;
  const std::string said = answer + frame;
  CHECK(send(impostor.get(), said.data(), said.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(said.size()));
  const absl::Status status = send_work->Wait();
  CHECK(status.message() ==
        "send to rank 1 (tag 0, 4 bytes): rank 1 is gone: who answers there is no rank of this "
        "group");
  std::string heard;
  char bytes[256];
  for (ssize_t got; (got = recv(impostor.get(), bytes, sizeof bytes, 0)) > 0;) {
    heard.append(bytes, static_cast<size_t>(got));
  }
  CHECK(heard.size() <= sizeof(Hello) + 32);  // the hello and the offer
}

}  // namespace
}  // namespace ddp::internal
