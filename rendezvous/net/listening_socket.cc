#include "rendezvous/net/listening_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {
namespace {

// A thousand agents may come at once.
constexpr int kBacklog = 1 << 16;

// Where the kernel was to choose.
constexpr char kNoneIsFree[] =
    "no port is free (EADDRINUSE): widen net.ipv4.ip_local_port_range, or end what holds its ports";

absl::Status ErrorOf(int error, const SocketAddress& address) {
  if (error == EADDRINUSE && PortOf(address) == 0) {
    return absl::AlreadyExistsError(absl::StrCat("listen on ", IpText(address), ": ", kNoneIsFree));
  }
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", PortOf(address), " of ", IpText(address),
                     " is already in use (EADDRINUSE): use another port, or end the "
                     "program that has it"));
  }
  if (error == EADDRNOTAVAIL) {
    return absl::UnavailableError(
        absl::StrCat("listen on ", AddressText(address),
                     ": this machine has no such address (EADDRNOTAVAIL): take one of those that "
                     "\"ip address\" lists, or leave the host out for all of them"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("listen on ", AddressText(address)));
}

absl::StatusOr<UniqueFd> Listen(const SocketAddress& address) {
  UniqueFd fd = OpenListeningSocket(address.get(), address.size, kBacklog);
  if (fd.is_open()) return fd;
  return ErrorOf(errno, address);
}

}  // namespace

UniqueFd OpenListeningSocket(const sockaddr* address, socklen_t size, int backlog) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return fd;
  const int on = 1;
  const int off = 0;
  // A fixed port must be free for the next round while old connections linger in TIME_WAIT; two
  // listeners still exclude each other.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  const bool is_listening = bind(fd.get(), address, size) == 0 && listen(fd.get(), backlog) == 0;
  if (!is_listening) fd.Reset();  // which leaves errno as it was
  return fd;
}

absl::StatusOr<UniqueFd> ListenOn(const std::string& host, uint16_t port) {
  if (!host.empty()) {
    const std::optional<SocketAddress> address =
        ParseIp(host == "localhost" ? "127.0.0.1" : host, port);
    if (address) return Listen(*address);
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on \"", host,
                     "\": not an IP address of this machine; leave the host out for all of them"));
  }
  absl::StatusOr<UniqueFd> fd = Listen(*ParseIp("::", port));
  if (fd.ok() || absl::IsAlreadyExists(fd.status())) return fd;
  // No IPv6 here (EAFNOSUPPORT, or EADDRNOTAVAIL where it is disabled by sysctl).
  return Listen(*ParseIp("0.0.0.0", port));
}

absl::StatusOr<ListeningSockets> ListenOnOne(const std::string& host, uint16_t port) {
  absl::StatusOr<UniqueFd> fd = ListenOn(host, port);
  if (!fd.ok()) return fd.status();
  ListeningSockets listening{.sockets = {}, .is_everywhere = host.empty()};
  listening.sockets.push_back(*std::move(fd));
  return listening;
}

absl::StatusOr<ListeningSockets> ListenOnThose(const std::vector<std::string>& hosts,
                                               uint16_t port) {
  ListeningSockets listening;
  for (const std::string& host : hosts) {
    const std::optional<SocketAddress> address = ParseIp(host, port);
    UniqueFd fd;
    int error = ENODEV;  // a scope, "%eth1", may have gone with its interface
    if (address) {
      fd = OpenListeningSocket(address->get(), address->size, kBacklog);
      error = errno;
    }
    if (fd.is_open()) {
      listening.sockets.push_back(std::move(fd));
      listening.hosts.push_back(host);
    } else if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT && error != ENODEV) {
      return ErrorOf(error, *address);
    }
  }
  return listening;
}

absl::StatusOr<ListeningSockets> ListenOnEach(const std::vector<std::string>& hosts,
                                              uint16_t port) {
  if (hosts.empty()) return ListenOnOne("", port);
  UniqueFd kept;
  if (port == 0) {
    absl::StatusOr<UniqueFd> free = KeepPort();
    if (!free.ok()) return free.status();
    kept = *std::move(free);
    port = LocalPort(kept.get());
  }
  absl::StatusOr<ListeningSockets> listening = ListenOnThose(hosts, port);
  if (!listening.ok()) return listening;
  const auto has_way_in = [](const std::vector<std::string>& any) {
    return std::ranges::any_of(any, [](const std::string& host) { return !IsLoopback(host); });
  };
  const bool is_alone = !has_way_in(hosts) && !listening->sockets.empty();
  if (is_alone || has_way_in(listening->hosts)) return listening;
  listening->sockets.clear();
  return ListenOnOne("", port);
}

absl::StatusOr<UniqueFd> KeepPort() {
  for (const char* any : {"::", "0.0.0.0"}) {
    const SocketAddress address = *ParseIp(any, 0);
    UniqueFd fd(socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.is_open()) continue;
    const int on = 1;
    const int off = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));  // not of an IPv4 socket
    if (bind(fd.get(), address.get(), address.size) == 0) return fd;
  }
  return absl::UnavailableError(
      absl::StrCat("keep a free port: ", errno == EADDRINUSE ? kNoneIsFree : std::strerror(errno)));
}

void AvoidLargePackets(int listener) {
  constexpr int kSegment = 1280 - 40 - 20;  // without the headers of IPv6 and TCP
  // What it accepts inherits it, and announces it to the other end. A kernel that refuses leaves
  // all as it was.
  setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &kSegment, sizeof(kSegment));
}

uint16_t LocalPort(int socket) { return PortOf(LocalAddress(socket)); }

}  // namespace ddprun::rendezvous
