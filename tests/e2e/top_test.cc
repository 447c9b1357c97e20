// `ddprun top` in a terminal.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/e2e/asking.h"
#include "tests/e2e/terminal.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;
using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";

bool AreSame(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag;
}

// The last screen that was drawn as a whole, line by line.
Strings LastScreen(const Terminal& terminal) {
  const std::string shown = terminal.shown();
  const size_t end = shown.rfind("\x1b[J");
  if (end == std::string::npos) return {};
  size_t at = shown.rfind(kHome, end);
  Strings lines;
  for (at += sizeof kHome - 1; at < end;) {
    const size_t line_end = std::min(shown.find("\x1b[K", at), end);
    lines.push_back(shown.substr(at, line_end - at));
    at = line_end + 3;
    at = std::min(shown.find_first_not_of("\r\n", at), end);
  }
  return lines;
}

// The end of what was written, for a failed check's message.
std::string Tail(const Terminal& terminal) {
  constexpr size_t kBytes = 2000;
  const std::string shown = terminal.shown();
  return shown.substr(shown.size() - std::min(shown.size(), kBytes));
}

// Whether a whole screen of that size has come.
bool AwaitScreen(const Terminal& terminal, size_t rows, size_t columns) {
  return Eventually([&] {
    const Strings lines = LastScreen(terminal);
    bool fits = lines.size() == rows;
    for (const std::string& line : lines) fits = fits && line.size() <= columns;
    return fits;
  });
}

struct Running {
  Running()
      : ddprun(RunReporting(job, folder, {"--nproc-per-node=4", "--rdzv-id=digits"},
                            {"err:hello of {rank}", "steps:" + job.File("go")})) {
    StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 4); });
  }
  ~Running() {
    job.Touch("go");
    CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  }
  // Without colours, whose escapes take no column.
  Subprocess::Options Plain() const { return folder.Here({.env = {{"NO_COLOR", "1"}}}); }

  Job job;
  const ControlFolder folder;
  const Node ddprun;
};

TEST_CASE("top: it shows the job alive, and q restores the terminal") {
  Running running;
  Terminal terminal(running.job, {"top"}, running.Plain());
  const termios before = terminal.modes();
  REQUIRE_MESSAGE(terminal.WaitFor("q quit"), Tail(terminal));
  CHECK(terminal.shown().starts_with(kEnter));
  REQUIRE_MESSAGE(AwaitScreen(terminal, 24, 80), Tail(terminal));
  CHECK(terminal.shown() == Contains("running: round 1, 1 node, 4 ranks, step "));
  CHECK(terminal.shown() == Contains("hello of 3"));
  CHECK((terminal.modes().c_lflag & (ICANON | ECHO)) == 0);
  // Another look each second.
  const size_t first = terminal.shown().size();
  CHECK_MESSAGE(terminal.WaitFor(kHome, first), Tail(terminal));
  terminal.Type("x");
  terminal.Type("q");
  CHECK(terminal.Wait() == 0);
  CHECK_MESSAGE(terminal.WaitFor(kLeave), Tail(terminal));
  CHECK(terminal.shown().ends_with(kLeave));
  CHECK(AreSame(terminal.modes(), before));
}

TEST_CASE("top: it follows the terminal's size") {
  Running running;
  Terminal terminal(running.job, {"top", "digits"}, running.Plain(), {.rows = 10, .columns = 60});
  REQUIRE_MESSAGE(AwaitScreen(terminal, 10, 60), Tail(terminal));
  for (const Terminal::Size size : {Terminal::Size{40, 132}, {5, 20}, {1, 1}, {2, 3}, {24, 80}}) {
    terminal.Resize(size);
    CHECK_MESSAGE(AwaitScreen(terminal, size.rows, size.columns), size.rows,
                  " rows: ", Tail(terminal));
  }
  terminal.Type("Q");
  CHECK(terminal.Wait() == 0);
}

TEST_CASE("top: signals end it, and the terminal is restored") {
  Running running;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Terminal terminal(running.job, {"top"}, running.Plain());
    const termios before = terminal.modes();
    REQUIRE_MESSAGE(terminal.WaitFor("q quit"), Tail(terminal));
    terminal.Signal(signal);
    CHECK_MESSAGE(terminal.Wait() == 0, Tail(terminal));
    CHECK_MESSAGE(terminal.WaitFor(kLeave), Tail(terminal));
    CHECK(terminal.shown().ends_with(kLeave));
    CHECK(AreSame(terminal.modes(), before));
  }
  Terminal terminal(running.job, {"top"}, running.Plain());
  REQUIRE_MESSAGE(terminal.WaitFor("q quit"), Tail(terminal));
  terminal.Type("\x03");  // Ctrl-C
  CHECK(terminal.Wait() == 0);
  CHECK_MESSAGE(terminal.WaitFor(kLeave), Tail(terminal));
  CHECK(terminal.shown().ends_with(kLeave));
}

TEST_CASE("top: it ends with the job, and says so on the user's own screen") {
  Job job;
  const ControlFolder folder;
  const Node ddprun =
      RunReporting(job, folder, {"--nproc-per-node=1"}, {"steps:" + job.File("go")});
  StatusUntil(job, folder, [](const json& now) { return HaveStepped(now, 1); });
  Terminal terminal(job, {"top"}, folder.Here());
  REQUIRE_MESSAGE(terminal.WaitFor("q quit"), Tail(terminal));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK_MESSAGE(terminal.Wait() == 0, Tail(terminal));
  // The end of a process is seen before the last of what it wrote.
  REQUIRE_MESSAGE(terminal.WaitFor("cannot be asked any more: "), Tail(terminal));
  const std::string shown = terminal.shown();
  const size_t left = shown.find(kLeave);
  REQUIRE(left != std::string::npos);
  CHECK(shown.substr(left) == Contains("the job is over, or cannot be asked any more: "));
}

TEST_CASE("top: without a terminal, or without a job, there is an error and 2") {
  Job job;
  const ControlFolder folder;
  const Told told = Ask(job, folder, {"top"});
  CHECK_MESSAGE(told.code == 2, told.Describe());
  CHECK(told.out.empty());
  CHECK(told.err == Contains("top needs a terminal"));
  Terminal terminal(job, {"top"}, folder.Here());
  CHECK(terminal.Wait() == 2);
  CHECK_MESSAGE(terminal.WaitFor("no job of yours runs on this machine"), Tail(terminal));
  CHECK(terminal.shown() != Contains(kEnter));
}

}  // namespace
}  // namespace ddprun::testing
