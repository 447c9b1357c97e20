#include "rendezvous/net/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::rendezvous {
namespace {

const sockaddr_in& AsV4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}

const sockaddr_in6& AsV6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

Resolution CallGetaddrinfo(const std::string& host, uint16_t port, int family, int flags) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  Resolution result;
  if (error != 0) {
    const bool is_final = error == EAI_NONAME || error == EAI_NODATA || error == EAI_FAMILY;
    result.outcome = is_final ? Resolution::Outcome::kNoSuchName : Resolution::Outcome::kTemporary;
    result.error = gai_strerror(error);
    return result;
  }
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    result.addresses.push_back(address);
  }
  freeaddrinfo(list);
  result.outcome = Resolution::Outcome::kFound;
  return result;
}

SocketAddress Ask(int (*ask)(int, sockaddr*, socklen_t*), int fd) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (ask(fd, address.get(), &address.size) != 0) address.size = 0;
  return address;
}

}  // namespace

std::string IpText(const SocketAddress& address) {
  const int family = address.storage.ss_family;
  std::array<char, NI_MAXHOST> text{};
  if ((family != AF_INET && family != AF_INET6) ||
      getnameinfo(address.get(), address.size, text.data(), text.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "";
  }
  std::string ip = text.data();
  const bool is_mapped = family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&AsV6(address).sin6_addr) != 0;
  if (is_mapped) ip = ip.substr(std::strlen("::ffff:"), ip.find('%') - std::strlen("::ffff:"));
  return ip;
}

uint16_t PortOf(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) return ntohs(AsV4(address).sin_port);
  if (address.storage.ss_family == AF_INET6) return ntohs(AsV6(address).sin6_port);
  return 0;
}

std::string AddressText(const SocketAddress& address) {
  return EndpointText(IpText(address), PortOf(address));
}

// It is a URI: brackets and the scope's percent sign are encoded.
std::string GrpcTarget(const SocketAddress& address) {
  const std::string text = AddressText(address);
  return absl::StrCat(text[0] == '[' ? "ipv6:" : "ipv4:",
                      absl::StrReplaceAll(text, {{"[", "%5B"}, {"]", "%5D"}, {"%", "%25"}}));
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
  if (!absl::SimpleAtoi(scope, &v6.sin6_scope_id) || v6.sin6_scope_id == 0) return std::nullopt;
  return address;
}

SocketAddress LocalAddress(int fd) { return Ask(getsockname, fd); }

SocketAddress PeerAddress(int fd) { return Ask(getpeername, fd); }

std::vector<InterfaceAddress> InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress own;
    own.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&own.storage, entry->ifa_addr, own.size);
    found.push_back({entry->ifa_name, IpText(own)});
  }
  freeifaddrs(list);
  return found;
}

std::string InterfaceOf(const SocketAddress& address) {
  const std::string ip = IpText(address);
  if (ip.empty()) return "";
  for (InterfaceAddress& own : InterfaceAddresses()) {
    if (own.ip == ip) return std::move(own.interface);
  }
  return "";
}

Resolution ResolveName(const std::string& host, uint16_t port) {
  Resolution literal = CallGetaddrinfo(host, port, AF_UNSPEC, AI_NUMERICHOST);
  if (literal.outcome == Resolution::Outcome::kFound) return literal;
  return CallGetaddrinfo(host, port, AF_UNSPEC, 0);
}

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  const bool has_name = gethostname(name.data(), name.size()) == 0 && name[0] != '\0';
  return has_name ? name.data() : "localhost";
}

std::string SourceTowards(const SocketAddress& to) {
  const UniqueFd fd(socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || connect(fd.get(), to.get(), to.size) != 0) return "";
  return IpText(LocalAddress(fd.get()));
}

}  // namespace ddprun::rendezvous
