// The exit codes of ddprun: the one table.
#ifndef DDPRUN_LAUNCHER_PROCESS_EXIT_STATUS_H_
#define DDPRUN_LAUNCHER_PROCESS_EXIT_STATUS_H_

namespace ddprun::launcher {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitMachine = 120;          // this machine: files, limits, devices, data
inline constexpr int kExitRendezvous = 121;       // unreachable, port taken, timed out, refused
inline constexpr int kExitAuthentication = 122;
inline constexpr int kExitLostCoordinator = 123;
inline constexpr int kExitBug = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalBase = 128;       // + n: ddprun itself was stopped by signal n

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_EXIT_STATUS_H_
