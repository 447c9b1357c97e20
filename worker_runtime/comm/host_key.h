// Which ranks can share memory, and where others reach this one.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_HOST_KEY_H_
#define DDPRUN_WORKER_RUNTIME_COMM_HOST_KEY_H_

#include <cstdint>
#include <string>

namespace ddp::internal {

// Equal for processes of one boot of one machine in one network namespace, which is what abstract
// Unix sockets need. DDPRUN_HOST_ID in the environment takes its place, as NCCL_HOSTID does in
// NCCL.
std::string HostKey();

// The local address from which this machine talks to `host`; "" if there is no way to it.
std::string LocalAddressToward(const std::string& host, uint16_t port);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_HOST_KEY_H_
