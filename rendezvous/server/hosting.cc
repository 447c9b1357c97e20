#include "rendezvous/server/hosting.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "rendezvous/base/host_name.h"

namespace ddprun::rendezvous {
namespace {

// Host names do not differ by case, nor by the dot that ends a full one.
std::string Canonical(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (!name.empty() && name.back() == '.') name.pop_back();
  return name;
}

// "node1" is the short name of "node1.cluster"; "node1.a" and "node1.b" are two machines.
bool IsSameHost(const std::string& asked, const std::string& ours) {
  if (asked.empty() || ours.empty()) return false;
  return asked == ours ||
         (asked.find('.') == std::string::npos && asked == ours.substr(0, ours.find('.')));
}

}  // namespace

MachineNames ThisMachine() {
  MachineNames machine;
  machine.host_name = HostName();
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return machine;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.size);
    machine.addresses.push_back(IpText(address));
  }
  freeifaddrs(list);
  return machine;
}

std::optional<bool> HostsByName(const RendezvousOptions& options, const MachineNames& machine) {
  switch (options.mode) {
    case RendezvousOptions::Mode::kStandalone:
      return true;
    case RendezvousOptions::Mode::kStatic:
      return options.node_rank == 0;
    case RendezvousOptions::Mode::kDynamic:
      break;
  }
  if (options.is_host) return options.is_host;
  const std::string asked = Canonical(options.endpoint_host);
  if (asked == "localhost" || IsSameHost(asked, Canonical(machine.host_name))) return true;
  return std::nullopt;
}

bool HostsByAddress(const std::vector<SocketAddress>& addresses, const MachineNames& machine) {
  return std::any_of(addresses.begin(), addresses.end(), [&](const SocketAddress& address) {
    return IsLoopback(address) || std::find(machine.addresses.begin(), machine.addresses.end(),
                                            IpText(address)) != machine.addresses.end();
  });
}

}  // namespace ddprun::rendezvous
