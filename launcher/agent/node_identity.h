// Who this agent is: an id of its own, and where it keeps its small files.
#ifndef DDPRUN_LAUNCHER_AGENT_NODE_IDENTITY_H_
#define DDPRUN_LAUNCHER_AGENT_NODE_IDENTITY_H_

#include <cstdint>
#include <string>

#include "rendezvous/base/ids.h"

namespace ddprun::launcher {

// Unique among all agents there are: host name, pid, random bits.
NodeId NewNodeId(const std::string& host);

// The directory of a job's small files on this machine, in one of this user only; whoever writes
// there makes it. It outlives an agent that is killed, so that one started anew finds its
// predecessor's epoch. Empty when others could write there.
std::string RunDirectory(const std::string& run_id, uint16_t port);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_NODE_IDENTITY_H_
