#include "rendezvous/net/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>

#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {
namespace {

const sockaddr_in& AsV4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}

const sockaddr_in6& AsV6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

bool IsMapped(const SocketAddress& address) {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_V4MAPPED(&AsV6(address).sin6_addr) != 0;
}

std::string ScopeText(uint32_t scope) {
  std::array<char, IF_NAMESIZE> name{};
  if (scope == 0) return "";
  if (if_indextoname(scope, name.data()) != nullptr) return std::string("%") + name.data();
  return "%" + std::to_string(scope);
}

}  // namespace

std::string IpText(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &AsV4(address).sin_addr, text.data(), text.size());
    return text.data();
  }
  if (address.storage.ss_family != AF_INET6) return "";
  const sockaddr_in6& v6 = AsV6(address);
  if (IsMapped(address)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text.data(), text.size());
    return text.data();
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return text.data() + ScopeText(v6.sin6_scope_id);
}

uint16_t PortOf(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) return ntohs(AsV4(address).sin_port);
  if (address.storage.ss_family == AF_INET6) return ntohs(AsV6(address).sin6_port);
  return 0;
}

std::string AddressText(const SocketAddress& address) {
  return EndpointText(IpText(address), PortOf(address));
}

std::string GrpcTarget(const SocketAddress& address) {
  const std::string ip = IpText(address);
  const std::string port = std::to_string(PortOf(address));
  if (ip.find(':') == std::string::npos) return "ipv4:" + ip + ":" + port;
  // It is a URI: brackets and the scope's percent sign are encoded.
  const size_t scope = ip.find('%');
  if (scope == std::string::npos) return "ipv6:%5B" + ip + "%5D:" + port;
  return "ipv6:%5B" + ip.substr(0, scope) + "%25" + ip.substr(scope + 1) + "%5D:" + port;
}

bool IsLoopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return (ntohl(AsV4(address).sin_addr.s_addr) >> 24) == 127;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  const in6_addr& ip = AsV6(address).sin6_addr;
  return IsMapped(address) ? ip.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&ip) != 0;
}

SocketAddress LocalAddress(int fd) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (getsockname(fd, address.get(), &address.size) != 0) address.size = 0;
  return address;
}

SocketAddress PeerAddress(int fd) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (getpeername(fd, address.get(), &address.size) != 0) address.size = 0;
  return address;
}

}  // namespace ddprun::rendezvous
