// The trainer under the real ddprun with --zero: nothing of what it learns or saves differs.
#include <signal.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/examples/train/step_pipe.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using Strings = std::vector<std::string>;

constexpr std::chrono::seconds kTraining{300};  // instrumented code trains many times slower

// The lines of `text` that begin with `begin`, each up to `end`.
std::string Lines(const std::string& text, const std::string& begin, const std::string& end) {
  std::string lines;
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    lines += text.substr(at, text.find(end, at) - at) + "\n";
  }
  return lines;
}

// What a run told of itself.
struct Told {
  std::string epochs;  // "epoch 1/2: loss 0.9795, test accuracy 90.00 %", a line each
  std::string losses;  // the step log
  std::string summary;

  std::string Weights() const { return Field("parameters_checksum"); }
  std::string Field(const std::string& name) const {
    const std::string lines = Lines(summary, "\"" + name + "\": ", ",");
    return lines.substr(0, lines.find('\n'));  // the record below has some names again
  }
};

class Training {
 public:
  Training() {
    Subprocess draw(
        {Runfile("tools/make_digits/make_digits"), File("digits"), "--train", "600", "--test=100"});
    REQUIRE_MESSAGE(draw.Wait() == 0, draw.Describe());
  }

  std::string File(const std::string& name) const { return dir_.File(name); }

  Strings Command(Strings options, int ranks, const std::string& name, const Strings& more) const {
    options.insert(options.end(),
                   {"--standalone", "--nproc-per-node=" + std::to_string(ranks),
                    Runfile("examples/train/train"), "--data", File("digits"), "--batch_size=10",
                    "--hidden=32", "--bucket_cap_mb=0.01", "--summary_file", File(name + ".json"),
                    "--step_log", File(name + ".steps")});
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }

  // Of a run to a good end.
  Told Run(int ranks, const std::string& name, const Strings& more) const {
    Job job;
    auto ddprun = job.RunRaw(Command({}, ranks, name, more));
    REQUIRE_MESSAGE(ddprun->Wait(kTraining) == 0, ddprun->Describe());
    const bool says_share = ddprun->out().find("\nrank 0 keeps ") != std::string::npos;
    const bool is_zero = std::find(more.begin(), more.end(), "--zero") != more.end();
    CHECK(says_share == (is_zero && ranks > 1));
    return {.epochs = Lines(ddprun->out(), "epoch ", " %"),
            .losses = ReadFile(File(name + ".steps")),
            .summary = ReadFile(File(name + ".json"))};
  }

 private:
  TempDir dir_;
};

TEST_CASE(
    "train: with --zero 1, 2 and 3 ranks have the losses and weights that they have without") {
  const Training training;
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const Told whole = training.Run(ranks, "whole" + std::to_string(ranks), {"--epochs=2"});
    const Told shared =
        training.Run(ranks, "shared" + std::to_string(ranks), {"--epochs=2", "--zero"});
    CHECK(whole.epochs == Contains("\nepoch 2/2: loss "));
    CHECK(shared.epochs == whole.epochs);
    CHECK(whole.losses == Contains("{\"step\": 40,"));
    CHECK(shared.losses == whole.losses);
    CHECK(shared.Weights() == whole.Weights());
  }
}

TEST_CASE("train: with --zero a killed rank costs no bit of the result") {
  const Training training;
  const Told undisturbed = training.Run(3, "undisturbed", {"--epochs=6"});
  StepPipe steps(training.File("killed.steps"));
  Job job;
  auto ddprun =
      job.RunRaw(training.Command({"--max-restarts=1"}, 3, "killed",
                                  {"--epochs=6", "--zero", "--checkpoint_dir",
                                   training.File("killed"), "--checkpoint_every=7", "--resume"}));
  REQUIRE_MESSAGE(steps.WaitForSteps(10), ddprun->Describe());
  REQUIRE(kill(job.PidOfRank(2), SIGKILL) == 0);
  steps.Widen();
  REQUIRE_MESSAGE(ddprun->Wait(kTraining) == 0, ddprun->Describe());
  const Told told{.summary = ReadFile(training.File("killed.json"))};
  CHECK_MESSAGE(told.Field("restart_count") == "\"restart_count\": 1", told.summary);
  CHECK_MESSAGE(told.Field("start_step") != "\"start_step\": 0", told.summary);
  CHECK(told.Weights() == undisturbed.Weights());
}

TEST_CASE("train: a checkpoint goes on with and without --zero, on another number of ranks") {
  const Training training;
  Strings weights;
  for (const std::string before : {"", "--zero"}) {
    for (const std::string after : {"", "--zero"}) {
      const std::string name = "ck" + before + "-" + after;
      Strings more = {"--checkpoint_dir", training.File(name), "--resume"};
      const auto with = [&more](const char* epochs, const std::string& zero) {
        Strings all = more;
        all.push_back(epochs);
        if (!zero.empty()) all.push_back(zero);
        return all;
      };
      training.Run(3, name, with("--epochs=1", before));
      const Told told = training.Run(2, name, with("--epochs=2", after));
      CHECK(told.Field("start_step") == "\"start_step\": 20");
      CHECK(told.Field("steps") == "\"steps\": 50");
      weights.push_back(told.Weights());
    }
  }
  CHECK(weights == Strings(4, weights[0]));
}

}  // namespace
}  // namespace ddprun::testing
