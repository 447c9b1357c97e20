// An IP address and port as the socket calls know it.
#ifndef DDPRUN_RENDEZVOUS_NET_SOCKET_ADDRESS_H_
#define DDPRUN_RENDEZVOUS_NET_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::rendezvous {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  // By IP, scope and port: an IPv4 address is itself mapped into IPv6.
  friend std::strong_ordering operator<=>(const SocketAddress& a, const SocketAddress& b);
  friend bool operator==(const SocketAddress& a, const SocketAddress& b) { return (a <=> b) == 0; }
};

// "10.0.0.1", "fe80::1%eth0"; an IPv4 address mapped into IPv6 is unwrapped. Empty: no IP address.
std::string IpText(const SocketAddress& address);
uint16_t PortOf(const SocketAddress& address);
// "10.0.0.1:29400", "[::1]:29400".
std::string AddressText(const SocketAddress& address);
// What gRPC calls it: "ipv4:10.0.0.1:29400", "ipv6:%5B::1%5D:29400".
std::string GrpcTarget(const SocketAddress& address);
// The other way round, of any connection's peer; size 0: no IP address.
SocketAddress FromGrpcTarget(const std::string& target);
// "10.0.0.1", "::1", "fe80::1%eth0", "fe80::1%2"; nullopt: no IP address.
std::optional<SocketAddress> ParseIp(const std::string& ip, uint16_t port);

// The two ends of a connected socket; size 0 where the kernel does not tell.
SocketAddress LocalAddress(int fd);
SocketAddress PeerAddress(int fd);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_SOCKET_ADDRESS_H_
