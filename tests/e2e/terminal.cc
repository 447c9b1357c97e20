#include "tests/e2e/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

// The session's own terminal, so that a new size is told by SIGWINCH. The pid stays.
constexpr char kInTerminal[] = R"(exec <"$0" >"$0" 2>&1 && exec /usr/bin/setsid --ctty "$@")";
constexpr int kLookMs = 20;

}  // namespace

Terminal::Terminal(Job& job, std::vector<std::string> arguments, Subprocess::Options how, Size size)
    : ours_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
  char name[128];
  DDP_CHECK(ours_.is_open() && grantpt(ours_.get()) == 0 && unlockpt(ours_.get()) == 0);
  DDP_CHECK(ptsname_r(ours_.get(), name, sizeof name) == 0);
  // Held open, so that its modes can be looked at when the program has ended.
  theirs_ = UniqueFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  DDP_CHECK(theirs_.is_open());
  Resize(size);
  how.env.insert({"TERM", "xterm"});
  std::vector<std::string> argv = {"/bin/sh", "-c", kInTerminal, name, Runfile("ddprun")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  program_ = job.RunProgram(std::move(argv), std::move(how));
  reader_ = std::jthread([this](const std::stop_token& stop) { Read(stop); });
}

void Terminal::Type(const std::string& keys) {
  DDP_CHECK(write(ours_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void Terminal::Resize(Size size) {
  const winsize to{size.rows, size.columns, 0, 0};
  DDP_CHECK(ioctl(theirs_.get(), TIOCSWINSZ, &to) == 0);
}

std::string Terminal::shown() const {
  const std::lock_guard lock(mutex_);
  return shown_;
}

bool Terminal::WaitFor(const std::string& text, size_t from) const {
  return Eventually([&] { return shown().find(text, from) != std::string::npos; });
}

termios Terminal::modes() const {
  termios modes{};
  DDP_CHECK(tcgetattr(theirs_.get(), &modes) == 0);
  return modes;
}

void Terminal::Read(const std::stop_token& stop) {
  char bytes[4096];
  while (!stop.stop_requested()) {
    pollfd polled{ours_.get(), POLLIN, 0};
    if (poll(&polled, 1, kLookMs) <= 0) continue;
    const ssize_t got = read(ours_.get(), bytes, sizeof bytes);
    if (got <= 0) return;
    const std::lock_guard lock(mutex_);
    shown_.append(bytes, static_cast<size_t>(got));
  }
}

}  // namespace ddprun::testing
