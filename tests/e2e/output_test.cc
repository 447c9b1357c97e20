// What the real ddprun runs and prints: help, version, scripts, log files, prefixes.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/e2e/job.h"
#include "tests/e2e/terminal.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

// The one folder that a run made under its --log-dir.
std::filesystem::path RunFolder(const std::string& log_dir) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(log_dir)) found.push_back(entry);
  REQUIRE(found.size() == 1);
  return found.front();
}

void MakeExecutable(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  REQUIRE(chmod(path.c_str(), 0755) == 0);
}

TEST_CASE("output: --help shows an example first, --version is one line") {
  Job job;
  auto help = job.RunRaw({"--help"});
  REQUIRE_MESSAGE(help->Wait() == 0, help->Describe());
  CHECK(help->out().rfind("Examples:\n  ddprun --nproc-per-node=4 ./train", 0) == 0);
  CHECK(help->err().empty());
  auto version = job.RunRaw({"--version"});
  REQUIRE_MESSAGE(version->Wait() == 0, version->Describe());
  CHECK(version->out().rfind("ddprun ", 0) == 0);
  CHECK(version->out().ends_with(" (protocol 2)\n"));
}

TEST_CASE("output: a script with an execute bit and a name on PATH run as they are") {
  Job job;
  MakeExecutable(job.File("my script"), "#!/bin/sh\necho \"script $RANK $1\"\n");
  auto script = job.RunRaw({"--nproc-per-node=1", job.File("my script"), "--nnodes=9"});
  REQUIRE_MESSAGE(script->Wait() == 0, script->Describe());
  CHECK(script->out() == "script 0 --nnodes=9\n");
  auto on_path = job.RunRaw({"my script", "x"}, {.env = {{"PATH", job.File("")}}});
  REQUIRE_MESSAGE(on_path->Wait() == 0, on_path->Describe());
  CHECK(on_path->out() == "script 0 x\n");
}

TEST_CASE("output: arguments reach the program byte for byte, whatever they are") {
  Job job;
  MakeExecutable(job.File("show"), "#!/bin/sh\nprintf '<%s>' \"$@\"\n");
  const std::vector<std::string> odd = {"\xff\na b", "", "$HOME `id` *", "--", "\x1b[2J\r\\n"};
  std::vector<std::string> arguments = {"--nproc-per-node=1", job.File("show")};
  std::string shown;
  for (const std::string& argument : odd) {
    arguments.push_back(argument);
    shown += "<" + argument + ">";
  }
  auto ddprun = job.RunRaw(arguments);
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == shown);
}

TEST_CASE("output: a .py file runs under PYTHON_EXEC with -u") {
  Job job;
  MakeExecutable(job.File("python"), "#!/bin/sh\necho \"python $*\"\n");
  std::ofstream(job.File("train.py")) << "never run by this interpreter\n";
  auto ddprun = job.RunRaw({job.File("train.py"), "--lr", "1"},
                           {.env = {{"PYTHON_EXEC", job.File("python")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == "python -u " + job.File("train.py") + " --lr 1\n");
}

TEST_CASE("output: a .py file runs under the machine's python3") {
  Job job;
  // One write a line: print() under -u writes the newline by itself.
  std::ofstream(job.File("train.py"))
      << "import os\nos.write(1, ('rank %s\\n' % os.environ['RANK']).encode())\n";
  auto ddprun = job.RunRaw({"--nproc-per-node=2", job.File("train.py")});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == Contains("rank 0\n"));
  CHECK(ddprun->out() == Contains("rank 1\n"));
}

TEST_CASE("output: redirected streams are in files of each attempt and rank, not on the console") {
  Job job;
  auto ddprun = job.Run(
      {"--nproc-per-node=2", "--max-restarts=1", "--rdzv-id=run", "-r", "3",
       "--log-dir=" + job.File("logs")},
      {"print:out {rank} {restart}", "err:err {rank} {restart}", "touch:" + job.File("up{rank}"),
       "until:" + job.File("up0"), "until:" + job.File("up1"), "exit:1@0#0", "wait#0"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out().empty());
  CHECK(ddprun->err() != Contains("err "));
  const std::filesystem::path folder = RunFolder(job.File("logs"));
  CHECK(folder.filename().string().rfind("run_", 0) == 0);
  for (const std::string rank : {"0", "1"}) {
    for (const std::string attempt : {"0", "1"}) {
      const std::filesystem::path files = folder / ("attempt_" + attempt) / rank;
      CHECK(ReadFile(files / "stdout.log") == "out " + rank + " " + attempt + "\n");
      CHECK(ReadFile(files / "stderr.log") == "err " + rank + " " + attempt + "\n");
    }
  }
}

TEST_CASE("output: tee'd streams are in files and, line by line with a prefix, on the console") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "-t", "3", "--log-dir=" + job.File("logs")},
                        {"print:out {rank}", "err:err {rank}"});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == Contains("[default0]:out 0\n"));
  CHECK(ddprun->out() == Contains("[default1]:out 1\n"));
  CHECK(ddprun->err() == Contains("[default1]:err 1\n"));
  const std::filesystem::path files = RunFolder(job.File("logs")) / "attempt_0" / "1";
  CHECK(ReadFile(files / "stdout.log") == "out 1\n");
}

TEST_CASE("output: a prompt under --tee is shown at once, and is one line with what follows") {
  Job job;
  MakeExecutable(job.File("asks"),
                 "#!/bin/sh\nprintf 'name? '\nread name\necho \"hello $name\"\necho bye\n");
  const std::string log_dir = job.File("logs");
  Terminal terminal(
      job, {"--nproc-per-node=1", "-t", "3", "--log-dir=" + log_dir, job.File("asks")}, {});
  REQUIRE_MESSAGE(terminal.WaitFor("[default0]:name? "), terminal.shown());
  terminal.Type("you\n");
  CHECK(terminal.Wait() == 0);
  CHECK_MESSAGE(terminal.WaitFor("[default0]:name? you\r\nhello you\r\n[default0]:bye\r\n"),
                terminal.shown());
  CHECK(ReadFile(RunFolder(log_dir) / "attempt_0" / "0" / "stdout.log") ==
        "name? hello you\nbye\n");
}

TEST_CASE("output: only the chosen local ranks reach the console, files have all") {
  Job job;
  auto ddprun =
      job.Run({"--nproc-per-node=3", "-t", "0:1,1:1", "--log-dir=" + job.File("logs")},
              {"print:out {rank}", "err:err {rank}"}, {.env = {{"PET_LOCAL_RANKS_FILTER", "1"}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == "[default1]:out 1\n");
  CHECK(ddprun->err() == Contains("err 1\n"));
  CHECK(ddprun->err() != Contains("err 0\n"));
  CHECK(ddprun->err() != Contains("err 2\n"));
  const std::filesystem::path files = RunFolder(job.File("logs")) / "attempt_0";
  CHECK(ReadFile(files / "0" / "stdout.log") == "out 0\n");
}

TEST_CASE("output: the report has the stderr of a failed worker that the console did not show") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "--local-ranks-filter=0"},
                        {"err:why it failed@1", "exit:7@1", "wait@0"});
  REQUIRE_MESSAGE(ddprun->Wait() == 7, ddprun->Describe());
  CHECK_MESSAGE(CountOf(ddprun->err(), "why it failed") == 1, ddprun->Describe());
}

TEST_CASE("output: lines that a filter names are copied, with the prefix of --log_line_prefix") {
  Job job;
  const std::vector<std::string> options = {
      "--nproc-per-node=2",
      "-t",
      "1",
      "--log-dir=" + job.File("logs"),
      "--duplicate-stdout-filters=loss 0,,5,done",
      "--duplicate-stderr-filters=x",
      "--log-line-prefix-template=${role_name}/${rank}/${hostname}/${nothing} "};
  auto ddprun = job.Run(options, {"print:loss 0,5", "print:loss 0", "print:done@1"},
                        {.env = {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[other]"}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("warning: --duplicate-stderr-filters copies nothing"));
  CHECK(ddprun->err() != Contains("--duplicate-stdout-filters"));
  const std::filesystem::path files = RunFolder(job.File("logs")) / "attempt_0";
  char host[256] = {};
  REQUIRE(gethostname(host, sizeof host - 1) == 0);
  const std::string end = "/" + std::string(host) + "/${nothing} ";
  std::istringstream copied(ReadFile(files / "filtered_stdout.log"));
  std::multiset<std::string> lines;
  for (std::string line; std::getline(copied, line);) lines.insert(line);
  CHECK(lines == std::multiset<std::string>{"default/0" + end + "loss 0,5",
                                            "default/1" + end + "loss 0,5",
                                            "default/1" + end + "done"});
  CHECK_FALSE(std::filesystem::exists(files / "filtered_stderr.log"));
}

TEST_CASE("output: a membership restart keeps the logs of the round before") {
  Job job;
  const std::vector<std::string> options =
      job.NodeOptions(1, "1:2", {"--rdzv-conf=last_call_timeout=1", "-r", "1"});
  std::vector<std::string> a_options = options;
  a_options.push_back("--log-dir=" + job.File("logs"));
  // The first round has one worker that waits; the second, with another node, ends.
  const std::vector<std::string> steps = {"env:WORLD_SIZE", "touch:" + job.File("up{rank}"),
                                          "until:" + job.File("up1")};
  auto a = job.Run(a_options, steps);
  REQUIRE_MESSAGE(job.WaitForFile("up0"), a->Describe());
  auto b = job.Run(options, steps);
  REQUIRE_MESSAGE(a->Wait() == 0, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 0, b->Describe());
  const std::filesystem::path folder = RunFolder(job.File("logs"));
  CHECK(ReadFile(folder / "attempt_0" / "0" / "stdout.log") == "WORLD_SIZE=1\n");
  CHECK(ReadFile(folder / "attempt_0.1" / "0" / "stdout.log") == "WORLD_SIZE=2\n");
}

TEST_CASE(
    "output: where files go without --log_dir is said, a rank that is not here is warned of") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=1", "-r", "0:1,12:3"}, {"print:x"},
                        {.env = {{"TMPDIR", job.File("")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() == Contains("ddprun: log files are in " + job.File("")));
  CHECK(ddprun->err() == Contains("--redirects: no worker here has local rank 12; the only one "
                                  "is 0"));
}

TEST_CASE("output: the report shows the last 50 lines of the first failing worker's stderr") {
  Job job;
  MakeExecutable(job.File("worker"),
                 "#!/bin/sh\ni=0\nwhile [ $i -lt 80 ]; do echo \"line $i\" >&2; i=$((i+1)); done\n"
                 "exit 5\n");
  // Not on the console otherwise, so that what is found stands in the report.
  auto ddprun = job.RunRaw({"-r", "2", "--log-dir=" + job.File("logs"), job.File("worker")});
  REQUIRE_MESSAGE(ddprun->Wait() == 5, ddprun->Describe());
  CHECK(ddprun->err() == Contains("line 79\n"));
  CHECK(ddprun->err() == Contains("line 30\n"));
  CHECK(ddprun->err() != Contains("line 29\n"));
}

TEST_CASE("output: a console that nobody reads stops no job") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=2", "-t", "1", "--log-dir=" + job.File("logs")},
                        {"print:" + std::string(2000, 'x'), "print:" + std::string(2000, 'y')},
                        {.is_stalled = true});
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
}

}  // namespace
}  // namespace ddprun::testing
