// What the trainer tells of a run: its record beside the checkpoints, and which rank is slow.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/process/exit_status.h"
#include "tests/examples/train/job.h"
#include "tests/examples/train/step_pipe.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/json.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

// 600 + 100 digits, drawn once.
const std::string& Data() {
  static const TempDir dir;
  static const std::string path = [] {
    Subprocess draw(
        {"tools/make_digits/make_digits", dir.File("digits"), "--train=600", "--test", "100"});
    REQUIRE(draw.Wait() == 0);
    return dir.File("digits");
  }();
  return path;
}

Strings Command(const Strings& more) {
  Strings args = {"/usr/bin/env",
                  "DDPRUN_TEST_TOKEN=abc123",
                  "examples/train/train",
                  "--data",
                  Data(),
                  "--hidden",
                  "32"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST_CASE("train: the record beside the checkpoints and in the summary tells what the run was") {
  TempDir dir;
  Job job(2, Command({"--epochs", "1", "--checkpoint_dir", dir.File("ck"), "--summary_file",
                      dir.File("summary")}));
  REQUIRE_MESSAGE(job.Wait() == std::vector<int>(2, 0), job.Stderr());
  const std::string text = ReadFile(dir.File("ck/run.json"));
  CHECK(text != Contains("abc123"));
  CHECK(ReadFile(dir.File("summary")) == Contains("\"record\": " + text));
  const std::optional<Json> record = ParseJson(text);
  REQUIRE_MESSAGE(record, text);
  CHECK(record->get<std::string>("outcome") == "ok");
  CHECK(record->get<std::string>("backend") == "shm");
  CHECK(record->get<std::string>("device") == "cpu");
  CHECK(record->get<std::string>("why") == Contains("shm: all ranks share a host"));
  CHECK(record->get<int>("world_size") == 2);
  CHECK(record->get<std::string>("versions.Eigen").find("3.") == 0);
  CHECK(record->get<std::string>("environment.DDPRUN_TEST_TOKEN") == "set");
  CHECK(record->get_child("data").size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const Json file = ElementOf(*record, "data", i);
    CHECK(file.get<uintmax_t>("bytes") == fs::file_size(file.get<std::string>("path")));
    CHECK(file.get<std::string>("xxh3").size() == 16);
  }
  CHECK(text == Contains(R"("arguments": ["examples/train/train", "--data", ")" + Data() + "\""));
}

// A run of two ranks of which one is killed on the way; its record.
std::string RecordAfterKill(int killed, std::string* errors) {
  TempDir dir;
  StepPipe steps(dir.File("pipe"));
  Job job(2, Command({"--epochs", "100", "--batch_size", "2", "--checkpoint_dir", dir.File("ck"),
                      "--step_log", dir.File("pipe")}));
  REQUIRE_MESSAGE(steps.WaitForSteps(5), job.Stderr());
  CHECK(ReadFile(dir.File("ck/run.json")) == Contains("\"outcome\": \"running\""));
  job.rank(killed).Signal(SIGKILL);
  REQUIRE(Eventually([&] {
    steps.Read(4096);
    return job.rank(1 - killed).Wait(std::chrono::milliseconds(0)).has_value();
  }));
  CHECK(job.rank(killed).Wait() == 137);
  CHECK(job.rank(1 - killed).Wait() == 1);
  *errors = job.Stderr();
  return ReadFile(dir.File("ck/run.json"));
}

TEST_CASE("train: whichever rank is killed, the record says that the run failed, and of what") {
  for (const int killed : {0, 1}) {
    std::string errors;
    const std::string record = RecordAfterKill(killed, &errors);
    CAPTURE(record);
    CHECK(record == Contains("\"outcome\": \"failed\",\n  \"error\": \""));
    const std::string error = ParseJson(record)->get<std::string>("error");
    CHECK(error == Contains("rank " + std::to_string(killed)));
    CHECK(errors == Contains(error));
  }
}

// As the launcher ends those that are left where one has failed.
TEST_CASE("train: a run that a signal ends says so in its record, and dies of the signal") {
  TempDir dir;
  StepPipe steps(dir.File("pipe"));
  Job job(2, Command({"--epochs", "100", "--batch_size", "2", "--checkpoint_dir", dir.File("ck"),
                      "--step_log", dir.File("pipe")}));
  REQUIRE_MESSAGE(steps.WaitForSteps(5), job.Stderr());
  job.rank(0).Signal(SIGSTOP);  // it says nothing of its own
  job.rank(1).Signal(SIGTERM);
  CHECK(job.rank(1).Wait() == 128 + SIGTERM);
  CHECK(ParseJson(ReadFile(dir.File("ck/run.json")))->get<std::string>("error") ==
        "rank 1 was ended by SIGTERM before the run was over");
  job.rank(0).Signal(SIGKILL);
  job.rank(0).Signal(SIGCONT);
}

TEST_CASE("train: a run that a person interrupts is recorded as stopped, whoever is left") {
  for (const int signal : {SIGINT, SIGHUP}) {
    TempDir dir;
    StepPipe steps(dir.File("pipe"));
    Job job(2, Command({"--epochs", "100", "--batch_size", "2", "--checkpoint_dir", dir.File("ck"),
                        "--step_log", dir.File("pipe")}));
    REQUIRE_MESSAGE(steps.WaitForSteps(5), job.Stderr());
    job.rank(1).Signal(signal);
    CHECK(job.rank(1).Wait() == 128 + signal);
    REQUIRE(Eventually([&] {
      steps.Read(4096);
      return job.rank(0).Wait(std::chrono::milliseconds(0)).has_value();
    }));
    CHECK(job.rank(0).err() == Contains(") failed: rank 1 "));
    const std::string record = ReadFile(dir.File("ck/run.json"));
    CAPTURE(record);
    CHECK(record == Contains(std::string("\"outcome\": \"stopped\",\n  \"error\": \"rank 1 was ")));
    CHECK(record == Contains(std::string("ended by SIG") + sigabbrev_np(signal)));
  }
}

TEST_CASE("train: a run that may not go on from a checkpoint leaves the record of who saved it") {
  TempDir dir;
  const Strings run = {"--epochs", "1", "--checkpoint_dir", dir.File("ck")};
  Job saved(2, Command(run));
  REQUIRE_MESSAGE(saved.Wait() == std::vector<int>(2, 0), saved.Stderr());
  const std::string record = ReadFile(dir.File("ck/run.json"));
  Strings other = Command(run);
  std::replace(other.begin(), other.end(), std::string("32"), std::string("48"));
  other.emplace_back("--resume");
  Job refused(2, other);
  CHECK(refused.Wait() == std::vector<int>(2, launcher::kExitMachine));
  CHECK(ReadFile(dir.File("ck/run.json")) == record);
}

TEST_CASE("train: a step log on a full disk ends the run") {
  Job job(1, Command({"--epochs", "1", "--step_log", "/dev/full"}));
  CHECK(job.Wait() == std::vector<int>{launcher::kExitMachine});
  CHECK(job.Stderr() == Contains("train: write \"/dev/full\": No space left on device"));
}

TEST_CASE("train: a record that cannot be written is told before the first step, once by each") {
  TempDir dir;
  fs::create_directories(dir.File("ck/run.json/taken"));
  Job job(2, Command({"--checkpoint_dir", dir.File("ck")}));
  CHECK(job.Wait() == std::vector<int>{launcher::kExitMachine, launcher::kExitMachine});
  CHECK(job.rank(0).err() ==
        "train: rename to \"" + dir.File("ck/run.json") +
            "\": Is a directory; --checkpoint_dir takes a directory that can be written to\n");
  CHECK(job.rank(1).err() == job.rank(0).err());
  CHECK(job.rank(0).out() != Contains("training on"));
}

TEST_CASE("train: the slow rank is named in each epoch's line and at the end, and no network") {
  TempDir dir;
  Job job(3, Command({"--epochs", "2", "--plant_slow_rank", "50", "--summary_file",
                      dir.File("summary")}));
  REQUIRE_MESSAGE(job.Wait() == std::vector<int>(3, 0), job.Stderr());
  const std::string out = job.rank(0).out();
  INFO(out, job.Stderr());
  const size_t first = out.find("; rank 2 is slow: it takes ");
  REQUIRE(first != std::string::npos);
  CHECK(out.find("epoch 2/2") < out.find("; rank 2 is slow: it takes ", first + 1));
  CHECK(out == Contains(" %, CPU utilisation "));
  CHECK(job.Stderr().find("train: warning: rank 2 is slow: it takes ") == 0);
  CHECK(job.Stderr() != Contains("network"));
  CHECK(ReadFile(dir.File("summary")) == Contains("\"slow_ranks\": [2]"));
}

}  // namespace
}  // namespace ddprun::testing
