// Each *.txt here is a transcript that reads the same after it has been run. To accept what came:
// `DDPRUN_TEST_REWRITE=1 bazel run //tests/transcripts:tests`; then review the diff.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/transcripts/transcript.h"

namespace ddprun::rendezvous::testing {
namespace {

const bool is_rewriting = std::getenv("DDPRUN_TEST_REWRITE") != nullptr;

std::filesystem::path Folder() {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::filesystem::path root = is_rewriting && workspace != nullptr ? workspace : ".";
  return root / "tests/transcripts";
}

std::vector<std::filesystem::path> Transcripts() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("transcripts: the machine says what they say") {
  const std::vector<std::filesystem::path> files = Transcripts();
  CHECK(files.size() >= 20);  // They were found.
  for (const std::filesystem::path& file : files) {
    CAPTURE(file.string());
    const std::string expected = ddprun::testing::ReadFile(file);
    const std::string seen = RunTranscript(expected);
    CHECK(seen != Contains("!!"));
    if (is_rewriting && seen != expected) {
      std::ofstream(file, std::ios::binary) << seen;
      MESSAGE("rewritten: " << file.string());
      continue;
    }
    CHECK(seen == expected);
  }
}

TEST_CASE("transcripts: a wrong expectation and an unknown command are seen") {
  const std::string wrong =
      "policy min=1 max=1\njoin a\n----\na: drain 1.1 \"never\"\n\nfly a\n----\n\n";
  const std::string seen = RunTranscript(wrong);
  CHECK(seen != wrong);
  CHECK(seen == Contains("a: assign 1.1 node_rank=0/1"));
  CHECK(seen == Contains("!! unknown command: fly a"));
}

}  // namespace
}  // namespace ddprun::rendezvous::testing
