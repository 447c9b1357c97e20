// One node's agent: carries out what AgentCore decides.
//
// Owns the node's rendezvous client, worker group, store and logs, none of which knows another.
// Everything here happens on the thread that calls Run, which executes one io_context and never
// waits for anything else: what may take long, files above all, is asked of file threads, which
// like the client's only post their answers. One thing happens elsewhere: the coordinator's
// listener hands workers' connections to the round's store.
#ifndef DDPRUN_LAUNCHER_AGENT_AGENT_H_
#define DDPRUN_LAUNCHER_AGENT_AGENT_H_

#include <memory>
#include <string>

#include "launcher/cli/environment.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cli/program.h"
#include "launcher/placement/placement.h"
#include "launcher/process/guardian.h"
#include "launcher/process/process_baseline.h"

namespace spdlog {
class logger;
}

namespace ddprun::launcher {

class LogRouter;

struct AgentSetup {
  LaunchConfig config;
  Program program;
  Environment environment;
  ProcessBaseline baseline;
  std::string job_mark;
  Placement placement{};
};

// Runs the job to its end on this node and returns the exit code of ddprun. `logs` and `logger` are
// borrowed; no thread touches either after the return. Where something does not answer in the end
// (a file system, a process that does not die, a reader of our output) it does not return: the
// process ends with that code at once.
// REQUIRES: called on the main thread, after PrepareAgentProcess.
int RunAgent(AgentSetup setup, std::unique_ptr<Guardian> guardian, LogRouter& logs,
             spdlog::logger& logger);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_AGENT_H_
