// Why a connection cannot be made, in words. [pure]
#ifndef DDPRUN_RENDEZVOUS_NET_CONNECT_ERROR_H_
#define DDPRUN_RENDEZVOUS_NET_CONNECT_ERROR_H_

#include <string>

namespace ddprun::rendezvous {

// "Connection refused"; of EADDRNOTAVAIL also what to do.
std::string ConnectErrorText(int error);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_CONNECT_ERROR_H_
