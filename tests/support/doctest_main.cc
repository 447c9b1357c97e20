// Runs the test cases with a TMPDIR of the program's own, so that what the programs under test
// leave in it (dumps, logs, notes of killed processes) goes with it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

int main(int argc, char** argv) {
  // Not below Bazel's TEST_TMPDIR: a socket's path has 107 bytes at most.
  const char* const base = getenv("TMPDIR");
  std::string folder = base != nullptr && *base != '\0' ? base : "/tmp";
  folder += "/ddprun-t-XXXXXX";
  const bool has_folder =
      mkdtemp(folder.data()) != nullptr && setenv("TMPDIR", folder.c_str(), 1) == 0;
  const int result = doctest::Context(argc, argv).run();
  std::error_code ignored;
  if (has_folder) std::filesystem::remove_all(folder, ignored);
  return result;
}
