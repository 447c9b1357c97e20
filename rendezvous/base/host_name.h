// This machine's name.
#ifndef DDPRUN_RENDEZVOUS_BASE_HOST_NAME_H_
#define DDPRUN_RENDEZVOUS_BASE_HOST_NAME_H_

#include <string>

namespace ddprun {

// gethostname: short, or fully qualified; "localhost" for a machine without a name.
std::string HostName();

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_HOST_NAME_H_
