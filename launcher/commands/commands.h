// What `ddprun` does for each command. All of them say what went wrong themselves, and return the
// exit code of ddprun.
#ifndef DDPRUN_LAUNCHER_COMMANDS_COMMANDS_H_
#define DDPRUN_LAUNCHER_COMMANDS_COMMANDS_H_

#include "launcher/cli/cli.h"
#include "launcher/cli/program.h"
#include "launcher/process/process_baseline.h"

namespace ddprun::launcher {

// `baseline` is what this process was started with, recorded before anything was changed.

// `ddprun [options] PROGRAM`: this node's part of a job. Finds the program, prepares this process,
// and runs the agent.  REQUIRES: this process has one thread.
int Launch(LaunchConfig config, Environment environment, const ProcessBaseline& baseline);

// The same with a program that has been found.
int LaunchProgram(LaunchConfig config, const Program& program, Environment environment,
                  const ProcessBaseline& baseline);

// `ddprun check`: this node's part of a job whose program is ddprun itself (check_rank.h). Exit
// codes: 0 all nodes are well, 1 one is not; otherwise a job's.
// REQUIRES: this process has one thread.
int RunCheck(CheckOptions options, Environment environment, const ProcessBaseline& baseline);

// `ddprun coordinator`: the rendezvous of one job, apart from its nodes. Listens until the job is
// over or a signal comes; returns the job's exit code, or 128+n for signal n. Starts no process.
// REQUIRES: this process has one thread.
int RunCoordinator(const CoordinatorOptions& options, const Environment& environment,
                   ProcessBaseline baseline);

// `ddprun status`, `top`, `list`, `stop`, `logs`, `dump`: asks a running job. Exit codes: 0, also a
// healthy job; 1 a job that is not; 2 one that cannot be asked.
int RunAsk(const AskOptions& options, const Environment& environment);

// `ddprun bench dp-ddp`: measures both ways of training, prints the table, writes the files. Also
// called in each process that it starts for a measurement, and ends there.
// REQUIRES: this process has one thread.
int RunBench(const BenchOptions& options, const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_COMMANDS_H_
