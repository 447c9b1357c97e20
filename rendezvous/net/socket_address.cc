#include "rendezvous/net/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <tuple>

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

// Family, IP, scope and port, the same for an IPv4 address and for itself mapped into IPv6.
std::tuple<bool, std::array<uint8_t, 16>, uint32_t, uint16_t> KeyOf(const SocketAddress& address) {
  std::array<uint8_t, 16> ip{};
  if (address.storage.ss_family == AF_INET) {
    ip[10] = ip[11] = 0xff;
    std::memcpy(&ip[12], &AsV4(address).sin_addr, 4);
    return {true, ip, 0, PortOf(address)};
  }
  if (address.storage.ss_family != AF_INET6) return {};
  std::memcpy(ip.data(), &AsV6(address).sin6_addr, ip.size());
  return {true, ip, AsV6(address).sin6_scope_id, PortOf(address)};
}

// %5B is a bracket; a percent sign that no number follows stays.
std::string DecodePercent(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 2 >= text.size()) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16));
    i += 2;
  }
  return out;
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

SocketAddress FromGrpcTarget(const std::string& target) {
  if (target.rfind("ipv4:", 0) != 0 && target.rfind("ipv6:", 0) != 0) return {};
  const std::string text = DecodePercent(target.substr(5));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  std::string ip = text.substr(0, colon);
  if (ip.size() >= 2 && ip.front() == '[') ip = ip.substr(1, ip.size() - 2);
  const unsigned long port = std::strtoul(text.c_str() + colon + 1, nullptr, 10);
  return ParseIp(ip, static_cast<uint16_t>(port)).value_or(SocketAddress{});
}

std::optional<SocketAddress> ParseIp(const std::string& ip, uint16_t port) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    address.size = sizeof(v4);
    return address;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  const size_t percent = ip.find('%');
  if (inet_pton(AF_INET6, ip.substr(0, percent).c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  address.size = sizeof(v6);
  if (percent == std::string::npos) return address;
  const std::string scope = ip.substr(percent + 1);
  v6.sin6_scope_id = if_nametoindex(scope.c_str());
  if (v6.sin6_scope_id != 0) return address;
  char* end = nullptr;
  v6.sin6_scope_id = static_cast<uint32_t>(std::strtoul(scope.c_str(), &end, 10));
  if (v6.sin6_scope_id == 0 || *end != '\0') return std::nullopt;
  return address;
}

std::strong_ordering operator<=>(const SocketAddress& a, const SocketAddress& b) {
  return KeyOf(a) <=> KeyOf(b);
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
