#include "tests/conformance/recording.h"

#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

// Why they have none.
const std::map<std::string, std::string> kWithoutRecording = {
    {"train", "runs beside the real torchrun"},
    {"torch_group_attempts", "runs under ddprun alone"},
};

std::vector<Difference> TableOf(const std::string& text) {
  std::vector<std::string> problems;
  std::vector<Difference> table = ParseDifferences(text, &problems);
  CHECK(problems.empty());
  return table;
}

TEST_CASE("recording: what is written is read again, values of several lines and none included") {
  const Recording written = {.asked = {"A=1 torchrun --nnodes=2 'a b'", "torchrun"},
                             .seen = {{"exit", "success, success"},
                                      {"err", "seen: one |   seen: two"},
                                      {"out", ""},
                                      {"torchrun --nnodes=2:20:30", "refused"},
                                      {"file.empty", " | "}}};
  std::string problem;
  const auto read = ParseRecording(RecordingText("2.13.0", written), &problem);
  REQUIRE_MESSAGE(read, problem);
  CHECK(read->asked == written.asked);
  CHECK(read->seen == written.seen);
}

TEST_CASE("recording: a value of several lines has a line for each") {
  CHECK(RecordingText("2.13.0", {.asked = {"torchrun x"}, .seen = {{"out", "a | b"}}}) ==
        "# What torchrun of PyTorch 2.13.0 did. Written by tests/conformance/record.\n"
        "asked: torchrun x\n"
        "out:\n"
        "  a\n"
        "  b\n");
}

TEST_CASE("recording: what cannot be read is told") {
  const std::map<std::string, std::string> texts = {
      {"exit: success\n", "it does not say what was asked"},
      {"asked: torchrun\nexit: success\nexit: failure\n", "'exit' stands there twice"},
      {"asked: torchrun\nexit\n", "neither a field nor a line of one: 'exit'"},
      {"  a\n", "neither a field nor a line of one: '  a'"}};
  for (const auto& [text, expected] : texts) {
    std::string problem;
    CHECK_MESSAGE(!ParseRecording(text, &problem), text);
    CHECK(problem == expected);
  }
}

TEST_CASE("recording: words stand as a shell reads them") {
  CHECK(ShellLine({"torchrun", "--role", "", "a b", "it's", "$x", "{dir}/a.py"}) ==
        "torchrun --role '' 'a b' 'it'\\''s' '$x' {dir}/a.py");
}

TEST_CASE("recording: what a row excuses in any form is kept as the row says it") {
  const auto table = TableOf(
      "[one] error\ntorchrun: Traceback*\nddprun: x\nwhy: y\n\n"
      "[one] code\ntorchrun: 1\nddprun: 7\nwhy: y\n\n"
      "[*] address\ntorchrun: *\nddprun: x\nwhy: y\n");
  const Observed seen = {{"error", "Traceback in /home/me"}, {"code", "1"}, {"address", "here"}};
  const Observed kept = {{"error", "Traceback*"}, {"code", "1"}, {"address", "here"}};
  CHECK(WithoutExcused(table, "one", seen) == kept);
  CHECK(WithoutExcused(table, "two", seen) == seen);
  CHECK(WithoutExcused(table, "one", {{"error", "none"}}) == Observed{{"error", "none"}});
}

TEST_CASE("recording: each field that is compared and differs is a change") {
  const auto table = TableOf(
      "[*] leftovers\ntorchrun: yes\nddprun: no\nwhy: y\n\n"
      "[killed] leftovers\ntorchrun: yes\nddprun: no\nwhy: y\n");
  CHECK(Changes(table, "one", {{"exit", "1"}, {"leftovers", "no"}},
                {{"exit", "1"}, {"leftovers", "yes"}})
            .empty());
  CHECK(Changes(table, "killed", {{"leftovers", "yes"}}, {{"leftovers", "no"}}).size() == 1);
  CHECK(Changes(table, "one", {{"exit", "1"}, {"out", ""}}, {{"exit", "2"}}) ==
        std::vector<std::string>{
            "[one] exit: torchrun does otherwise than recorded\n  recorded: 1\n  now: 2",
            "[one] out: torchrun does otherwise than recorded\n  recorded: \n  now: (absent)"});
}

// The name of each scenario in the sources, as often as it is there.
std::multiset<std::string> ScenarioNames() {
  static const std::regex name("\\bname = \"([a-z0-9_]+)\"");
  std::multiset<std::string> names;
  for (const char* file : {
#include "tests/conformance/scenario_files.inc"
       }) {
    const std::string text = ReadFile(Runfile(std::string("tests/conformance/") + file));
    CHECK_MESSAGE(!text.empty(), file);
    for (auto match = std::sregex_iterator(text.begin(), text.end(), name);
         match != std::sregex_iterator(); ++match) {
      names.insert((*match)[1].str());
    }
  }
  return names;
}

TEST_CASE("recording: each scenario has one of each version, and no other is there") {
  const std::multiset<std::string> names = ScenarioNames();
  CHECK(names.size() > 80);
  for (const auto& [name, why] : kWithoutRecording) CHECK_MESSAGE(names.count(name) == 1, name);
  const std::filesystem::path root = Runfile("tests/conformance/recorded");
  int versions = 0;
  for (const auto& folder : std::filesystem::directory_iterator(root)) {
    ++versions;
    std::set<std::string> recorded;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      recorded.insert(file.path().stem());
    }
    for (const std::string& name : names) {
      CHECK_MESSAGE(names.count(name) == 1, "two scenarios have the name " << name);
      const bool is_due = kWithoutRecording.count(name) == 0;
      CHECK_MESSAGE((recorded.count(name) == 1) == is_due, folder.path().filename()
                                                               << ": " << name);
    }
    for (const std::string& name : recorded) {
      CHECK_MESSAGE(names.count(name) == 1, "no scenario uses " << folder.path().filename() << "/"
                                                                << name << ".txt: remove it");
    }
  }
  CHECK(versions > 0);
}

TEST_CASE("recording: each that is kept reads as it was written, and names no machine's folder") {
  static const std::regex folder("(^|[^}])/(tmp|home|root|work|var)/");
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(Runfile("tests/conformance/recorded"))) {
    if (file.is_directory()) continue;
    const std::string version = file.path().parent_path().filename().string().substr(6);
    const std::string text = ReadFile(file.path());
    std::string problem;
    const auto recording = ParseRecording(text, &problem);
    REQUIRE_MESSAGE(recording, file.path() << ": " << problem);
    CHECK_MESSAGE(RecordingText(version, *recording) == text, file.path());
    CHECK_MESSAGE(!std::regex_search(text, folder), file.path());
  }
}

}  // namespace
}  // namespace ddprun::testing
