// The trainer whose launcher asks it to stop: it saves its step, ends well, and goes on from there.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/examples/train/job.h"
#include "tests/examples/train/step_losses.h"
#include "tests/examples/train/step_pipe.h"
#include "tests/support/contains.h"
#include "tests/support/stop_file.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

using Strings = std::vector<std::string>;

constexpr int kRanks = 4;
constexpr int kSteps = 300;

// A run of 300 steps of 4 images on 4 ranks, which hear of `stop_file` and say there how far they
// are: all the same, so it does not matter that under ddprun rank 0 alone does.
Strings Command(const TempDir& dir, const std::string& stop_file, const Strings& more) {
  Strings args = {"/usr/bin/env",
                  "DDPRUN_STOP_FILE=" + stop_file,
                  "DDPRUN_PROGRESS_FILE=" + stop_file,
                  "examples/train/train",
                  "--data",
                  dir.File("digits"),
                  "--epochs",
                  "2",
                  "--hidden",
                  "32",
                  "--batch_size",
                  "1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The losses of a run that is asked to stop when the log of `after` steps has been read.
std::vector<double> StopAfter(const TempDir& dir, int after, const Strings& more) {
  const std::string stop_file = MakeStopFile(dir.File("stop"));
  StepPipe steps(dir.File("pipe"));
  Strings with_log = more;
  with_log.insert(with_log.end(), {"--step_log", dir.File("pipe")});
  Job job(kRanks, Command(dir, stop_file, with_log));
  REQUIRE_MESSAGE(steps.WaitForSteps(after), job.Stderr());
  RequestStop(stop_file);
  REQUIRE(Eventually([&] {
    steps.Read(4096);
    return job.rank(0).Wait(std::chrono::milliseconds(0)).has_value();
  }));
  REQUIRE_MESSAGE(job.Wait() == std::vector<int>(kRanks, 0), job.Stderr());
  CHECK(HasHeardStop(stop_file));
  CHECK(ProgressIn(stop_file).done >= static_cast<uint32_t>(after));
  CHECK(ProgressIn(stop_file).done < kSteps);
  CHECK(ProgressIn(stop_file).all == kSteps);
  CHECK(job.rank(0).out() == Contains("as the launcher asked; --resume goes on"));
  return StepLosses(WriteFile(dir.File("log"), steps.Read(4096)));
}

// The losses of a run that nobody asks.
std::vector<double> Run(const TempDir& dir, const std::string& name, Strings more) {
  more.insert(more.end(), {"--step_log", dir.File(name), "--summary_file", dir.File("summary")});
  const std::string page = MakeStopFile(dir.File("no stop"));
  Job job(kRanks, Command(dir, page, more));
  REQUIRE_MESSAGE(job.Wait() == std::vector<int>(kRanks, 0), job.Stderr());
  CHECK(ProgressIn(page) == ddp::internal::ProgressShare{kSteps, kSteps});
  return StepLosses(dir.File(name));
}

// The fingerprint of the weights that the last Run() ended with.
std::string Weights(const TempDir& dir) {
  const std::string json = ReadFile(dir.File("summary"));
  return json.substr(json.find("\"parameters_checksum\": "), 57);
}

TEST_CASE(
    "train: asked to stop it saves and ends with 0, and resumed has the bits of a whole run") {
  TempDir dir;
  Subprocess draw(
      {"tools/make_digits/make_digits", dir.File("digits"), "--train=600", "--test", "100"});
  REQUIRE(draw.Wait() == 0);
  const std::vector<double> whole = Run(dir, "whole", {});
  REQUIRE(whole.size() == kSteps);
  const std::string weights = Weights(dir);

  const Strings saving = {"--checkpoint_dir", dir.File("ck"), "--resume"};
  std::vector<double> parts = StopAfter(dir, 17, saving);
  const auto is_outcome = [&dir](const char* word) {
    return ReadFile(dir.File("ck/run.json")).find(word) != std::string::npos;
  };
  CHECK(is_outcome("\"outcome\": \"stopped\""));
  REQUIRE(parts.size() >= 17);
  REQUIRE(parts.size() < kSteps);
  const std::vector<double> rest = Run(dir, "rest", saving);
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == whole);
  CHECK(is_outcome("\"outcome\": \"ok\""));
  CHECK(Weights(dir) == weights);
}

}  // namespace
}  // namespace ddprun::testing
