#include "tests/e2e/key_gate.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/net/listening_socket.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/loopback.h"

namespace ddprun::testing {

KeyGate::KeyGate(uint16_t target, std::string key)
    : target_(target), key_(std::move(key)), wake_(eventfd(0, EFD_CLOEXEC)) {
  const sockaddr_in address = Loopback(0);
  listener_ = rendezvous::OpenListeningSocket(reinterpret_cast<const sockaddr*>(&address),
                                              sizeof address, 16);
  DDP_CHECK(listener_.is_open());
  port_ = rendezvous::LocalPort(listener_.get());
  thread_ = std::thread([this] { Run(); });
}

KeyGate::~KeyGate() {
  is_stopping_ = true;
  Open();
  thread_.join();
}

void KeyGate::Open() {
  is_open_ = true;
  const uint64_t one = 1;
  DDP_CHECK(write(wake_.get(), &one, sizeof one) == sizeof one);
}

void KeyGate::Run() {
  while (!is_stopping_) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Route& route : routes_) {
      polled.push_back({route.client.get(), POLLIN, 0});
      polled.push_back({route.server.get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    size_t at = 2;
    for (Route& route : routes_) {
      if (polled[at++].revents != 0) Forward(route, true);
      if (polled[at++].revents != 0) Forward(route, false);
    }
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      DDP_CHECK(read(wake_.get(), &count, sizeof count) == sizeof count);
      for (Route& route : routes_) {
        rendezvous::SendAll(route.server.get(), std::exchange(route.held, {}));
      }
    }
    if (polled[1].revents != 0) Accept();
    routes_.remove_if([](const Route& route) { return route.is_over; });
  }
}

void KeyGate::Accept() {
  Route route;
  route.client.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  route.server = rendezvous::TryConnectTo(target_);
  if (route.client.is_open() && route.server.is_open()) routes_.push_back(std::move(route));
}

void KeyGate::Forward(Route& route, bool from_client) {
  char bytes[4096];
  const int from = from_client ? route.client.get() : route.server.get();
  const ssize_t size = recv(from, bytes, sizeof bytes, 0);
  if (size <= 0) {
    route.is_over = true;
    return;
  }
  std::string text(bytes, static_cast<size_t>(size));
  if (!from_client) return rendezvous::SendAll(route.client.get(), text);
  // The store's client sends a request in one piece.
  route.is_held = !is_open_ && (route.is_held || text.find(key_) != std::string::npos);
  if (!route.is_held) return rendezvous::SendAll(route.server.get(), text);
  route.held += text;
  holds_one_ = true;
}

}  // namespace ddprun::testing
