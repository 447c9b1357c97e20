// Signals for the command that a shell waits for. A shell with a trap for a signal runs it when
// that command has ended, so a wrapper script would keep the signal from its program.
#ifndef DDPRUN_LAUNCHER_PROCESS_FOREGROUND_H_
#define DDPRUN_LAUNCHER_PROCESS_FOREGROUND_H_

#include <sys/types.h>

#include <vector>

namespace ddprun::launcher {

// Sends `signal` to what the process `shell` waits for, where it is a shell that catches `signal`,
// and by the same rule to what such a command waits for in turn. Of a pipeline those that catch the
// signal get it, or all where none does. A command in the background gets none: the shell handles
// its trap at once, and most pass the signal on. Returns those that `shell` itself
// waits for and that were sent it.
//
// `shell` is a child of ours that is not reaped. Takes 0.1 ms for a shell, 10 us for another
// program.
std::vector<pid_t> SignalForeground(pid_t shell, int signal);

// Whether a signal such as SIGSTOP holds the process. False when it has ended.
bool IsStopped(pid_t pid);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_FOREGROUND_H_
