#include "launcher/report/exit_report.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rendezvous/base/plain_text.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

rendezvous::FailureReport Killed() {
  rendezvous::FailureReport failure;
  failure.host = "node1";
  failure.node_rank = 1;
  failure.rank = 5;
  failure.local_rank = 1;
  failure.pid = 1234;
  failure.exit_code = 137;
  failure.signal = 9;
  failure.message = "killed by signal 9 (SIGKILL)";
  failure.stderr_tail = "loading\nTraceback: boom\n";
  failure.unix_time_ms = 1738324800123;
  failure.error_file = "/tmp/e.json";
  return failure;
}

std::string Render(const rendezvous::FailureReport& failure) {
  return RenderExitReport({.verdict = {.exit_code = failure.exit_code,
                                       .reason = "rank 5 failed",
                                       .first_failure = failure},
                           .title = "train.py",
                           .local_failures = {}});
}

TEST_CASE("exit report: torchrun's block, the last lines and whose exit code it is") {
  const std::string expected = R"(
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-01-31_12:00:00.123Z
  host      : node1 (node_rank: 1)
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 1234) (SIGKILL)
  error_file: /tmp/e.json
  traceback : killed by signal 9 (SIGKILL), a message long enough for the full width
============================================================
Last 2 lines of rank 5's stderr:
  loading
  Traceback: boom
ddprun: exit code 137: that of rank 5 on node1, killed by signal 9 (SIGKILL), a message long enough for the full width
)";
  rendezvous::FailureReport failure = Killed();
  failure.message += ", a message long enough for the full width";
  CHECK(Render(failure) == expected);
}

// The lines of stderr that are shown behind a traceback of an error file.
std::string TailBeside(const std::string& traceback, const std::string& stderr_tail) {
  rendezvous::FailureReport failure = Killed();
  failure.error = rendezvous::WorkerError{.message = "boom", .traceback = traceback};
  failure.stderr_tail = stderr_tail;
  const std::string report = Render(failure);
  const size_t end = report.find("=\n", report.find("traceback :")) + 2;
  return report.substr(end, report.find("ddprun: exit code") - end);
}

TEST_CASE("exit report: a traceback that @record wrote, and Python as well, stands once") {
  const std::string recorded =
      "Traceback (most recent call last):\n"
      "  File \"/torch/errors/__init__.py\", line 367, in wrapper\n"
      "    return f(*args, **kwargs)\n"
      "  File \"a.py\", line 4, in inner\n"
      "    raise ValueError(\"boom\")\n"
      "ValueError: boom\n";
  const std::string header = "Traceback (most recent call last):\n";
  const std::string outer = "  File \"a.py\", line 9, in <module>\n    main()\n";
  const std::string printed = header + outer + recorded.substr(header.size());
  CHECK(TailBeside(recorded, printed) == "");
  CHECK(TailBeside(recorded, "words\n" + printed) ==
        "Last line of rank 5's stderr beside that traceback:\n  words\n");
  CHECK(TailBeside(recorded, "words\n" + printed + "more\n") ==
        "Last 2 lines of rank 5's stderr beside that traceback:\n  words\n  more\n");
  // Of a long one the beginning is not kept.
  CHECK(TailBeside(recorded, recorded.substr(recorded.find("    return"))) == "");
  // Two errors, of which the second comes of the first.
  const std::string chained =
      "Traceback (most recent call last):\n  File \"b.py\", line 1, in load\nKeyError: 'x'\n\n"
      "During handling of the above exception, another exception occurred:\n\n";
  CHECK(TailBeside(chained + recorded, "words\n" + chained + printed) ==
        "Last line of rank 5's stderr beside that traceback:\n  words\n");
  // Others' words within, and another error.
  CHECK(TailBeside(recorded, header + "words\n" + printed.substr(header.size())) ==
        "Last 9 lines of rank 5's stderr:\n  Traceback (most recent call last):\n  words\n  " +
            std::string("  File \"a.py\", line 9, in <module>\n      main()\n  ") +
            "  File \"/torch/errors/__init__.py\", line 367, in wrapper\n  "
            "    return f(*args, **kwargs)\n    File \"a.py\", line 4, in inner\n  "
            "    raise ValueError(\"boom\")\n  ValueError: boom\n");
  CHECK(TailBeside(recorded, "ValueError: other\n") ==
        "Last line of rank 5's stderr:\n  ValueError: other\n");
}

TEST_CASE("exit report: a traceback that stands above, as the rank wrote it, is not said again") {
  rendezvous::FailureReport failure = Killed();
  failure.error = rendezvous::WorkerError{
      .message = "ValueError: boom",
      .traceback =
          "Traceback (most recent call last):\n  File \"a.py\", line 4, in inner\n"
          "    raise ValueError(\"boom\")\nValueError: boom\n"};
  failure.stderr_tail = "loading\n" + failure.error->traceback + "bye\n";
  ExitReportInput input{.verdict = {.exit_code = 1, .reason = "rank 5 failed"},
                        .title = "train.py",
                        .local_failures = {failure},
                        .is_stderr_shown = true};
  bool is_whole = true;
  SUBCASE("alone") { is_whole = false; }
  SUBCASE("a message of several lines") {
    failure.error->message += "\nCompile with care";
    is_whole = false;
  }
  SUBCASE("not where stderr went to a file") { input.is_stderr_shown = false; }
  SUBCASE("nor where others failed, too, whose words stand above as well") {
    input.local_failures.push_back(Killed());
    input.local_failures.back().local_rank = 2;
    input.local_failures.back().rank = 6;
  }
  SUBCASE("nor where the program has caught it, and Python has written none") {
    failure.stderr_tail = "loading\n";
  }
  input.verdict.first_failure = failure;
  const std::string report = RenderExitReport(input);
  CAPTURE(report);
  CHECK((report.find("File \"a.py\"") != std::string::npos) == is_whole);
  CHECK((report.find("traceback : it stands above, in the rank's stderr: "
                     "ValueError: boom\n") != std::string::npos) == !is_whole);
  if (!is_whole) {
    CHECK(report ==
          Contains("Last 2 lines of rank 5's stderr beside that traceback:\n  loading\n"));
  }
}

TEST_CASE("exit report: an abort without an exception names what Gloo's groups need") {
  rendezvous::FailureReport failure = Killed();
  failure.signal = 6;
  failure.exit_code = 134;
  const std::string hint =
      "Hint: a program ends so when its Gloo group still works at exit. Call "
      "torch.distributed.destroy_process_group() before the end. If it does that already, PyTorch "
      "aborts now and then anyway; the backend ddp does not.\nddprun: exit code 134";
  CHECK(Render(failure) != Contains("Hint"));
  failure.stderr_tail = "done\nterminate called without an active exception\n";
  CHECK(Render(failure) == Contains("exception\n" + hint));
  failure.stderr_tail.clear();
  CHECK(Render(failure) != Contains("Hint"));
  failure.stderr_tail = "terminate called without an active exception\nmore";
  CHECK(Render(failure) != Contains("Hint"));
}

TEST_CASE("exit report: a success says nothing") {
  CHECK(RenderExitReport({.verdict = {.exit_code = 0, .reason = "all ranks exited 0"},
                          .title = "x",
                          .local_failures = {}}) == "");
}

TEST_CASE("exit report: an end without a failing worker is one line with the reason") {
  CHECK(RenderExitReport({.verdict = {.exit_code = 121, .reason = "join\ntimed out"},
                          .title = "x",
                          .local_failures = {}}) == "ddprun: exit code 121: join\\ntimed out\n");
}

TEST_CASE("exit report: huge texts of many workers fit into one message") {
  std::vector<rendezvous::FailureReport> all;
  for (int rank = 0; rank < 200; ++rank) {
    rendezvous::FailureReport failure = Killed();
    failure.rank = rank;
    failure.pid = 1000 + rank;
    std::string traceback = "first line of " + std::to_string(rank) + "\n";
    while (traceback.size() < 32 * 1024) traceback += std::string(100, '\x01') + "\n";
    traceback += "last line of " + std::to_string(rank);
    failure.error = rendezvous::WorkerError{.message = "boom", .traceback = traceback};
    failure.stderr_tail.clear();
    for (int line = 0; line < 50; ++line) failure.stderr_tail += std::string(1300, '\x02') + "\n";
    failure.stderr_tail += "the very last\n";
    all.push_back(std::move(failure));
  }
  const std::string report = RenderExitReport(
      {.verdict = {.exit_code = 137, .reason = "rank 3 failed", .first_failure = all[3]},
       .title = "train.py",
       .local_failures = all});
  CHECK(report.size() <= kMaxExitReportBytes);
  CHECK(report == Contains("first line of 3\n"));
  CHECK(report == Contains(" bytes left out ...\n"));
  CHECK(report == Contains("\n  last line of 3\n==="));
  CHECK(report == Contains("\n  last line of 0\n[2]:\n"));
  CHECK(report == Contains("-199: failed, too; there is no room for more here\n"));
  CHECK(report == Contains("\n  the very last\nddprun: exit code 137"));
}

TEST_CASE("exit report: the first failure's traceback is whole, of the others' the ends") {
  rendezvous::FailureReport root = Killed();
  root.error = rendezvous::WorkerError{.message = "boom", .traceback = {}};
  for (int line = 0; line < 2000; ++line)
    root.error->traceback += "line " + std::to_string(line) + "\n";
  rendezvous::FailureReport other = root;
  other.rank = 7;
  other.pid = 1235;
  other.error->traceback += "other\n";
  const std::string report = RenderExitReport(
      {.verdict = {.exit_code = 137, .reason = "rank 5 failed", .first_failure = root},
       .title = "train.py",
       .local_failures = {root, other}});
  const size_t cause = report.find("Root Cause");
  REQUIRE(cause != std::string::npos);
  const std::string others = report.substr(0, cause);
  CHECK(report.substr(cause) == Contains("\n  line 998\n  line 999\n  line 1000\n"));
  CHECK(others == Contains("  traceback : line 0\n  line 1\n"));
  CHECK(others == Contains("\n  line 1999\n  other\n"));
  CHECK(others != Contains("line 1000"));
  CHECK(others.size() < 6000);
}

TEST_CASE("exit report: fifty lines at most, the last ones") {
  rendezvous::FailureReport failure = Killed();
  failure.stderr_tail.clear();
  for (int i = 0; i < 60; ++i) failure.stderr_tail += "line " + std::to_string(i) + "\n";
  const std::string report = Render(failure);
  CHECK(report == Contains("Last 50 lines of rank 5's stderr:\n  line 10\n"));
  CHECK(report == Contains("  line 59\nddprun: exit code 137"));
  CHECK(report != Contains("line 9\n"));
}

TEST_CASE("exit report: an unfinished last line and empty lines count as lines") {
  rendezvous::FailureReport failure = Killed();
  failure.stderr_tail = "\na\n\nb";
  CHECK(Render(failure) == Contains("Last 4 lines of rank 5's stderr:\n  \n  a\n  \n  b\nddprun:"));
  failure.stderr_tail = "";
  CHECK(Render(failure) == Contains("Rank 5 wrote nothing to stderr.\n"));
}

TEST_CASE("exit report: what workers wrote cannot steer the terminal") {
  rendezvous::FailureReport failure = Killed();
  failure.stderr_tail = "\x1b]0;title\x07 \x9b 31m \xc2\x9b tab\tok \xc3\xa9 \r\nbar\rbaz\r\n";
  failure.host = "no\nde";
  failure.message = "bad\x1b[2J";
  const std::string report = Render(failure);
  CHECK(report ==
        Contains("  \\x1b]0;title\\x07 \\x9b 31m \\xc2\\x9b tab\tok \xc3\xa9 \n  bar\\rbaz\n"));
  CHECK(report == Contains("no\\nde"));
  CHECK(report == Contains("bad\\x1b[2J"));
}

TEST_CASE("exit report: a line of megabytes is cut") {
  rendezvous::FailureReport failure = Killed();
  failure.stderr_tail = std::string(60000, 'x') + "\nend\n";
  const std::string report = Render(failure);
  CHECK(report.size() < 4000);
  CHECK(report == Contains("xxx... [line cut]\n  end\n"));
}

TEST_CASE("exit report: a code that is not the worker's is said to be ddprun's own") {
  const std::string report = RenderExitReport(
      {.verdict = {.exit_code = 123, .reason = "lost the coordinator", .first_failure = Killed()},
       .title = "x",
       .local_failures = {}});
  CHECK(report == Contains("error_file: /tmp/e.json"));
  CHECK(report == Contains("ddprun: exit code 123: ddprun's own, lost the coordinator\n"));
}

TEST_CASE("exit report: a hang ends the job with ddprun's own code, and the worker has none") {
  rendezvous::FailureReport hang = Killed();
  hang.exit_code = 124;
  hang.signal = 0;
  hang.is_hang = true;
  hang.message = "hang: rank 5 has not come to all-reduce #2 for 31 s";
  hang.stderr_tail.clear();
  const rendezvous::Verdict verdict = {
      .exit_code = 124, .reason = hang.message + "; no restarts allowed", .first_failure = hang};
  const std::string report =
      RenderExitReport({.verdict = verdict, .title = "x", .local_failures = {}});
  CHECK(report == Contains("exitcode  : <N/A> (pid: 1234)\n"));
  CHECK(report == Contains("ddprun: exit code 124: ddprun's own, hang: rank 5 has not come"));
  CHECK(report != Contains("stderr"));
  CHECK(RenderTerminationMessage(
            {.first_failure = hang, .exit_code = 124, .reason = verdict.reason}) ==
        "rank 5 on node1 (node_rank: 1): hang: rank 5 has not come to all-reduce #2 for 31 s, "
        "ddprun's exit code 124\n");
}

rendezvous::FailureReport Raised(int rank, const std::string& what) {
  rendezvous::FailureReport failure = Killed();
  failure.rank = rank;
  failure.local_rank = rank;
  failure.pid = 100 + rank;
  failure.exit_code = 1;
  failure.signal = 0;
  failure.message = "exit code 1";
  failure.stderr_tail.clear();
  failure.error = rendezvous::WorkerError{
      .message = what,
      .traceback = "Traceback (most recent call last):\n  File \"a.py\"\n" + what + "\n",
      .unix_time_s = 1738324801};
  return failure;
}

TEST_CASE("exit report: an exception is shown with its traceback, indented, and its time") {
  const std::string report = Render(Raised(5, "ValueError: \x1b[31mboom"));
  CHECK(report ==
        Contains("  time      : 2025-01-31_12:00:01Z\n  host      : node1 (node_rank: 1)\n"
                 "  rank      : 5 (local_rank: 5)\n  exitcode  : 1 (pid: 105)\n"
                 "  error_file: /tmp/e.json\n"
                 "  traceback : Traceback (most recent call last):\n    File \"a.py\"\n"
                 "  ValueError: \\x1b[31mboom\n===="));
  CHECK(report == Contains("that of rank 5 on node1 (ValueError: \\x1b[31mboom)\n"));
}

TEST_CASE("exit report: an error without a traceback shows its message") {
  rendezvous::FailureReport failure = Raised(5, "out of data");
  failure.error->traceback.clear();
  CHECK(Render(failure) == Contains("  traceback : out of data\n"));
}

TEST_CASE("exit report: workers of this node that failed alike share an entry") {
  ExitReportInput input{.verdict = {.exit_code = 1, .reason = "", .first_failure = Raised(2, "A")},
                        .title = "x",
                        .local_failures = {}};
  for (const int rank : {4, 3, 2, 1, 6}) input.local_failures.push_back(Raised(rank, "A"));
  input.local_failures.push_back(Raised(7, "B"));
  input.local_failures.push_back(Raised(0, "B"));
  // Stopped by us after it had said the same.
  input.local_failures[0].signal = 15;
  input.local_failures[0].exit_code = 143;
  const std::string report = RenderExitReport(input);
  CHECK(report == Contains("Failures:\n  ranks 1, 3-4, 6: the same as [0]\n[1]:\n  time"));
  CHECK(report == Contains("  rank      : 0 (local_rank: 0)\n"));
  CHECK(report == Contains("  B\n  rank 7: the same as [1]\n----"));
  CHECK(report == Contains("Root Cause (first observed failure):\n[0]:\n"));
  CHECK(report != Contains("rank      : 3"));
  CHECK(report != Contains("NO_OTHER"));
}

TEST_CASE("exit report: without an error file the same end is the same failure") {
  rendezvous::FailureReport other = Killed();
  other.rank = 6;
  rendezvous::FailureReport different = Killed();
  different.rank = 7;
  different.signal = 11;
  const std::string report =
      RenderExitReport({.verdict = {.exit_code = 137, .reason = "", .first_failure = Killed()},
                        .title = "x",
                        .local_failures = {other, different}});
  CHECK(report == Contains("  rank 6: the same as [0]\n[1]:\n"));
  CHECK(report == Contains("  exitcode  : -11 (pid: 1234) (SIGSEGV)\n"));
}

TEST_CASE("exit report: one line where another node has the report") {
  CHECK(RenderExitReport({.verdict = {.exit_code = 137, .reason = "", .first_failure = Killed()},
                          .title = "x",
                          .local_failures = {Killed()},
                          .report_node = "n1"}) ==
        "ddprun: exit code 137: that of rank 5 on node1, killed by signal 9 (SIGKILL); n1 "
        "prints the report\n");
  CHECK(RenderExitReport({.verdict = {.exit_code = 121, .reason = "join timed out"},
                          .title = "x",
                          .local_failures = {},
                          .report_node = "n1"}) == "ddprun: exit code 121: join timed out\n");
}

std::string Terminated(const rendezvous::FailureReport& failure) {
  return RenderTerminationMessage(
      {.first_failure = failure, .exit_code = failure.exit_code, .reason = "rank 5 failed"});
}

TEST_CASE("termination message: whose failure it is, and the worker's last lines") {
  CHECK(Terminated(Killed()) ==
        "rank 5 on node1 (node_rank: 1): killed by signal 9 (SIGKILL), exit code 137\n"
        "its last lines:\nloading\nTraceback: boom\n");
}

TEST_CASE("termination message: what the worker says of it comes first") {
  rendezvous::FailureReport failure = Killed();
  failure.exit_code = 3;
  failure.message = "exit code 3";
  failure.error = {.message = "ValueError: no data\x1b[31m\nleft\n"};
  failure.stderr_tail = "";
  CHECK(Terminated(failure) ==
        "rank 5 on node1 (node_rank: 1): exit code 3\n"
        "ValueError: no data\\x1b[31m\nleft\n");
}

TEST_CASE("termination message: of a long tail the last whole lines are kept") {
  rendezvous::FailureReport failure = Killed();
  failure.stderr_tail = "";
  for (int line = 0; line < 1000; ++line) {
    failure.stderr_tail += "line " + std::to_string(line) + "\n";
  }
  const std::string text = Terminated(failure);
  CHECK(text.size() <= kMaxTerminationBytes);
  CHECK(text.size() > kMaxTerminationBytes - 10);
  CHECK(text.ends_with("\nline 998\nline 999\n"));
  CHECK(text == Contains("its last lines:\nline "));
}

TEST_CASE("termination message: of a line that is longer than the room its end is kept") {
  rendezvous::FailureReport failure = Killed();
  failure.error = {.message = std::string(1800, 'm') + "\n" + std::string(1600, 'm')};
  failure.stderr_tail = std::string(1900, 'x') + "the end\n";
  const std::string text = Terminated(failure);
  CHECK(text == Contains("its last lines:\nxxx"));
  CHECK(text == Contains("xthe end\n"));
  CHECK(text.size() <= kMaxTerminationBytes);
}

TEST_CASE("termination message: no cut parts a character") {
  for (size_t shift = 0; shift < 4; ++shift) {
    rendezvous::FailureReport failure = Killed();
    failure.error = {.message = std::string(shift, 'x')};
    for (int i = 1; i < 1500; ++i) {
      failure.error->message += i % 100 == 0 ? "\n" : "\xf0\x9f\x94\xa5";
    }
    const std::string text = Terminated(failure);
    CHECK(text.size() <= kMaxTerminationBytes);
    CHECK(text.size() > kMaxTerminationBytes - 4);
    CHECK(EscapeControl(text) != Contains("\\x"));
  }
}

TEST_CASE("termination message: an end of ddprun's own is told with its reason; a success is not") {
  CHECK(RenderTerminationMessage(
            {.first_failure = std::nullopt, .exit_code = 121, .reason = "1 of 2 nodes came"}) ==
        "exit code 121: 1 of 2 nodes came\n");
  CHECK(RenderTerminationMessage(
            {.first_failure = Killed(), .exit_code = 143, .reason = "stopped by SIGTERM"}) ==
        "rank 5 on node1 (node_rank: 1): killed by signal 9 (SIGKILL), exit code 137\n"
        "ddprun: exit code 143: stopped by SIGTERM\n"
        "its last lines:\nloading\nTraceback: boom\n");
  CHECK(RenderTerminationMessage({.first_failure = std::nullopt, .exit_code = 0, .reason = ""})
            .empty());
}

}  // namespace
}  // namespace ddprun::launcher
