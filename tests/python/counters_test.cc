// ddprun.report_step() and ddprun.phase(), in the machine's own Python, which need not have
// PyTorch: programs in Python, which make the page of an agent themselves.
#include <unistd.h>

#include <filesystem>
#include <initializer_list>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/skip.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

constexpr char kPython[] = "/usr/bin/python3";

Subprocess::Options Environment() {
  const std::filesystem::path package(Runfile("python/ddprun/__init__.py"));
  return {.env = {{"PYTHONPATH", package.parent_path().parent_path().string()},
                  {"PYTHONDONTWRITEBYTECODE", "1"},
                  {"LIBRARY", Runfile("worker_runtime/libddp_stop.so")}}};
}

// Scenarios of a program of this folder, each in a process of its own.
void CheckPasses(const std::string& program, std::initializer_list<const char*> scenarios) {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  for (const char* scenario : scenarios) {
    CAPTURE(scenario);
    Subprocess process({kPython, Runfile("tests/python/" + program), scenario}, Environment());
    CHECK_MESSAGE(process.Wait() == 0, process.Describe());
    CHECK(process.out() == "checks passed\n");
  }
}

TEST_CASE("python counters: steps and phases stand in the page as its header says") {
  CheckPasses("counters.py", {"values", "phases"});
}

TEST_CASE("python counters: what is no number is refused, and any number is taken") {
  CheckPasses("counters.py", {"arguments", "numbers"});
}

TEST_CASE("python counters: threads that report at once do no harm") {
  CheckPasses("counters.py", {"threads"});
}

TEST_CASE("python counters: without a page nothing happens, and nothing is imported") {
  CheckPasses("counters.py", {"no-page"});
}

TEST_CASE("python counters: one process writes, and after its death the next") {
  CheckPasses("ownership.py", {"forked", "wrapped", "second-process", "own-pid", "reloaded"});
}

TEST_CASE("python counters: C++ in the same process writes the same page") {
  CheckPasses("ownership.py", {"library"});
}

TEST_CASE("python counters: a page that is not as it should be is left alone") {
  CheckPasses("ownership.py",
              {"refused-pages", "other-version", "other-descriptors", "other-texts"});
}

TEST_CASE("python counters: the descriptor goes to no child, and may be closed") {
  CheckPasses("ownership.py", {"descriptor"});
}

TEST_CASE("python counters: a program that is killed while it writes leaves whole words") {
  CheckPasses("ownership.py", {"killed"});
}

}  // namespace
}  // namespace ddprun::testing
