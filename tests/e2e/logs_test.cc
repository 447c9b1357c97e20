// `ddprun logs`: what one rank has written, on whatever node it runs.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/e2e/asking.h"
#include "tests/e2e/terminal.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;
using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr size_t kMaxShown = 64 * 1024;

Strings LogsOf(int rank, Strings more = {}) {
  more.insert(more.begin(), {"logs", "--rank=" + std::to_string(rank)});
  return more;
}

TEST_CASE("logs: a rank's stderr is shown, and that its stdout is not here") {
  Job job;
  const ControlFolder folder;
  const Node ddprun = RunReporting(job, folder, {"--nproc-per-node=2"},
                                   {"print:out of {rank}", "err:first of {rank}",
                                    "err:second of {rank}", "until:" + job.File("go")});
  for (const int rank : {0, 1}) {
    const std::string name = std::to_string(rank);
    const Told told = AskUntil(job, folder, LogsOf(rank), Shows("second"));
    CHECK_MESSAGE(told.code == 0, told.Describe());
    CHECK(told.out == "first of " + name + "\nsecond of " + name + "\n");
    CHECK(told.err == Contains("--tee 3 or --redirects 3"));
  }
  const Told none = Ask(job, folder, LogsOf(2));
  CHECK_MESSAGE(none.code == 2, none.Describe());
  CHECK(none.out.empty());
  CHECK(none.err == Contains("logs: there is no rank 2 in this job, which has ranks 0 to 1"));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("logs: with --tee or --redirects both streams are shown") {
  for (const char* option : {"--tee=3", "--redirects=3"}) {
    Job job;
    const ControlFolder folder;
    const Node ddprun =
        RunReporting(job, folder, {"--nproc-per-node=2", option, "--log-dir=" + job.File("logs")},
                     {"print:out of {rank}", "err:err of {rank}", "until:" + job.File("go")});
    const Told told = AskUntil(job, folder, LogsOf(1), [](const Told& now) {
      return Shows("out of 1\n")(now) && Shows("err of 1\n")(now);
    });
    CHECK_MESSAGE(told.code == 0, told.Describe());
    CHECK(told.err.empty());
    CHECK(told.out != Contains("of 0"));
    job.Touch("go");
    CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  }
}

TEST_CASE("logs: -f goes on as a rank writes, leaves nothing out, and ends with the job") {
  Job job;
  const ControlFolder folder;
  const Node ddprun =
      RunReporting(job, folder, {"--nproc-per-node=1"}, {"err:begin", "lines:" + job.File("go")});
  folder.Socket();
  AskUntil(job, folder, LogsOf(0), Shows("begin\n"));
  const Node follower = job.RunRaw(LogsOf(0, {"-f"}), folder.Here());
  REQUIRE_MESSAGE(follower->WaitForOut("err 300\n"), follower->Describe());
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK_MESSAGE(follower->Wait() == 0, follower->Describe());
  const std::string shown = follower->out();
  std::string expected = "begin\n";
  for (int number = 0; expected.size() < shown.size(); ++number) {
    expected += "err " + std::to_string(number) + "\n";
  }
  CHECK(shown == expected);
}

TEST_CASE("logs: -f goes on with the worker of the next round, from its first line") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  // The first worker writes more than the second.
  const Strings steps = {"err:begin of round {restart} " + std::string(300, 'x') + "#0",
                         "err:begin of round {restart}#1",
                         "until:" + job.File("fail") + "@1#0",
                         "exit:3@1#0",
                         "until:" + job.File("go"),
                         "err:end of round {restart}",
                         "until:" + job.File("over")};
  for (const ControlFolder& folder : folders) {
    nodes.push_back(
        RunReporting(job, folder, job.NodeOptions(1, "2", {"--max-restarts=1"}), steps));
  }
  std::vector<Node> followers;
  for (const ControlFolder& folder : folders) {
    AskUntil(job, folder, LogsOf(0), Shows("begin of round 0"));
    followers.push_back(job.RunRaw(LogsOf(0, {"-f"}), folder.Here()));
    REQUIRE_MESSAGE(followers.back()->WaitForOut("begin of round 0"), followers.back()->Describe());
  }
  job.Touch("fail");
  for (const Node& follower : followers) {
    CHECK_MESSAGE(follower->WaitForOut("\nbegin of round 1\n"), follower->Describe());
  }
  job.Touch("go");
  for (const Node& follower : followers) {
    CHECK_MESSAGE(follower->WaitForOut("\nend of round 1\n"), follower->Describe());
  }
  job.Touch("over");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
  for (const Node& follower : followers) {
    CHECK_MESSAGE(follower->Wait() == 0, follower->Describe());
    CHECK_MESSAGE(CountOf(follower->out(), "begin of round 1") == 1, follower->Describe());
  }
}

TEST_CASE("logs: the last 64 KiB are shown of more, and what is no UTF-8 is replaced") {
  Job job;
  const ControlFolder folder;
  std::string text;
  while (text.size() < 3 * kMaxShown) text += "line at " + std::to_string(text.size()) + "\n";
  text += "\xff\xfe end\n";
  const std::string file = WriteFile(job.File("text"), text);
  const Node ddprun = RunReporting(job, folder, {"--nproc-per-node=1"},
                                   {"err-file:" + file, "until:" + job.File("go")});
  const Told told = AskUntil(job, folder, LogsOf(0), Shows("end\n"));
  CHECK_MESSAGE(told.code == 0, told.Describe());
  CHECK(told.out.size() <= kMaxShown + 4);
  CHECK(told.out.size() > kMaxShown / 2);
  CHECK(told.out.ends_with("\n\xef\xbf\xbd\xef\xbf\xbd end\n"));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("logs: on a terminal control characters and bytes that are no UTF-8 are made visible") {
  Job job;
  const ControlFolder folder;
  const std::string file =
      WriteFile(job.File("text"), "\x1b[2Jgone\x07 \x1b]0;title\x07\xff 10 %\r\nend\n");
  const Node ddprun = RunReporting(job, folder, {"--nproc-per-node=1"},
                                   {"err-file:" + file, "until:" + job.File("go")});
  AskUntil(job, folder, LogsOf(0), Shows("end\n"));
  Terminal terminal(job, LogsOf(0), folder.Here());
  CHECK_MESSAGE(terminal.WaitFor("end\r\n"), terminal.shown());
  CHECK(terminal.Wait() == 0);
  CHECK(terminal.shown() == Contains("\\x1b[2Jgone\\x07 \\x1b]0;title\\x07"));
  CHECK(terminal.shown() != Contains("\x1b"));
  CHECK(terminal.shown() != Contains("\x07"));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

TEST_CASE("logs: those of another node's rank come from there") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  const Strings steps = {"err:words of {rank}", "until:" + job.File("go")};
  for (const ControlFolder& folder : folders) {
    nodes.push_back(RunReporting(job, folder, job.NodeOptions(2), steps));
  }
  for (const ControlFolder& folder : folders) {
    for (int rank = 0; rank < 4; ++rank) {
      const std::string words = "words of " + std::to_string(rank) + "\n";
      const Told told = AskUntil(job, folder, LogsOf(rank), Shows(words));
      CHECK_MESSAGE(told.code == 0, told.Describe());
      CHECK(told.out == words);
    }
    const Told none = Ask(job, folder, LogsOf(4));
    CHECK_MESSAGE(none.code == 2, none.Describe());
    CHECK(none.err == Contains("there is no rank 4 in this job"));
  }
  job.Touch("go");
  for (const Node& node : nodes) CHECK_MESSAGE(node->Wait() == 0, node->Describe());
}

TEST_CASE("logs: what another node's rank writes of control characters does not break the job") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  // Each takes six bytes in JSON.
  const std::string file =
      WriteFile(job.File("text"), std::string(2 * kMaxShown, '\x01') + "\nend\n");
  const Strings steps = {"err-file:" + file, "until:" + job.File("go")};
  for (const ControlFolder& folder : folders) {
    nodes.push_back(RunReporting(job, folder, job.NodeOptions(1), steps));
  }
  for (const ControlFolder& folder : folders) {
    for (int rank = 0; rank < 2; ++rank) {
      const Told told = AskUntil(job, folder, LogsOf(rank), Shows("\nend\n"));
      CHECK_MESSAGE(told.code == 0, told.err);
      CHECK(told.out.size() <= kMaxShown);
    }
  }
  job.Touch("go");
  for (const Node& node : nodes) {
    CHECK_MESSAGE(node->Wait() == 0, "pid ", node->pid());
    CHECK(node->err() != Contains(" lost"));
  }
}

}  // namespace
}  // namespace ddprun::testing
