// What failing workers say of their end reaches every node's report, and whoever started ddprun.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

// What @record writes.
std::string Recorded(const std::string& what) {
  return R"({"message": {"message": ")" + what +
         R"(", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"a.py\"\n)" +
         what + R"(\n", "timestamp": "1738324800"}}})";
}

TEST_CASE("report: the first failure's exception is in every node's report") {
  Job job;
  const std::vector<std::string> steps = {"error-file:" + Recorded("ValueError: boom") + "@3",
                                          "exit:9@3", "wait"};
  // With a folder that keeps the error files.
  const std::vector<std::string> options = job.NodeOptions(2, "2", {"--log-dir=" + job.File("l")});
  auto a = job.Run(options, steps);
  auto b = job.Run(options, steps);
  REQUIRE_MESSAGE(a->Wait() == 9, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 9, b->Describe());
  for (const auto* node : {a.get(), b.get()}) {
    CHECK(node->err() == Contains("  time      : 2025-01-31_12:00:00Z\n"));
    CHECK(node->err() == Contains("  rank      : 3 (local_rank: 1)\n  exitcode  : 9 (pid: "));
    CHECK(
        node->err() ==
        Contains("error.json\n  traceback : Traceback (most recent call last):\n    File \"a.py\"\n"
                 "  ValueError: boom\n"));
    CHECK(node->err() == Contains(" (ValueError: boom)\n"));
  }
}

TEST_CASE("report: an error file for which nobody named a folder goes with the job") {
  Job job;
  const std::string temp = job.File("temp"), own = job.File("own.json");
  std::filesystem::create_directory(temp);
  auto ddprun =
      job.Run({"--nproc-per-node=2"}, {"error-file:" + Recorded("ValueError: boom"), "exit:9"},
              {.env = {{"TMPDIR", temp}, {"TORCHELASTIC_ERROR_FILE", own}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 9, ddprun->Describe());
  CHECK(ddprun->err() == Contains("  error_file: <N/A>\n  traceback : Traceback (most recent"));
  CHECK(ReadFile(own) == Contains("ValueError: boom"));
  CHECK_MESSAGE(std::filesystem::is_empty(temp), ddprun->Describe());
}

TEST_CASE("report: workers that say the same share an entry, one that only was stopped has none") {
  Job job;
  auto ddprun =
      job.Run({"--nproc-per-node=5"},
              {"error-file:" + Recorded("ValueError: boom") + "@0",
               "error-file:" + Recorded("ValueError: boom") + "@1",
               "error-file:" + Recorded("ValueError: boom") + "@2",
               "error-file:" + Recorded("KeyError: other") + "@3", "touch:" + job.File("up{rank}"),
               "until:" + job.File("up0"), "until:" + job.File("up1"), "until:" + job.File("up2"),
               "until:" + job.File("up3"), "exit:1@0", "wait"});
  REQUIRE_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
  CHECK(ddprun->err() == Contains("Failures:\n  ranks 1-2: the same as [0]\n[1]:\n"));
  CHECK(ddprun->err() == Contains("  rank      : 3 (local_rank: 3)\n  exitcode  : -15 (pid: "));
  CHECK(ddprun->err() == Contains("KeyError: other\n----"));
  CHECK(ddprun->err() != Contains("rank      : 4"));
}

TEST_CASE("report: who started ddprun finds the first error file, with the exit code, in its own") {
  Job job;
  const std::string own = job.File("own.json");
  std::ofstream(own) << "of an earlier job";
  auto ddprun = job.Run({"--nproc-per-node=2", "--max-restarts=1"},
                        {"error-file:" + Recorded("first") + "@1#0",
                         "error-file:" + Recorded("last") + "@1#1", "die:9@1", "wait"},
                        {.env = {{"TORCHELASTIC_ERROR_FILE", own}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 137, ddprun->Describe());
  const auto json = ParseJson(ReadFile(own));
  REQUIRE_MESSAGE(json, ReadFile(own));
  CHECK(json->get<std::string>("message.message") == "last");
  CHECK(json->get<int>("message.errorCode") == -9);
  CHECK(json->get<std::string>("message.extraInfo.timestamp") == "1738324800");
}

TEST_CASE("report: the first failure is in every node's error file, also where it was not") {
  Job job;
  const std::vector<std::string> steps = {"error-file:" + Recorded("ValueError: boom") + "@3",
                                          "die:9@3", "wait"};
  auto a =
      job.Run(job.NodeOptions(2), steps, {.env = {{"TORCHELASTIC_ERROR_FILE", job.File("a")}}});
  auto b =
      job.Run(job.NodeOptions(2), steps, {.env = {{"TORCHELASTIC_ERROR_FILE", job.File("b")}}});
  REQUIRE_MESSAGE(a->Wait() == 137, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 137, b->Describe());
  for (const char* name : {"a", "b"}) {
    const std::string text = ReadFile(job.File(name));
    const auto json = ParseJson(text);
    REQUIRE_MESSAGE(json, name, ": ", text);
    CHECK(json->get<std::string>("message.message") == "ValueError: boom");
    CHECK(json->get<int>("message.errorCode") == -9);
    CHECK(json->get<std::string>("message.extraInfo.timestamp") == "1738324800");
    CHECK(json->get<std::string>("message.extraInfo.py_callstack").rfind("Traceback (most", 0) ==
          0);
  }
}

TEST_CASE("report: a worker's own error file is not that of ddprun") {
  Job job;
  auto ddprun = job.Run({}, {"env:TORCHELASTIC_ERROR_FILE"},
                        {.env = {{"TORCHELASTIC_ERROR_FILE", job.File("own.json")}}});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == Contains("/attempt_0/0/error.json\n"));
  CHECK_FALSE(job.HasFile("own.json"));
}

TEST_CASE("report: an error file that cannot be read costs one line and not the report") {
  struct Row {
    std::string step;
    const char* why;
  };
  const Row rows[] = {
      {"error-dir", "error.json, is no regular file\n"},
      {"error-file:{\"message\": {\"mess", "error.json, is no valid JSON\n"},
      {"error-file:" + std::string(100000, '['), "error.json, is nested deeper than 32\n"},
  };
  for (const Row& row : rows) {
    Job job;
    auto ddprun = job.Run({}, {row.step, "err:last words", "exit:3"},
                          {.env = {{"TORCHELASTIC_ERROR_FILE", job.File("own.json")}}});
    REQUIRE_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
    CHECK(ddprun->err() == Contains("ddprun: warning: the error file of rank 0, /"));
    CHECK(ddprun->err() == Contains(row.why));
    CHECK(ddprun->err() == Contains("  traceback : exit code 3\n"));
    CHECK(ddprun->err() == Contains("  last words\n"));
    CHECK_FALSE(job.HasFile("own.json"));
  }
}

}  // namespace
}  // namespace ddprun::testing
