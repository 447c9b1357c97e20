#include "launcher/commands/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/ask_job.h"
#include "launcher/commands/terminal.h"
#include "launcher/commands/trust.h"
#include "launcher/process/exit_status.h"
#include "launcher/status/top_screen.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

constexpr int kExitCannotAsk = kExitUsage;
constexpr Duration kInterval = std::chrono::seconds(1);
constexpr size_t kMaxHistory = 600;

void Write(const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t size = write(STDOUT_FILENO, text.data() + written, text.size() - written);
    if (size <= 0) return;  // the terminal has gone
    written += static_cast<size_t>(size);
  }
}

// The other screen, without a cursor and without waiting for line feeds, while it lives.
class Screen {
 public:
  Screen() {
    has_modes_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_modes_) {
      termios modes = before_;
      modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      tcsetattr(STDIN_FILENO, TCSANOW, &modes);
    }
    Write("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    Write("\x1b[?25h\x1b[?1049l");
    if (has_modes_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Show(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (size_t i = 0; i < lines.size(); ++i) {
      absl::StrAppend(&text, lines[i], "\x1b[K", i + 1 < lines.size() ? "\r\n" : "");
    }
    Write(text + "\x1b[J");
  }

 private:
  termios before_{};
  bool has_modes_ = false;
};

class Top {
 public:
  Top(const AskOptions& options, const Environment& environment)
      : options_(options), identity_(IdentityOf(options.trust, environment.token)) {
    const std::optional<std::string> no_color = environment.Get("NO_COLOR");
    top_.allows_colours = !no_color || no_color->empty();
    top_.is_utf8 = false;
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
      const std::optional<std::string> value = environment.Get(name);
      if (!value || value->empty()) continue;
      top_.is_utf8 = absl::StrContains(absl::AsciiStrToLower(*value), "utf");
      break;
    }
  }

  int Run() {
    if (isatty(STDOUT_FILENO) != 1 || isatty(STDIN_FILENO) != 1) {
      return Complain(
          absl::FailedPreconditionError("top needs a terminal; ddprun status shows the same once"),
          kExitCannotAsk);
    }
    if (!identity_.ok()) return Complain(identity_.status(), kExitAuthentication);
    absl::Status trouble = Look();
    if (!trouble.ok()) {
      return Complain(trouble,
                      absl::IsUnauthenticated(trouble) ? kExitAuthentication : kExitCannotAsk);
    }
    sigset_t ending;
    sigemptyset(&ending);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) {
      sigaddset(&ending, signal);
    }
    sigprocmask(SIG_BLOCK, &ending, nullptr);
    const UniqueFd signals(signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
    {
      Screen screen;
      for (;;) {
        Draw(screen);
        if (!Wait(signals.get())) break;
        trouble = Look();
        if (!trouble.ok()) break;
      }
    }
    if (!trouble.ok())
      Print(absl::StrCat(
          "the job is over, or cannot be asked any more: ", std::string(trouble.message()), "\n"));
    return job_.is_healthy ? kExitSuccess : 1;
  }

 private:
  absl::Status Look() {
    if (options_.coordinator) {
      absl::StatusOr<JobView> seen = LookFromOutside(*options_.coordinator, *identity_);
      if (!seen.ok()) return seen.status();
      job_ = *std::move(seen);
    } else {
      // The same job as before, also where others have begun since.
      absl::StatusOr<FoundJob> found =
          socket_path_.empty() ? ChooseJob(options_.job) : AskAgain(socket_path_);
      if (!found.ok()) return found.status();
      job_ = std::move(found->job);
      socket_path_ = found->socket_path;
    }
    next_look_ = SteadyNow() + kInterval;
    if (history_.unit.empty() || (history_.unit == "steps/s" && job_.samples_per_s)) {
      history_ = {job_.samples_per_s ? "samples/s" : "steps/s", {}};
    }
    double speed = job_.samples_per_s.value_or(NAN);
    if (history_.unit == "steps/s") {
      // The last steps' time is no speed where no step ends.
      const bool goes_on =
          std::none_of(job_.problems.begin(), job_.problems.end(), [](const Problem& problem) {
            return problem.kind == "hang" || problem.kind == "no_progress";
          });
      speed = goes_on && job_.step_s && *job_.step_s > 0 ? 1 / *job_.step_s : NAN;
    }
    history_.values.push_back(speed);
    if (history_.values.size() > kMaxHistory) history_.values.erase(history_.values.begin());
    return absl::OkStatus();
  }

  void Draw(Screen& screen) {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
      top_.columns = size.ws_col;
      top_.rows = size.ws_row;
    }
    screen.Show(TopScreen(job_, history_, top_));
  }

  // False: the user has had enough.
  bool Wait(int signals) {
    for (;;) {
      pollfd polled[2] = {{STDIN_FILENO, POLLIN, 0}, {signals, POLLIN, 0}};
      const int ready = poll(polled, 2, PollTimeout(next_look_));
      if (ready <= 0) return true;
      if (polled[1].revents != 0) {
        signalfd_siginfo info{};
        if (read(signals, &info, sizeof info) != sizeof info) return true;
        return info.ssi_signo == SIGWINCH;
      }
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) != 1) return false;
      if (key == 'q' || key == 'Q') return false;
    }
  }

  const AskOptions options_;
  const absl::StatusOr<std::shared_ptr<const rendezvous::TlsIdentity>> identity_;
  TopOptions top_;
  JobView job_;
  std::string socket_path_;  // of the agent that is asked; "": none yet, or a coordinator is
  SpeedHistory history_;
  TimePoint next_look_{};
};

}  // namespace

int RunTop(const AskOptions& options, const Environment& environment) {
  return Top(options, environment).Run();
}

}  // namespace ddprun::launcher
