#include "launcher/logs/output_channel.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"

namespace ddprun::launcher {
namespace {

constexpr int kPipeBytes = 1024 * 1024;

UniqueFd OpenPeer(int master) {
#ifdef TIOCGPTPEER
  // By descriptor rather than by name: /dev/pts may be another mount's.
  UniqueFd peer(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (peer.is_open()) return peer;
#endif
  char name[128];
  if (ptsname_r(master, name, sizeof(name)) != 0) return UniqueFd();
  return UniqueFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

absl::StatusOr<OutputChannel> OpenPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "open a pipe for a worker");
  OutputChannel channel;
  channel.read_end.Reset(ends[0]);
  channel.write_end.Reset(ends[1]);
  // Without the right to so much (EPERM), less has to do.
  for (int bytes = kPipeBytes; bytes > 64 * 1024; bytes /= 2) {
    if (fcntl(ends[1], F_SETPIPE_SZ, bytes) >= 0) break;
  }
  // Only the read end: O_NONBLOCK belongs to the description, and workers expect to block.
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
    return absl::ErrnoToStatus(errno, "make a worker's pipe non-blocking");
  }
  return channel;
}

absl::StatusOr<OutputChannel> OpenTerminalLike(int console_fd) {
  OutputChannel channel;
  channel.is_terminal = true;
  channel.read_end.Reset(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  const int master = channel.read_end.get();
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
    return absl::ErrnoToStatus(errno, "open a terminal for a worker");
  }
  channel.write_end = OpenPeer(master);
  const int slave = channel.write_end.get();
  termios modes = {};
  if (slave < 0 || tcgetattr(slave, &modes) != 0) {
    return absl::ErrnoToStatus(errno, "open a terminal for a worker");
  }
  termios console_modes = {};
  if (tcgetattr(console_fd, &console_modes) == 0) modes = console_modes;
  modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  modes.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  if (tcsetattr(slave, TCSANOW, &modes) != 0) {
    return absl::ErrnoToStatus(errno, "set the modes of a worker's terminal");
  }
  winsize size = {};
  if (ioctl(console_fd, TIOCGWINSZ, &size) == 0) ioctl(slave, TIOCSWINSZ, &size);
  return channel;
}

}  // namespace ddprun::launcher
