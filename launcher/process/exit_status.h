// The exit codes of ddprun, the one table, and how a worker ended, in words. [pure]
#ifndef DDPRUN_LAUNCHER_PROCESS_EXIT_STATUS_H_
#define DDPRUN_LAUNCHER_PROCESS_EXIT_STATUS_H_

#include <array>
#include <string>
#include <string_view>

#include "process/exit_status.h"  // IWYU pragma: export

namespace ddprun::launcher {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitBadNode = 119;
inline constexpr int kExitMachine = 120;  // this machine: files, limits, devices, data
inline constexpr int kExitRendezvous = 121;
inline constexpr int kExitAuthentication = 122;
inline constexpr int kExitLostCoordinator = 123;
inline constexpr int kExitHang = 124;  // what timeout(1) ends with
inline constexpr int kExitBug = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalBase = 128;  // + n: ddprun itself was stopped by signal n

struct ExitCodeMeaning {
  int code;
  std::string_view meaning;
};

// What --help, the README and the tests show, ascending by code. The last row stands for 128+n.
inline constexpr std::array<ExitCodeMeaning, 12> kExitCodes = {{
    {kExitSuccess, "success, also of a spare node"},
    {kExitUsage, "wrong usage"},
    {kExitBadNode, "a bad node: its health check, or its workers failed first too often"},
    {kExitMachine, "this machine: files, limits, devices, data"},
    {kExitRendezvous, "rendezvous: unreachable, port taken, timed out, refused; a node was lost"},
    {kExitAuthentication, "authentication: the job's token or certificates"},
    {kExitLostCoordinator, "lost the coordinator: no word from it for too long"},
    {kExitHang, "a hang, with --on-hang=restart and no restart left"},
    {kExitBug, "a worker with an unknown end; bench: losses differ; a bug of ddprun"},
    {kExitNotExecutable, "program not executable"},
    {kExitNotFound, "program not found"},
    {kExitSignalBase, "128+n: ddprun itself was stopped by signal n"},
}};

// The code a shell would report: its own, or 128+n for signal n. kExitBug where it is unknown.
int ExitCodeOf(const ExitStatus& status);

// "exit code 3", "killed by signal 9 (SIGKILL)", "killed by signal 11 (SIGSEGV), core dumped".
std::string ToString(const ExitStatus& status);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_EXIT_STATUS_H_
