// Programs in Python, run by name, as a module and by runpy, as torchrun runs them.
#include <unistd.h>

#include <fstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr char kPython[] = "/usr/bin/python3";

// A directory with a script that prints how it was started and ends with the code it is given.
class Scripts {
 public:
  Scripts() {
    std::ofstream(path()) << "import os, sys\n"
                             "print(__name__, sys.argv, os.environ['LOCAL_RANK'], end='')\n"
                             "print(' unbuffered' if sys.stdout.write_through else '')\n"
                             "sys.exit(int(sys.argv[1]))\n";
  }
  std::string path() const { return dir_.File("script.py"); }
  Subprocess::Options Options() const {
    return {.env = {{"PYTHON_EXEC", kPython}}, .working_dir = dir_.path().string()};
  }

 private:
  TempDir dir_;
};

TEST_CASE("python programs: a script, a module and a path for runpy see the same") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  const Scripts scripts;
  const std::vector<std::vector<std::string>> ways = {
      {scripts.path()}, {"-m", "script"}, {"--module", "script"}, {"--run-path", scripts.path()}};
  for (const std::vector<std::string>& way : ways) {
    for (const int code : {0, 7}) {
      Job job;
      std::vector<std::string> words = {"--standalone"};
      words.insert(words.end(), way.begin(), way.end());
      words.insert(words.end(), {std::to_string(code), "--d", "-m", "r${local_rank}", "--"});
      auto ddprun = job.RunRaw(words, scripts.Options());
      CAPTURE(way[0]);
      REQUIRE_MESSAGE(ddprun->Wait() == code, ddprun->Describe());
      CHECK(ddprun->out() == "__main__ ['" + scripts.path() + "', '" + std::to_string(code) +
                                 "', '--d', '-m', 'r0', '--'] 0 unbuffered\n");
    }
  }
}

TEST_CASE("python programs: a module that is not there fails as Python has it") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  const Scripts scripts;
  Job job;
  auto ddprun = job.RunRaw({"-m", "no_such_module"}, scripts.Options());
  REQUIRE_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
  CHECK(ddprun->err() == Contains("No module named no_such_module"));
}

}  // namespace
}  // namespace ddprun::testing
