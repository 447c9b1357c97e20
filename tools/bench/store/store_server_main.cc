// Our store by itself, for the benchmark: prints "port=N pid=N", serves until stdin ends. With
// --tls it is reached as from a node of another agent: through that one's tunnel and this one's
// port.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/tunnels.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/server/port_listener.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/tls/identity.h"

namespace {

using ddprun::UniqueFd;
using namespace ddprun::rendezvous;

// The two agents between a worker and the store.
struct Agents {
  std::unique_ptr<PortListener> door;
  std::unique_ptr<Tunnels> tunnels;
  uint16_t port = 0;  // where the worker knocks
};

absl::StatusOr<Agents> Stand(StoreServer& store) {
  auto identity = TlsIdentity::OfToken("of the benchmark");
  auto door = ListenOnEach({"127.0.0.1"}, 0);
  auto relay = ListenOn("127.0.0.1", 0);
  for (const absl::Status& status : {identity.status(), door.status(), relay.status()}) {
    if (!status.ok()) return status;
  }
  const SocketAddress address = LocalAddress(door->sockets[0].get());
  PortListener::Handlers handlers;
  handlers.on_store = [&store](UniqueFd fd) { store.Adopt(std::move(fd)); };
  handlers.identity = *identity;
  auto listener =
      PortListener::Start(std::move(door->sockets), std::move(handlers), ddprun::SteadyClock());
  auto tunnels = Tunnels::Start(*identity);
  if (!listener.ok()) return listener.status();
  if (!tunnels.ok()) return tunnels.status();
  const uint16_t port = LocalPort(relay->get());
  (*tunnels)->Relay(*std::move(relay), address);
  return Agents{*std::move(listener), *std::move(tunnels), port};
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_secret = argc == 2 && std::string(argv[1]) == "--tls";
  if (argc > 1 && !is_secret) {
    std::fprintf(stderr, "usage: store_server_main [--tls]\n");
    return 2;
  }
  StoreServer::Options options;
  options.bind = StoreServer::Bind::kNone;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const auto server = StoreServer::Start(options, ddprun::SteadyClock());
  if (!server.ok()) return Fail(server.status());
  absl::StatusOr<Agents> agents = is_secret ? Stand(**server) : Agents{};
  if (!agents.ok()) return Fail(agents.status());
  int port = agents->port;
  if (!is_secret) {
    absl::StatusOr<UniqueFd> listener = ListenOn("", 0);  // all addresses, as PyTorch's
    if (!listener.ok()) return Fail(listener.status());
    port = LocalPort(listener->get());
    (*server)->Serve(*std::move(listener));
  }
  std::printf("port=%d pid=%d\n", port, getpid());
  std::fflush(stdout);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  return 0;
}
