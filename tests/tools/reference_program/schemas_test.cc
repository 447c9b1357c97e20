// The schemas of docs/reference/schemas, against what a real ddprun prints and writes.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/asking.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Json = nlohmann::json;

constexpr char kPython[] = "/usr/bin/python3";  // whose packages the distribution installs

std::string WhyNoValidator() {
  Subprocess python({kPython, "-c", "import jsonschema; jsonschema.Draft202012Validator"});
  if (python.Wait() == 0) return "";
  return "no python3-jsonschema here; tools/setup installs it";
}

// A document without its first member, and one with a member more.
std::vector<std::string> Wrong(const std::string& text) {
  Json document = Json::parse(text);
  Json& object = document.is_array() ? document[0] : document;
  REQUIRE_MESSAGE(object.is_object(), text);
  Json less = document, more = document;
  Json& less_object = less.is_array() ? less[0] : less;
  less_object.erase(less_object.begin());
  (more.is_array() ? more[0] : more)["stray"] = 1;
  return {less.dump(), more.dump()};
}

// The schema takes all documents, and nothing that is made wrong of them.
void CheckSchema(const Job& job, const std::string& name, const std::vector<std::string>& texts) {
  const std::string schema = Runfile("docs/reference/schemas/" + name + ".schema.json");
  std::vector<std::string> words = {kPython, Runfile("tests/tools/reference_program/validate.py"),
                                    schema};
  std::vector<std::string> wrong_words = words;
  REQUIRE_MESSAGE(!texts.empty(), name);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string file = name + "-" + std::to_string(i);
    REQUIRE_MESSAGE(Json::accept(texts[i]), name, ": ", texts[i]);
    words.push_back(WriteFile(job.File(file), texts[i]));
    size_t index = 0;
    for (const std::string& wrong : Wrong(texts[i])) {
      wrong_words.push_back(WriteFile(job.File(file + "-wrong" + std::to_string(index++)), wrong));
    }
  }
  Subprocess good(words), bad(wrong_words);
  REQUIRE_MESSAGE(good.Wait() == 0, good.Describe());
  CHECK_MESSAGE(good.out() == "", name, ": ", good.out());
  REQUIRE_MESSAGE(bad.Wait() == 0, bad.Describe());
  CHECK_MESSAGE(CountOf(bad.out(), "\n") == 2 * texts.size(), name, ": ", bad.out());
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("schemas: they take what a job prints and writes and nothing else") {
  if (std::string why = WhyNoValidator(); !why.empty()) return SkipTest(why);
  Job job;
  const ControlFolder folder;
  const auto ddprun = RunReporting(
      job, folder,
      {"--nproc-per-node=2", "--max-restarts=1", "--report-file=" + job.File("report"),
       "--event-file=" + job.File("events")},
      {"step:1@1#0", "exit:7@1#0", "open:dp", "step:1", "call:1", "until:" + job.File("go")});
  const Json seen = StatusUntil(job, folder, [](const Json& now) {
    return now["restart_count"] == 1 && HaveStepped(now, 2);
  });
  CheckSchema(job, "status", {seen.dump()});
  CheckSchema(job, "list", {Ask(job, folder, {"list", "--json"}).out});
  const Told dump = Ask(job, folder, {"dump", "--dir", job.File("")});
  const size_t at = dump.out.find("stacks are in ");
  REQUIRE_MESSAGE(at != std::string::npos, dump.Describe());
  const std::string path = dump.out.substr(at + 14, dump.out.find('\n', at) - at - 14);
  CheckSchema(job, "dump-summary", {ReadFile(path + "/summary.json")});
  job.Touch("go");
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CheckSchema(job, "report-file", {ReadFile(job.File("report"))});
  const std::vector<std::string> events = LinesOf(ReadFile(job.File("events")));
  CHECK(events.size() >= 8);
  CheckSchema(job, "event", events);
}

TEST_CASE("schemas: they take what doctor and check and bench print and nothing else") {
  if (std::string why = WhyNoValidator(); !why.empty()) return SkipTest(why);
  Job job;
  const auto doctor = job.RunRaw({"doctor", "--json"});
  REQUIRE_MESSAGE(doctor->Wait() == 0, doctor->Describe());
  CheckSchema(job, "doctor", {doctor->out()});
  // Ranks that share cores with other tests differ by much.
  const auto check = job.RunRaw({"check", "--nproc-per-node=2", "--json", "--tolerance=40"});
  REQUIRE_MESSAGE(check->Wait() == 0, check->Describe());
  CheckSchema(job, "check", {check->out()});
  const auto bench =
      job.RunRaw({"bench", "--world-sizes=2", "--seconds=0.1", "--output", job.File("bench.json")});
  REQUIRE_MESSAGE(bench->Wait() == 0, bench->Describe());
  CheckSchema(job, "bench", {ReadFile(job.File("bench.json"))});
}

}  // namespace
}  // namespace ddprun::testing
