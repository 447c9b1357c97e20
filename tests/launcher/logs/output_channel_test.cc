#include "launcher/logs/output_channel.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

// Reads to the end that a pipe (0) or a terminal (EIO) has; gives up after 20 s.
std::string ReadToEnd(int fd) {
  std::string out;
  for (;;) {
    pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 20000) <= 0) return out + "<timed out>";
    char buffer[4096];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n > 0) out.append(buffer, static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno == EIO)) return out;
  }
}

bool IsCloseOnExec(const UniqueFd& fd) { return (fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0; }

TEST_CASE("channel: a pipe is large, blocks its writer and not its reader") {
  auto channel = OpenPipe();
  REQUIRE(channel.ok());
  CHECK(fcntl(channel->write_end.get(), F_GETPIPE_SZ) >= 64 * 1024);
  CHECK((fcntl(channel->read_end.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((fcntl(channel->write_end.get(), F_GETFL) & O_NONBLOCK) == 0);
  CHECK(IsCloseOnExec(channel->read_end));
  CHECK(IsCloseOnExec(channel->write_end));
  REQUIRE(write(channel->write_end.get(), "x\n", 2) == 2);
  channel->write_end.Reset();
  CHECK(ReadToEnd(channel->read_end.get()) == "x\n");
}

TEST_CASE("channel: a terminal passes output through byte for byte, to the last") {
  auto channel = OpenTerminalLike(-1);
  if (!channel.ok()) return testing::SkipTest("no pseudo-terminals here");
  CHECK(isatty(channel->write_end.get()));
  CHECK(IsCloseOnExec(channel->read_end));
  CHECK(IsCloseOnExec(channel->write_end));
  const std::string bytes("a\nb\r\nc\r\t\x1b[1m\0\x04\x03\xff end", 21);
  REQUIRE(write(channel->write_end.get(), bytes.data(), bytes.size()) ==
          static_cast<ssize_t>(bytes.size()));
  channel->write_end.Reset();
  CHECK(ReadToEnd(channel->read_end.get()) == bytes);
}

TEST_CASE("channel: a terminal has the size of the console") {
  auto console = OpenTerminalLike(-1);
  if (!console.ok()) return testing::SkipTest("no pseudo-terminals here");
  const winsize size = {.ws_row = 33, .ws_col = 177, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(ioctl(console->write_end.get(), TIOCSWINSZ, &size) == 0);

  auto channel = OpenTerminalLike(console->write_end.get());

  REQUIRE(channel.ok());
  winsize copy = {};
  REQUIRE(ioctl(channel->write_end.get(), TIOCGWINSZ, &copy) == 0);
  CHECK(copy.ws_row == 33);
  CHECK(copy.ws_col == 177);
}

}  // namespace
}  // namespace ddprun::launcher
