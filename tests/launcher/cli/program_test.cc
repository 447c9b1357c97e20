#include "launcher/cli/program.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using testing::WriteFile;

using Words = std::vector<std::string>;

Environment With(std::vector<std::string> variables) {
  return {.variables = std::move(variables), .machine = {}};
}

struct Failure {
  int exit_code;
  std::string message;
};

Failure FailureOf(const std::string& name, const Environment& environment,
                  RunAs run_as = RunAs::kByName) {
  const auto program = ResolveProgram(name, {}, run_as, environment);
  REQUIRE_FALSE(program.ok());
  const Failure failure{ExitCodeOfStartError(program.status()),
                        std::string(program.status().message())};
  CHECK(failure.message != Contains("\n"));
  return failure;
}

TEST_CASE("program: a name with a slash is a path, and its arguments follow it") {
  const testing::TempDir dir;
  const std::string path = WriteFile(dir.File("train"), "#!/bin/sh\n", 0755);

  const auto program =
      ResolveProgram(path, {"--x", "a b"}, RunAs::kByName, With({"PATH=/nowhere"}));

  REQUIRE(program.ok());
  CHECK(program->executable == path);
  CHECK(program->argv == std::vector<std::string>{path, "--x", "a b"});
  CHECK(program->title == path);
}

TEST_CASE("program: its digest is of its name, without folders, and of each argument") {
  const testing::TempDir dir;
  const auto digest = [&](const std::string& name, const std::vector<std::string>& args) {
    const std::string path = WriteFile(dir.File(name), "#!/bin/sh\n", 0755);
    const auto program = ResolveProgram(path, args, RunAs::kByName, With({"PATH=/nowhere"}));
    REQUIRE(program.ok());
    return program->digest;
  };
  std::filesystem::create_directory(dir.File("other"));
  const uint64_t one = digest("train", {"--x", "a b"});
  CHECK(one != 0);
  CHECK(digest("other/train", {"--x", "a b"}) == one);
  CHECK(digest("eval", {"--x", "a b"}) != one);
  CHECK(digest("train", {"--x", "a", "b"}) != one);
  CHECK(digest("train", {"--xa b"}) != one);
}

TEST_CASE("program: a bare name is looked for in PATH as execvp does") {
  const testing::TempDir first;
  const testing::TempDir second;
  WriteFile(first.File("tool"), "#!/bin/sh\n", 0644);  // passed over: not executable
  const std::string wanted = WriteFile(second.File("tool"), "#!/bin/sh\n", 0755);
  const std::string path = "PATH=/nowhere:" + first.path().string() + ":" + second.path().string();

  const auto program = ResolveProgram("tool", {}, RunAs::kByName, With({path}));

  REQUIRE(program.ok());
  CHECK(program->executable == wanted);
  CHECK(program->argv == std::vector<std::string>{"tool"});
  CHECK(ResolveProgram("sh", {}, RunAs::kByName, With({})).ok());  // no PATH: the system's folders
}

TEST_CASE("program: a script is run by python3, by PYTHON_EXEC, or as it is") {
  const testing::TempDir dir;
  const std::string python = WriteFile(dir.File("python3"), "#!/bin/sh\n", 0755);
  const std::string other = WriteFile(dir.File("py39"), "#!/bin/sh\n", 0755);
  const std::string script = WriteFile(dir.File("train.py"), "#!/usr/bin/env python3\n", 0755);
  const std::string path = "PATH=" + dir.path().string();

  auto program = ResolveProgram(script, {"--lr"}, RunAs::kByName, With({path}));
  REQUIRE(program.ok());
  CHECK(program->executable == python);
  CHECK(program->argv == std::vector<std::string>{"python3", "-u", script, "--lr"});
  CHECK(program->title == script);

  program = ResolveProgram(script, {}, RunAs::kByName, With({path, "PYTHON_EXEC=" + other}));
  REQUIRE(program.ok());
  CHECK(program->executable == other);

  program = ResolveProgram(script, {}, RunAs::kItself, With({path}));
  REQUIRE(program.ok());
  CHECK(program->executable == script);
  CHECK(program->argv == std::vector<std::string>{script});
}

TEST_CASE("program: in a Python environment it is the Python of that environment") {
  const testing::TempDir dir;
  std::filesystem::create_directory(dir.path() / "bin");
  const std::string python = WriteFile(dir.File("bin/python3"), "#!/bin/sh\n", 0755);
  const std::string ddprun = dir.File("bin/ddprun");
  CHECK(PythonBeside(ddprun) == "");  // as in /usr/bin
  SUBCASE("of venv") { WriteFile(dir.File("pyvenv.cfg"), "home = /usr/bin\n", 0644); }
  SUBCASE("of conda") { std::filesystem::create_directory(dir.path() / "conda-meta"); }
  CHECK(PythonBeside(ddprun) == python);
  std::filesystem::remove(python);
  CHECK(PythonBeside(ddprun) == "");
  CHECK(PythonBeside("ddprun") == "");
  CHECK(PythonBeside("") == "");
}

TEST_CASE("program: a text file without '#!' runs under the shell, as execvp has it") {
  const testing::TempDir dir;
  const std::string path = WriteFile(dir.File("run"), "echo hello\n", 0755);
  const auto program = ResolveProgram(path, {"x"}, RunAs::kByName, With({}));
  REQUIRE(program.ok());
  CHECK(program->executable == "/bin/sh");
  CHECK(program->argv == std::vector<std::string>{"/bin/sh", path, "x"});
}

TEST_CASE("program: a module and a path for runpy are Python's, and the arguments follow") {
  const testing::TempDir dir;
  const std::string python = WriteFile(dir.File("python3"), "#!/bin/sh\n", 0755);
  const std::string script = WriteFile(dir.File("script.txt"), "", 0644);
  const Environment environment = With({"PATH=" + dir.path().string()});

  auto program = ResolveProgram("pkg.train", {"-m", "x"}, RunAs::kModule, environment);
  REQUIRE(program.ok());
  CHECK(program->executable == python);
  CHECK(program->argv == Words{"python3", "-u", "-m", "pkg.train", "-m", "x"});
  CHECK(program->title == "pkg.train");
  const Failure file = FailureOf("./train.py", environment, RunAs::kModule);
  CHECK(file.exit_code == 2);
  CHECK(file.message == "module './train.py': expected a name such as package.train");
  CHECK(FailureOf("", environment, RunAs::kModule).message.find("module '': expected a name") == 0);

  program = ResolveProgram(script, {"--x"}, RunAs::kRunPath, environment);
  REQUIRE(program.ok());
  REQUIRE(program->argv.size() == 6);
  CHECK(program->argv[1] == "-u");
  CHECK(program->argv[2] == "-c");
  CHECK(program->argv[3] == Contains("runpy.run_path"));
  CHECK(program->argv[4] == script);
  CHECK(program->argv[5] == "--x");
  CHECK(program->title == script);
  CHECK(FailureOf(dir.path().string(), environment, RunAs::kRunPath).exit_code == 126);
  WriteFile(dir.File("__main__.py"), "", 0644);
  CHECK(ResolveProgram(dir.path().string(), {}, RunAs::kRunPath, environment).ok());
}

TEST_CASE("program: an interpreter that is missing, or another machine's format, is 126") {
  const testing::TempDir dir;
  const Environment environment = With({"PATH=" + dir.path().string()});
  const std::string script = WriteFile(dir.File("train.py"), "x", 0644);
  struct Row {
    std::string content;
    std::string part;
  };
  const std::vector<Row> rows = {
      {"#!/no/such/python\n", "the interpreter '/no/such/python', which does not exist"},
      {"#!/bin/sh\r\n", "DOS line ends"},
      {"#!/usr/bin/env pythonn\n", "asks for 'pythonn', which is not found in PATH"},
      {"#!/usr/bin/env sh\r\n", "'sh\\r', which is not found in PATH (the file has DOS"},
      {std::string("\x7f"
                   "ELF\2\1\1\0\0",
                   9),
       "cut short"},
  };
  for (const Row& row : rows) {
    const std::string path = WriteFile(dir.File("odd"), row.content, 0755);
    const Failure failure = FailureOf(path, environment);
    CAPTURE(failure.message);
    CHECK(failure.exit_code == 126);
    CHECK(failure.message.find("program '" + path + "': ") == 0);
    CHECK(failure.message == Contains(row.part));
    const Failure of_python = FailureOf(script, With({"PYTHON_EXEC=" + path}));
    CHECK(of_python.exit_code == 126);
    CHECK(of_python.message.find("PYTHON_EXEC '" + path + "': ") == 0);
    CHECK(of_python.message == Contains("; it is needed to run '" + script + "'"));
  }
  const std::string command = WriteFile(dir.File("tool"), "#!/bin/sh\n", 0755);
  const std::string good = WriteFile(dir.File("odd"), "#!/usr/bin/env tool\n", 0755);
  CHECK(ResolveProgram(good, {}, RunAs::kByName, environment).ok());
}

TEST_CASE("program: missing is 127, there but not executable is 126, each in one line") {
  const testing::TempDir dir;
  const std::string path = "PATH=" + dir.path().string();
  const std::string plain = WriteFile(dir.File("plain"), "x", 0644);
  const std::string script = WriteFile(dir.File("train.py"), "x", 0644);
  REQUIRE(mkdir(dir.File("folder.py").c_str(), 0755) == 0);

  struct Row {
    std::string name;
    int exit_code;
    std::string part;
  };
  const std::vector<Row> rows = {
      {"", 127, "no such file"},
      {"missing.py", 127,
       "no such file in '" + std::filesystem::current_path().string() +
           "'; expected an executable"},
      {"no-such-tool", 127, "'no-such-tool': not found in PATH; expected"},
      {dir.File("missing"), 127, "no such file; expected"},
      {dir.File("missing.py"), 127, "no such file; expected an executable file or a .py script"},
      {plain + "/below", 127, "no such file"},
      {plain, 126, "execute bit"},
      {"plain", 126, "is not executable"},
      {dir.path().string(), 126, "is a directory"},
      {dir.File("folder.py"), 126, "is a directory"},
      {"/dev/null", 126, "execute bit"},
      {dir.File("a\nb"), 127, "a\\nb"},
      {script, 127, "it is needed to run"},
  };
  for (const Row& row : rows) {
    const Failure failure = FailureOf(row.name, With({path}));
    CAPTURE(row.name);
    CAPTURE(failure.message);
    CHECK(failure.exit_code == row.exit_code);
    CHECK(failure.message == Contains(row.part));
  }
  CHECK(FailureOf(script, With({path, "PYTHON_EXEC=" + plain})).exit_code == 126);
}

TEST_CASE("program: a name near a command's is asked back when there is no such program") {
  const Environment environment = With({"PATH=/nowhere"});
  for (const RunAs run_as : {RunAs::kByName, RunAs::kItself}) {
    CHECK(FailureOf("coordinater", environment, run_as).message ==
          "program 'coordinater': not found in PATH; expected a command or the path of a file; did "
          "you mean 'ddprun coordinator'?");
  }
  CHECK(FailureOf("docter", environment).message.ends_with("; did you mean 'ddprun doctor'?"));
  CHECK(FailureOf("docter", environment).exit_code == 127);
  for (const char* other : {"train", "./docter", "python3"}) {
    CHECK(FailureOf(other, environment).message != Contains("did you mean"));
  }
  CHECK(FailureOf("docter", environment, RunAs::kRunPath).message != Contains("mean"));
}

TEST_CASE("program: a PYTHON_EXEC that is no interpreter is told so, with the way out") {
  const testing::TempDir dir;
  const std::string script = WriteFile(dir.File("train.py"), "x", 0644);
  const std::string plain = WriteFile(dir.File("plain"), "x", 0644);
  WriteFile(dir.File("data"), "x", 0644);
  struct Row {
    std::string python;
    int exit_code;
    std::string cause;
  };
  const std::vector<Row> rows = {{dir.File("missing"), 127, "no such file"},
                                 {plain + "/below", 127, "no such file"},
                                 {plain, 126, "is not executable"},
                                 {dir.path().string(), 126, "is a directory"},
                                 {"no-such-python", 127, "not found in PATH"},
                                 {"data", 126, "is not executable"}};
  for (const Row& row : rows) {
    const Failure failure =
        FailureOf(script, With({"PATH=" + dir.path().string(), "PYTHON_EXEC=" + row.python}));
    CHECK(failure.exit_code == row.exit_code);
    CHECK(failure.message ==
          "PYTHON_EXEC '" + row.python + "': " + row.cause +
              "; expected the path of a Python interpreter: set PYTHON_EXEC to one, or unset it to "
              "use the python3 of PATH; it is needed to run '" +
              script + "'");
  }
}

TEST_CASE("program: a script that may not be read is 126") {
  if (geteuid() == 0) return testing::SkipTest("root may read everything");
  const testing::TempDir dir;
  const std::string script = WriteFile(dir.File("train.py"), "x", 0000);
  CHECK(FailureOf(script, With({})).exit_code == 126);
}

TEST_CASE("program: the local rank is put in for its macro, everywhere in the arguments") {
  const Program program{.executable = "x",
                        .argv = {"$$x", "${local_rank}-${local_rank}", "$local_rank.", "${other}",
                                 "$local_ranks", "$"},
                        .title = "x"};
  CHECK(ArgvOfWorker(program, 12) == Words{"$$x", "12-12", "12.", "${other}", "$local_ranks", "$"});
}

TEST_CASE("program: $$ in an argument is one dollar that begins no macro") {
  const Program program{.executable = "x",
                        .argv = {"x", "$$", "a$$b", "$$$$", "$$$", "$$local_rank",
                                 "$$${local_rank}", "${local_rank}$$", "$other$$", "${local_rank"},
                        .title = "x"};
  CHECK(ArgvOfWorker(program, 3) ==
        Words{"x", "$", "a$b", "$$", "$$", "$local_rank", "$3", "3$", "$other$", "${local_rank"});
}

}  // namespace
}  // namespace ddprun::launcher
