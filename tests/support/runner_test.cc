// The main of the test programs, by a program whose files pass, fail, crash, hang, ...
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr char kFolder[] = "tests/support/runner_fixture/";

// One run of the fixture, with a folder for what it writes.
class Run {
 public:
  // Only the source files named, without their folder and ending. `starter`: what starts it.
  Run(const std::vector<std::string>& files, Variables env = {},
      const std::vector<std::string>& options = {}, std::vector<std::string> starter = {})
      : program_(Command(files, options, std::move(starter)),
                 {.env = Environment(std::move(env))}) {}

  Subprocess& program() { return program_; }
  int Code() {
    const std::optional<int> code = program_.Wait();
    REQUIRE_MESSAGE(code.has_value(), program_.Describe());
    return *code;
  }
  std::string out() const { return program_.out(); }
  std::string err() const { return program_.err(); }
  // Empty where none was written.
  std::string Xml() const { return ReadFile(folder_.File("test.xml")); }
  std::string MarkFile() const { return folder_.File("mark"); }
  // What still lives of the program and of what its tests started.
  std::vector<int> Processes() const { return ProcessesWithEnv("RUNNER_FIXTURE_MARK", MarkFile()); }
  // Names of what is left in the TMPDIR that it was given.
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.File("tmp"))) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

 private:
  static std::vector<std::string> Command(const std::vector<std::string>& files,
                                          const std::vector<std::string>& options,
                                          std::vector<std::string> command) {
    command.push_back(Runfile("tests/support/runner_fixture/runner_fixture"));
    // doctest reads the last option of a name alone.
    std::string filter;
    for (const std::string& file : files) filter += "*/" + file + ".cc,";
    if (!files.empty()) command.push_back("--source-file=" + filter);
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }
  Variables Environment(Variables env) const {
    std::filesystem::create_directory(folder_.File("tmp"));
    // An empty value removes what this very program was given.
    Variables all = {{"TMPDIR", folder_.File("tmp")},
                     {"RUNNER_FIXTURE_TMPDIR", folder_.File("tmp")},
                     {"RUNNER_FIXTURE_MARK", MarkFile()},
                     {"XML_OUTPUT_FILE", folder_.File("test.xml")},
                     {"DDPRUN_TEST_TIME_FACTOR", ""}};
    for (auto& [name, value] : env) all[name] = value;
    return all;
  }

  const TempDir folder_;
  Subprocess program_;
};

std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

// The end of the line that starts with `file`'s path and a colon, without the time.
std::string LineOf(const std::string& out, const std::string& file) {
  const std::string start = std::string("\n") + kFolder + file + ".cc: ";
  const size_t at = ("\n" + out).find(start);
  if (at == std::string::npos) return "";
  std::string line = out.substr(at + start.size() - 1);
  line = line.substr(0, line.find('\n'));
  const size_t time = line.rfind(", ", line.find(" s"));
  const size_t after = line.find(" s", time);
  return line.substr(0, time) + line.substr(after + 2);
}

std::string Summary(int passed, int failed) {
  char text[128];
  std::snprintf(text, sizeof text, "[doctest] test cases: %3d | %3d passed | %d failed | 0 skipped",
                passed + failed, passed, failed);
  return text;
}

TEST_CASE("runner: files that pass end well, each below its name") {
  Run run({"passes", "skips"});
  CHECK(run.Code() == 0);
  CHECK(run.out() ==
        std::string("---- ") + kFolder + "passes.cc\nprinted by passes\n---- " + kFolder +
            "skips.cc\nSKIPPED: no \"torch\"\nSKIPPED also: no <GPU>\nSKIPPED: no etcd\n" +
            Summary(5, 0) + "\n");
  CHECK(run.err() == "");
  CHECK(run.Xml() ==
        Contains(R"(<testsuites tests="5" failures="0" errors="0" skipped="2" time=)"));
  CHECK(run.Xml() ==
        Contains(R"(<skipped message="no &#34;torch&#34;; no &#60;GPU&#62;"></skipped>)"));
}

TEST_CASE("runner: a failed check is in the output, the line, the code and the XML") {
  Run run({"fails", "passes"});
  CHECK(run.Code() == 1);
  CHECK(run.out() == Contains("fails.cc:8: ERROR: CHECK( seen == 4 ) is NOT correct!"));
  CHECK(LineOf(run.out(), "fails") == "1 passed, 1 failed");
  CHECK(LineOf(run.out(), "passes") == "");
  CHECK(LastLine(run.out()) == Summary(3, 1));
  CHECK(run.Xml() == Contains("name=\"fails: before\" time=\""));
  CHECK(run.Xml() ==
        Contains("fails.cc:8: CHECK( seen == 4 ) with values 3 == 4&#10;  context of the failure"));
  CHECK(run.Xml() == Contains("and says why"));
}

TEST_CASE("runner: a crash fails its case and those after it, not the other files") {
  Run run({"crashes", "passes"});
  CHECK(run.Code() == 1);
  // A sanitizer turns the signal into an exit.
  const std::string line = LineOf(run.out(), "crashes");
  CHECK(line == Contains("1 passed, 2 failed (1 of them not run): e"));
  CHECK(line == Contains(" in \"crashes: here\""));
  CHECK(LastLine(run.out()) == Summary(3, 2));
  CHECK(run.Xml() == Contains(R"(tests="3" failures="0" errors="2" skipped="0")"));
  CHECK(run.Xml() ==
        Contains(R"(name="crashes: after" time="0.000"><error message="was not run">)"));
}

TEST_CASE("runner: a process that ends well within a case has failed") {
  Run run({"exits"});
  CHECK(run.Code() == 1);
  CHECK(LineOf(run.out(), "exits") ==
        "1 passed, 1 failed: exited with status 0 in \"exits: here, and well\"");
  CHECK(LastLine(run.out()) == Summary(1, 1));
  CHECK(run.Xml() == Contains("<error message=\"exited with status 0\">"));
}

TEST_CASE("runner: a process that ends badly after its cases has failed") {
  Run run({"ends_badly"});
  CHECK(run.Code() == 1);
  CHECK(LineOf(run.out(), "ends_badly") ==
        "1 passed, 1 failed: exited with status 23 after the last case");
  CHECK(LastLine(run.out()) == Summary(1, 1));
  CHECK(run.Xml() == Contains("<error message=\"exited with status 23 after the last case\">"));
}

// Long enough for a machine that stands still meanwhile: what a file does before it hangs is seen.
TEST_CASE("runner: at the limit a file is killed, with its group; what it printed is shown") {
  const Variables limit = {{"DDPRUN_TEST_FILE_LIMIT_S", "2.5"}, {"DDPRUN_TEST_TIME_FACTOR", "2"}};
  Run run({"hangs", "passes"}, limit);
  Run elsewhere({"hangs_elsewhere"}, limit);
  CHECK(run.Code() == 1);
  CHECK(run.out() == Contains("hangs.cc\nprinted before the hang\n"));
  CHECK(LineOf(run.out(), "hangs") ==
        "1 passed, 1 failed: was killed at the limit of 5 s in \"hangs: here\"");
  CHECK(LastLine(run.out()) == Summary(3, 1));
  CHECK(run.Xml() == Contains("<error message=\"was killed at the limit of 5 s\">"));
  CHECK(Eventually([&] { return run.Processes().empty(); }));
  CHECK(run.Left() == std::vector<std::string>{});

  // A process that has gone to another group than its own is killed as well.
  CHECK(elsewhere.Code() == 1);
  CHECK(LineOf(elsewhere.out(), "hangs_elsewhere") == Contains("was killed at the limit of 5 s"));
}

TEST_CASE("runner: a signal ends the file that runs, and the program says how far it came") {
  for (const auto& [number, name] : {std::pair{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}}) {
    CAPTURE(std::string(name));
    Run run({"fails", "hangs", "passes"});
    REQUIRE(Eventually([&] { return std::filesystem::exists(run.MarkFile()); }));
    run.program().Signal(number);
    CHECK(run.Code() == 128 + number);
    CHECK(run.out() == Contains("hangs.cc\nprinted before the hang\n"));
    CHECK(LineOf(run.out(), "fails") == "1 passed, 1 failed");
    CHECK(LineOf(run.out(), "hangs") == std::string("1 passed, 1 failed: was killed, as this "
                                                    "program got ") +
                                            name + ", in \"hangs: here\"");
    CHECK(LineOf(run.out(), "passes") == "0 passed, 2 failed (2 of them not run)");
    CHECK(LastLine(run.out()) == Summary(2, 4));
    CHECK(run.Xml() == Contains(R"(<testsuites tests="6" failures="1" errors="3" skipped="0")"));
    CHECK(Eventually([&] { return run.Processes().empty(); }));
    CHECK(run.Left() == std::vector<std::string>{});
  }
}

TEST_CASE("runner: a file dies with the program") {
  Run run({"hangs"});
  REQUIRE(Eventually([&] { return std::filesystem::exists(run.MarkFile()); }));
  run.program().Signal(SIGKILL);
  CHECK(run.Code() == 128 + SIGKILL);
  // The process that its case has forked belongs to nobody: here this test ends it.
  CHECK(Eventually([&] { return run.Processes().size() == 1; }));
  for (const int pid : run.Processes()) kill(pid, SIGKILL);
}

TEST_CASE("runner: processes that outlive a file end with it, or are not waited for") {
  Run run({"left_behind"});
  CHECK(run.Code() == 0);
  CHECK(LastLine(run.out()) == Summary(2, 0));
  CHECK(Eventually([&] { return run.Processes().size() == 1; }));
  for (const int pid : run.Processes()) {
    CHECK(run.out() == Contains("left " + std::to_string(pid) + "\n"));
    kill(pid, SIGKILL);
  }
}

TEST_CASE("runner: a file for which no folder can be made has failed") {
  for (const char* is_streaming : {"0", "1"}) {
    CAPTURE(std::string(is_streaming));
    Run run({"passes"}, {{"TMPDIR", "/nowhere"}, {"DDPRUN_TEST_STREAM", is_streaming}});
    CHECK(run.Code() == 1);
    CHECK(LineOf(run.out(), "passes") ==
          "0 passed, 3 failed (2 of them not run): was not started: make "
          "\"/nowhere/ddprun-t-XXXXXX\": No such file or directory");
    CHECK(run.Xml() == Contains("<error message=\"was not run\">"));
  }
}

TEST_CASE("runner: a process that a case has forked does not speak for it") {
  Run run({"forks"});
  CHECK(run.Code() == 1);
  CHECK(LineOf(run.out(), "forks") ==
        "0 passed, 1 failed: exited with status 1 in \"forks: here\"");
  CHECK(run.Xml() == Contains("<error message=\"exited with status 1\"></error>"));
}

TEST_CASE("runner: it waits for its files where it was started to ignore SIGCHLD") {
  Run run({"passes", "fails"}, {}, {}, {"/usr/bin/env", "--ignore-signal=CHLD"});
  CHECK(run.Code() == 1);
  CHECK(LastLine(run.out()) == Summary(3, 1));
}

TEST_CASE("runner: each file finds a new process") {
  Run run({"first_change", "second_change"},
          {{"TEST_TOTAL_SHARDS", "1"}, {"TESTBRIDGE_TEST_ONLY", "*change: *"}});
  CHECK_MESSAGE(run.Code() == 0, run.program().Describe());
  CHECK(LastLine(run.out()) == Summary(2, 0));
}

TEST_CASE("runner: whatever bytes a test prints, the XML is valid") {
  Run run({"garbage"});
  CHECK(run.Code() == 1);
  CHECK(run.out() == Contains(std::string("\x00\x1b[31m\xfe", 7)));
  CHECK(run.Xml() == Contains("name=\"garbage: \\xff\\x01 &#60;&#38;&#62; \xc3\xa9\""));
  CHECK(run.Xml().find_first_of(std::string("\x00\x01\x1b\xfe\xff", 5)) == std::string::npos);
}

TEST_CASE("runner: with streaming the output comes before the end") {
  Run run({"hangs"}, {{"DDPRUN_TEST_STREAM", "1"}});
  CHECK(run.program().WaitForOut("printed before the hang\n"));
  CHECK(run.out() == "printed before the hang\n");
  run.program().Signal(SIGTERM);
  CHECK(run.Code() == 128 + SIGTERM);
}

TEST_CASE("runner: doctest's filters and Bazel's choose cases; other files are not started") {
  Run by_option({}, {}, {"--test-case=passes: the first,fails: before"});
  CHECK(by_option.Code() == 0);
  CHECK(LastLine(by_option.out()) == Summary(2, 0));
  CHECK(by_option.Xml() == Contains(R"(<testsuites tests="2")"));

  Run by_bazel({}, {{"TESTBRIDGE_TEST_ONLY", "*: before"}}, {"--source-file-exclude=*crashes*"});
  CHECK(by_bazel.Code() == 0);
  CHECK(LastLine(by_bazel.out()) == Summary(2, 0));

  Run by_range({}, {}, {"--source-file=*crashes*,*passes*", "--first=3", "--last=4"});
  CHECK(by_range.Code() == 0);
  CHECK(by_range.out() != Contains("CRASHED"));
  CHECK(by_range.Xml() == Contains("name=\"crashes: after\""));
  CHECK(by_range.Xml() == Contains("name=\"passes: the first\""));
  CHECK(LastLine(by_range.out()) == Summary(2, 0));
}

TEST_CASE("runner: doctest's list of cases is that of all files") {
  Run run({"crashes", "passes"}, {}, {"--list-test-cases"});
  CHECK(run.Code() == 0);
  CHECK(run.out() == Contains("crashes: here\n"));
  CHECK(run.out() == Contains("passes: the first\n"));
  CHECK(run.out() != Contains("hangs"));
  CHECK(run.Xml() == "");
}

TEST_CASE("runner: a filter that matches nothing is an error") {
  Run run({}, {{"TESTBRIDGE_TEST_ONLY", "no such case"}});
  CHECK(run.Code() == 1);
  CHECK(run.err() == "no test case matches: none is run\n");
}

TEST_CASE("runner: files are dealt to shards in turn; a shard without one passes") {
  const std::vector<std::string> files = {"fails", "passes", "skips"};
  Run first(files, {{"TEST_TOTAL_SHARDS", "2"}, {"TEST_SHARD_INDEX", "0"}});
  CHECK(first.Code() == 1);
  CHECK(LastLine(first.out()) == Summary(4, 1));

  const TempDir folder;
  Run second(files, {{"TEST_TOTAL_SHARDS", "2"},
                     {"TEST_SHARD_INDEX", "1"},
                     {"TEST_SHARD_STATUS_FILE", folder.File("status")}});
  CHECK(second.Code() == 0);
  CHECK(LastLine(second.out()) == Summary(2, 0));
  CHECK(second.Xml() == Contains("passes: the first"));
  CHECK(std::filesystem::exists(folder.File("status")));

  Run fourth(files, {{"TEST_TOTAL_SHARDS", "4"}, {"TEST_SHARD_INDEX", "3"}});
  CHECK(fourth.Code() == 0);
  CHECK(LastLine(fourth.out()) == Summary(0, 0));
}

TEST_CASE("runner: what cannot be meant is refused") {
  Run limit({"passes"}, {{"DDPRUN_TEST_FILE_LIMIT_S", "soon"}});
  CHECK(limit.Code() == 1);
  CHECK(limit.err() == "DDPRUN_TEST_FILE_LIMIT_S=\"soon\": not a positive number\n");

  Run order({"passes"}, {}, {"--order-by=rand"});
  CHECK(order.Code() == 1);
  CHECK(order.err() == "--order-by: the cases run by file, in no other order\n");

  Run xml({"passes"}, {{"XML_OUTPUT_FILE", "/nowhere/test.xml"}});
  CHECK(xml.Code() == 1);
  CHECK(xml.err() == "write \"/nowhere/test.xml\": No such file or directory\n");
}

}  // namespace
}  // namespace ddprun::testing
