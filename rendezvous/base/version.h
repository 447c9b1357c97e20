// The version of all that is built from this tree.
#ifndef DDPRUN_RENDEZVOUS_BASE_VERSION_H_
#define DDPRUN_RENDEZVOUS_BASE_VERSION_H_

namespace ddprun {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_VERSION_H_
