// Completion, judged by the shells themselves: each is given a line and asked what may follow.
#include "launcher/cli/completion.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;
using Words = std::vector<std::string>;

const Words kShells = {"bash", "zsh", "tcsh", "fish"};

// The words as bash has cut the line, the last is completed. One offer a line.
constexpr char kAskBash[] = R"sh(
compopt() { :; }
source "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_ddprun
printf '%s\n' "${COMPREPLY[@]}"
)sh";

std::string Bash(Words words) {
  TempDir dir;
  const std::string script = dir.path() / "ddprun";
  WriteFile(script, CompletionText("bash"));
  words.insert(words.begin(), {"/bin/bash", "-c", kAskBash, "bash", script, "ddprun"});
  Subprocess bash(std::move(words));
  REQUIRE_MESSAGE(bash.Wait() == 0, bash.Describe());
  CHECK(bash.err() == "");
  return bash.out();
}

TEST_CASE(
    "completion: every shell's has every option, and its command prints what the option does") {
  for (const std::string& shell : kShells) {
    const std::string text = CompletionText(shell);
    CAPTURE(shell);
    for (const OptionRow& row : OptionTable()) {
      if (row.old == nullptr) CHECK(text == Contains(Dashed(row.name).substr(2)));
    }
    for (const Words& words : {Words{"completion", shell}, Words{"--print-completion=" + shell}}) {
      std::vector<const char*> argv = {"ddprun"};
      for (const std::string& word : words) argv.push_back(word.c_str());
      const auto result = ParseCommandLine(static_cast<int>(argv.size()), argv.data(), {});
      REQUIRE_MESSAGE(result.ok(), result.status().ToString());
      CHECK(std::get<PrintText>(*result).text == text);
    }
  }
  CHECK(CompletionText("ksh") == "");
  const char* const argv[] = {"ddprun", "--print-completion", "ksh", "p"};
  const auto refused = ParseCommandLine(4, argv, {});
  CHECK(refused.status().message() == "--print-completion 'ksh': expected bash, zsh, tcsh or fish");
}

TEST_CASE("completion: bash offers options, their values, commands and their own options") {
  CHECK(Bash({"--nno"}) == "--nnodes\n");
  CHECK(Bash({"--standalone", "--nno"}) == "--nnodes\n");
  // No old name, though it is taken.
  CHECK(Bash({"--max_same"}) == "--max-same-failures\n");
  CHECK(Bash({"bench", "--ra"}) == "\n");
  CHECK(Bash({"--nnodes", "2", "--nno"}) == "--nnodes\n");
  CHECK(Bash({"--rdzv_backend", "="}) == "c10d\netcd\nstatic\n");
  CHECK(Bash({"--rdzv-backend", ""}) == "c10d\netcd\nstatic\n");
  CHECK(Bash({"--rdzv-backend", "=", "s"}) == "static\n");
  CHECK(Bash({"--nproc_per_node", "gpu", ":", "1", "--nno"}) == "--nnodes\n");
  CHECK(Bash({"doc"}).rfind("doctor\n", 0) == 0);
  CHECK(Bash({"doctor", "--re"}) == "--require\n");
  CHECK(Bash({"doctor", "--require", ""}) == "cuda\n");
  CHECK(Bash({"completion", "f"}) == "fish\n");
  CHECK(Bash({"status", "job-1", "--js"}) == "--json\n");
  // What may stand alone has no value in the next word.
  CHECK(Bash({"--dashboard", "--nno"}) == "--nnodes\n");
  CHECK(Bash({"--dashboard", "=", "8080", "--nno"}) == "--nnodes\n");
  CHECK(Bash({"--dashboard", "./train", "--nno"}) == "\n");
}

TEST_CASE("completion: bash leaves the program's own options alone") {
  CHECK(Bash({"./train", "--nno"}) == "\n");
  CHECK(Bash({"--nnodes", "=", "2", "./train", "--nno"}) == "\n");
}

TEST_CASE("completion: zsh, tcsh and fish read theirs, where they are installed") {
  for (const auto& [shell, check] : std::vector<std::pair<std::string, Words>>{
           {"zsh", {"-n"}}, {"fish", {"-n"}}, {"tcsh", {"-f"}}}) {
    TempDir dir;
    const std::string script = dir.path() / "script";
    WriteFile(script, CompletionText(shell));
    Words words = {"/usr/bin/env", shell};
    words.insert(words.end(), check.begin(), check.end());
    words.push_back(script);
    Subprocess reader(std::move(words));
    const auto code = reader.Wait();
    if (code == 127) {
      SkipTest(shell + " is not installed");
      continue;
    }
    CHECK_MESSAGE(code == 0, reader.Describe());
    CHECK(reader.err() == "");
  }
}

}  // namespace
}  // namespace ddprun::launcher
