#include "tests/conformance/recorder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/subprocess.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

constexpr char kFolder[] = "tests/conformance/";

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsWriting() { return Variable("DDPRUN_TEST_RECORD") == "write"; }

std::string Version() {
  const std::string chosen = Variable("DDPRUN_TEST_TORCH_VERSION");
  if (!IsRecording()) return chosen.empty() ? kRecordedVersion : chosen;
  const std::string real = FindTorchPython().version;
  if (!chosen.empty() && chosen != real) {
    FAIL("DDPRUN_TEST_TORCH_VERSION is " << chosen << ", but " << FindTorchPython().python
                                         << " has PyTorch " << real);
  }
  return real;
}

// Below kFolder.
std::string NameOf(const std::string& scenario) {
  return "recorded/torch-" + Version() + "/" + scenario + ".txt";
}

// In the tree itself: a runfile is a link into it, and a new file has none.
std::filesystem::path Source(const std::string& scenario) {
  const std::string table = Runfile(std::string(kFolder) + "differences.txt");
  return std::filesystem::canonical(table).parent_path() / NameOf(scenario);
}

// Two scenarios of one name would share a recording.
void CheckIsNew(const std::string& scenario) {
  static std::set<std::string> names;
  CHECK_MESSAGE(names.insert(scenario).second, "two scenarios have the name " << scenario);
}

std::string HowToRecord() {
  return "; with PyTorch " + Version() + " (tools/setup --with-torch=" + Version() +
         "), tests/conformance/record records it anew";
}

std::string AskedOtherwise(const std::vector<std::string>& recorded,
                           const std::vector<std::string>& now) {
  std::string text = " is of another question\n  recorded:";
  for (const std::string& line : recorded) text += "\n    " + line;
  text += "\n  now:";
  for (const std::string& line : now) text += "\n    " + line;
  return text + "\n";
}

// The kept one; nullopt: there is none, for the reason in `problem`.
std::optional<Recording> Read(const std::string& path, const std::string& scenario,
                              std::string* problem) {
  const std::string text = ReadFile(path);
  *problem = text.empty() ? "there is no " + NameOf(scenario) : "";
  if (text.empty()) return std::nullopt;
  std::optional<Recording> kept = ParseRecording(text, problem);
  if (!kept) *problem = NameOf(scenario) + ": " + *problem;
  return kept;
}

void Write(const std::string& scenario, const Recording& anew) {
  const std::string text = RecordingText(Version(), anew);
  std::string problem;
  const std::optional<Recording> again = ParseRecording(text, &problem);
  const bool is_same = again && again->asked == anew.asked && again->seen == anew.seen;
  REQUIRE_MESSAGE(is_same, "a recording that is read as another: " << problem << "\n" << text);
  const std::filesystem::path path = Source(scenario);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  REQUIRE_MESSAGE(file.good(), "cannot write " << path);
  MESSAGE("recorded: " << NameOf(scenario));
}

}  // namespace

const std::vector<Difference>& DifferenceTable() {
  static const std::vector<Difference> table = [] {
    std::vector<std::string> problems;
    std::vector<Difference> rows =
        ParseDifferences(ReadFile(Runfile("tests/conformance/differences.txt")), &problems);
    for (const std::string& problem : problems) FAIL_CHECK(problem);
    return rows;
  }();
  return table;
}

bool IsRecording() {
  const std::string mode = Variable("DDPRUN_TEST_RECORD");
  if (mode.empty()) return false;
  if (mode != "check" && mode != "write") {
    FAIL("DDPRUN_TEST_RECORD is '" << mode << "', neither check nor write");
  }
  if (FindTorchPython().python.empty()) {
    FAIL("DDPRUN_TEST_RECORD is set, but " << FindTorchPython().problem);
  }
  return true;
}

std::optional<Observed> Recorded(const std::string& scenario,
                                 const std::vector<std::string>& asked) {
  CheckIsNew(scenario);
  std::string problem;
  const std::optional<Recording> kept =
      Read(Runfile(kFolder + NameOf(scenario)), scenario, &problem);
  if (!kept) {
    FAIL_CHECK("no recording of " << scenario << ": " << problem << HowToRecord());
    return std::nullopt;
  }
  if (kept->asked != asked) {
    FAIL_CHECK(NameOf(scenario) << AskedOtherwise(kept->asked, asked) << HowToRecord());
    return std::nullopt;
  }
  return kept->seen;
}

void Record(const std::string& scenario, Recording anew) {
  CheckIsNew(scenario);
  anew.seen = WithoutExcused(DifferenceTable(), scenario, std::move(anew.seen));
  std::string problem;
  const std::optional<Recording> kept = Read(Source(scenario), scenario, &problem);
  if (!kept && !IsWriting()) {
    FAIL_CHECK("no recording of " << scenario << ": " << problem << HowToRecord());
    return;
  }
  std::vector<std::string> changes = {problem};
  if (kept) changes = Changes(DifferenceTable(), scenario, kept->seen, anew.seen);
  if (kept && kept->asked != anew.asked) {
    changes.push_back(NameOf(scenario) + AskedOtherwise(kept->asked, anew.asked));
  }
  // What is not compared changes from run to run: a file that holds stays as it is.
  if (IsWriting() && !changes.empty()) return Write(scenario, anew);
  for (const std::string& change : changes) FAIL_CHECK(change << HowToRecord());
}

}  // namespace ddprun::testing
