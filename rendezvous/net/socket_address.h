// Addresses of machines: as the socket calls know them, as text, and what names stand for.
#ifndef DDPRUN_RENDEZVOUS_NET_SOCKET_ADDRESS_H_
#define DDPRUN_RENDEZVOUS_NET_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::rendezvous {

// An IP address and port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// "10.0.0.1", "fe80::1%eth0"; an IPv4 address mapped into IPv6 is unwrapped. Empty: no IP address.
std::string IpText(const SocketAddress& address);
uint16_t PortOf(const SocketAddress& address);
// "10.0.0.1:29400", "[::1]:29400".
std::string AddressText(const SocketAddress& address);
// What gRPC calls it: "ipv4:10.0.0.1:29400", "ipv6:%5B::1%5D:29400".
std::string GrpcTarget(const SocketAddress& address);
// "10.0.0.1", "::1", "fe80::1%eth0", "fe80::1%2"; nullopt: no IP address.
std::optional<SocketAddress> ParseIp(const std::string& ip, uint16_t port);

// The two ends of a connected socket; size 0 where the kernel does not tell.
SocketAddress LocalAddress(int fd);
SocketAddress PeerAddress(int fd);

// This machine's addresses: the interface and its IP address as text.
struct InterfaceAddress {
  std::string interface;
  std::string ip;
};
std::vector<InterfaceAddress> InterfaceAddresses();
// The interface of this machine that has the address, whatever its port; empty: none has.
std::string InterfaceOf(const SocketAddress& address);

struct Resolution {
  enum class Outcome {
    kFound,
    kNoSuchName,  // the resolver is sure: trying again is of no use
    kTemporary,   // it may answer later
  };
  Outcome outcome = Outcome::kTemporary;
  std::string error;                     // "Name or service not known"
  std::vector<SocketAddress> addresses;  // kFound: at least one, in the order to try
};

// Replaceable in tests.
using Resolver = std::function<Resolution(const std::string& host, uint16_t port)>;

// getaddrinfo, which may take minutes and cannot be interrupted: for a thread that nobody waits
// for. IP addresses are answered at once.
Resolution ResolveName(const std::string& host, uint16_t port);

// This machine's: gethostname, short or fully qualified; "localhost" for one without a name.
std::string HostName();

// The address that a packet to `to` would come from; empty: there is no way to it.
std::string SourceTowards(const SocketAddress& to);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_SOCKET_ADDRESS_H_
