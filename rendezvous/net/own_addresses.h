// By which of its addresses others reach this machine, so that it need listen on no other.
#ifndef DDPRUN_RENDEZVOUS_NET_OWN_ADDRESSES_H_
#define DDPRUN_RENDEZVOUS_NET_OWN_ADDRESSES_H_

#include <string>
#include <vector>

#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// Of the addresses `named` those that are this machine's, and those of loopback, by which its own
// processes may look for it. Empty, which stands for all addresses, where none of them is one of
// this machine's that others reach: they know it by another one then, as behind a gateway.
std::vector<std::string> HostsToListenOn(const std::vector<SocketAddress>& named);

// Likewise for what `host` stands for. A resolver that is silent for 2 s knows no address.
std::vector<std::string> HostsToListenOn(const std::string& host, const Resolver& resolver);

// Every address of this machine's interfaces.
std::vector<std::string> EveryOwnAddress();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_OWN_ADDRESSES_H_
