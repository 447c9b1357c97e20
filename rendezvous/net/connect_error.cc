#include "rendezvous/net/connect_error.h"

#include <system_error>

namespace ddprun::rendezvous {
namespace {

// EADDRNOTAVAIL has two meanings, of which the second is seen where IPv6 is switched off.
constexpr char kNoLocalPort[] =
    "no local port is free for a connection (EADDRNOTAVAIL): widen net.ipv4.ip_local_port_range, "
    "or end what holds its ports; or this machine has no address of that kind";

}  // namespace

std::string ConnectErrorText(int error) {
  if (error == static_cast<int>(std::errc::address_not_available)) return kNoLocalPort;
  return std::generic_category().message(error);
}

}  // namespace ddprun::rendezvous
