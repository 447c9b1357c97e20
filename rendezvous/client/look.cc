#include "rendezvous/client/look.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "rendezvous/core/rank_assignment.h"

namespace ddprun::rendezvous {
namespace {

using Outcome = Looked::Outcome;

Looked NotFound(const std::string& name, const Resolution& names) {
  return {.outcome = names.outcome == Resolution::Outcome::kNoSuchName ? Outcome::kNoName
                                                                       : Outcome::kNameLater,
          .text = "cannot resolve \"" + name + "\": " + names.error};
}

bool SaysNothing(Outcome outcome) {
  return outcome == Outcome::kRefused || outcome == Outcome::kUnreachable;
}

}  // namespace

bool IsThisMachine(const SocketAddress& address) {
  const std::string ip = IpText(address);
  if (IsLoopback(ip)) return true;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool is_ours = false;
  for (const ifaddrs* entry = list; entry != nullptr && !is_ours; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress own;
    own.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&own.storage, entry->ifa_addr, own.size);
    is_ours = IpText(own) == ip;
  }
  freeifaddrs(list);
  return is_ours;
}

Looked LookUp(const std::string& name, const Resolver& resolve) {
  const Resolution names = resolve(name, 0);
  if (names.outcome != Resolution::Outcome::kFound) return NotFound(name, names);
  return {.outcome = Outcome::kFound};
}

LookResult LookAt(const std::string& host, uint16_t port, const std::string& run_id,
                  bool is_port_here, const Resolver& resolve, const Interrupt& interrupt) {
  std::vector<SocketAddress> addresses;
  if (is_port_here) addresses = ResolveName("localhost", port).addresses;
  const Resolution names = resolve(host, port);
  if (names.outcome != Resolution::Outcome::kFound && addresses.empty()) {
    return {NotFound(host, names), {}};
  }
  addresses.insert(addresses.end(), names.addresses.begin(), names.addresses.end());
  LookResult result;
  for (const SocketAddress& address : addresses) {
    Looked seen = Probe(address, run_id, interrupt);
    // "localhost" is ::1 and 127.0.0.1: an answer on the one is not hidden by a refusal on the
    // other.
    if (result.address.size == 0 || !SaysNothing(seen.outcome)) result = {seen, address};
    if (seen.outcome == Outcome::kOurs || interrupt.is_set()) break;
  }
  result.seen.ip = IpText(result.address);
  result.seen.is_this_host =
      std::any_of(names.addresses.begin(), names.addresses.end(), IsThisMachine);
  return result;
}

}  // namespace ddprun::rendezvous
