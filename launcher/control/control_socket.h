// Where the agents of this user's jobs on this machine can be asked: a Unix socket for each, in a
// directory of the user's own.
#ifndef DDPRUN_LAUNCHER_CONTROL_CONTROL_SOCKET_H_
#define DDPRUN_LAUNCHER_CONTROL_CONTROL_SOCKET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// /tmp/ddprun-<uid>, which every session and every batch job of the user sees alike; where that
// cannot be had, as somebody else has made it, $XDG_RUNTIME_DIR/ddprun-<uid>. Both are looked into.
// DDPRUN_CONTROL_DIR names another one.
std::vector<std::string> ControlDirectories();

// Why no job can be found there, though one may run: none of the directories that exist is this
// user's and closed to others. OK where none exists. Touches files.
absl::Status CheckControlDirectories();

// "on this machine", with the directory where DDPRUN_CONTROL_DIR names one.
std::string WhereJobsAreSought();

struct ControlSocket {
  UniqueFd listening;
  std::string path;
};

// Makes the directory, which must be this user's and closed to others, and listens there under a
// name of its own. Touches files. Errors name the directory and what to do.
absl::StatusOr<ControlSocket> ListenForControl();

// Touches files.
void RemoveControlSocket(const std::string& path);

// The sockets in those directories whose agents live, by name; those of agents that were killed are
// removed. Touches files.
std::vector<std::string> FindControlSockets();

// Connects to `path`; the peer must be this user or root.
absl::StatusOr<UniqueFd> ConnectToControl(const std::string& path, Duration timeout);

// Whether who is at the other end of a connected Unix socket is this user or root.
bool IsPeerAllowed(int fd);

// The process that listens at the other end of a connected Unix socket; 0: it cannot be named here
// (of another PID namespace).
int ListenerOf(int fd);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONTROL_CONTROL_SOCKET_H_
