// From what the user asked for to what the agent, its rendezvous and its store are told. [pure]
#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_POLICY_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_POLICY_H_

#include <string>

#include "launcher/agent/agent_core.h"
#include "launcher/cli/launch_config.h"
#include "launcher/process/worker_env.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

AgentPolicy AgentPolicyOf(const LaunchConfig& config);

// Where etcd is and as whom it is asked; the password is the driver's to add.
rendezvous::EtcdOptions EtcdOptionsOf(const LaunchConfig& config);

// The loopback address, as one listens there, where the user has named one as the place where all
// nodes meet, in whatever spelling: all are on this host, and nothing has to be open to others.
// Empty for any other place.
std::string LoopbackOf(const LaunchConfig& config);

// Whether nobody but processes of this host can have to do with the job.
bool IsOnThisHost(const LaunchConfig& config);

// What who hosts the coordinator says of who is believed, where other hosts can reach it.
std::string TrustText(bool has_identity);

// The same of this node's job; empty: only this host can reach it, or there is no other.
std::string TrustLine(const LaunchConfig& config, bool has_identity);

// What a coordinator hosted by this agent follows.
rendezvous::Policy RendezvousPolicyOf(const LaunchConfig& config);

// This node as it joins; the id, the store's port and the endpoint mark are the driver's to add.
rendezvous::NodeInfo NodeInfoOf(const LaunchConfig& config);

// What the workers of a round are told.
WorkerEnvInput WorkerEnvInputOf(const LaunchConfig& config,
                                const rendezvous::Assignment& assignment,
                                const std::string& job_mark);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_POLICY_H_
