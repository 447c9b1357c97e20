#include "rendezvous/net/own_addresses.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>

#include "rendezvous/base/mailbox.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/rank_assignment.h"

namespace ddprun::rendezvous {
namespace {

// A name that this machine is known by stands in a file mostly.
constexpr std::chrono::seconds kResolverPatience{2};

Resolution ResolveSoon(const std::string& host, const Resolver& resolver) {
  if (const auto address = ParseIp(host, 0)) {
    return {Resolution::Outcome::kFound, "", {*address}};
  }
  const auto answer = std::make_shared<std::promise<Resolution>>();
  std::future<Resolution> found = answer->get_future();
  const HelperThread thread(Duration{0}, SteadyClock());
  thread.Post([answer, host, resolver] { answer->set_value(resolver(host, 0)); });
  if (found.wait_for(kResolverPatience) == std::future_status::ready) return found.get();
  return {};
}

}  // namespace

std::vector<std::string> HostsToListenOn(const std::vector<SocketAddress>& named) {
  // Debian maps a machine's own name to the second.
  std::vector<std::string> hosts = {"127.0.0.1", "127.0.1.1", "::1"};
  bool is_reached = false;
  for (const SocketAddress& address : named) {
    const std::string ip = IpText(address);
    const bool is_loopback = IsLoopback(ip);
    const bool is_own = is_loopback || !InterfaceOf(address).empty();
    is_reached |= is_own && !is_loopback;
    if (is_own && std::ranges::find(hosts, ip) == hosts.end()) hosts.push_back(ip);
  }
  return is_reached ? hosts : std::vector<std::string>();
}

std::vector<std::string> HostsToListenOn(const std::string& host, const Resolver& resolver) {
  return HostsToListenOn(ResolveSoon(host, resolver).addresses);
}

std::vector<std::string> EveryOwnAddress() {
  std::vector<std::string> hosts;
  for (InterfaceAddress& own : InterfaceAddresses()) hosts.push_back(std::move(own.ip));
  return hosts;
}

}  // namespace ddprun::rendezvous
