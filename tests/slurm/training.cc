#include "tests/slurm/training.h"

#include <doctest/doctest.h>

#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/support/contains.h"

namespace ddprun::slurm {

using testing::Runfile;
using testing::Subprocess;

namespace {

constexpr int kSteps = 300;

// Drawn once.
const std::string& Digits() {
  static const testing::TempDir dir;
  static const std::string path = [] {
    Output({Runfile("tools/make_digits/make_digits"), dir.File("digits"), "--train=300", "--test",
            "20"});
    return dir.File("digits");
  }();
  return path;
}

Words Trainer(const testing::TempDir& folder, const std::string& step_log) {
  return {Runfile("examples/train/train"),
          "--data",
          Digits(),
          "--epochs=2",
          "--hidden=8",
          "--batch_size=1",
          "--checkpoint_every=20",
          "--checkpoint_dir",
          folder.File("checkpoints"),
          "--resume",
          "--summary_file",
          folder.File("summary"),
          "--step_log",
          folder.File(step_log)};
}

// The line of each step. A step that was made again must have come to the same.
std::map<int, std::string> Losses(const std::string& log) {
  std::map<int, std::string> losses;
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const Words parts = absl::StrSplit(line, absl::ByAnyChar(" ,"), absl::SkipEmpty());
    int step = 0;
    REQUIRE_MESSAGE((parts.size() == 4 && absl::SimpleAtoi(parts[1], &step)), std::string(line));
    const auto [at, is_new] = losses.emplace(step, parts[3]);
    CHECK_MESSAGE((is_new || at->second == parts[3]), "step ", step, ": ", at->second, ", again ",
                  parts[3]);
  }
  return losses;
}

// The line with the fingerprint of the parameters.
std::string Parameters(const std::string& summary) {
  const size_t begin = summary.find("\"parameters_checksum\"");
  REQUIRE_MESSAGE(begin != std::string::npos, summary);
  return summary.substr(begin, summary.find('\n', begin) - begin);
}

struct Course {
  std::map<int, std::string> losses;
  std::string parameters;
};

// Of a run that nobody disturbs.
const Course& Undisturbed() {
  static const Course course = [] {
    const testing::TempDir folder;
    Words argv = {"/usr/bin/srun", "-N2", Runfile("ddprun")};
    const Words trainer = Trainer(folder, "steps");
    argv.insert(argv.end(), trainer.begin(), trainer.end());
    Subprocess srun(argv);
    REQUIRE_MESSAGE(srun.Wait() == 0, srun.Describe());
    return Course{.losses = Losses(testing::ReadFile(folder.File("steps"))),
                  .parameters = Parameters(testing::ReadFile(folder.File("summary")))};
  }();
  REQUIRE(course.losses.size() == kSteps);
  return course;
}

void CheckResumed(const Batch& batch) {
  CHECK(Ending(batch.id()) == "COMPLETED 0:0");
  CHECK_MESSAGE(CountOf(batch.out(), "resumed at step ") == 1, batch.out());
}

}  // namespace

Training::Training() : steps_(folder_.File("steps")) {}

std::string Training::Line(const std::string& options) const {
  return "srun ddprun " + options + " " + absl::StrJoin(Trainer(folder_, "steps"), " ");
}

std::string Training::Script() const {
  return Line("--preempt-signal=USR1 --requeue-code=99") +
         "\ncode=$?\necho \"srun ended with $code\"\n"
         "[ $code -eq 99 ] && scontrol requeue $SLURM_JOB_ID\nexit $code";
}

std::unique_ptr<Subprocess> Training::Start(const Words& slurm) const {
  Words argv = {"/usr/bin/srun"};
  argv.insert(argv.end(), slurm.begin(), slurm.end());
  argv.push_back(Runfile("ddprun"));
  const Words trainer = Trainer(folder_, "steps");
  argv.insert(argv.end(), trainer.begin(), trainer.end());
  return std::make_unique<Subprocess>(argv);
}

void Training::CheckGoesOn(const Batch& batch) {
  batch.StartAgain();
  LetGo();
  REQUIRE_MESSAGE(batch.WaitForOut("resumed at step "), batch.out());
  CheckResumed(batch);
}

void Training::CheckAnotherGoesOn() {
  CheckNoProcessIsLeft();
  LetGo();
  CheckResumed(Batch({"-N2"}, Line("")));
  CheckIsAsUndisturbed();
}

void Training::CheckIsAsUndisturbed() {
  const Course& course = Undisturbed();
  CHECK(Losses(steps_.Read(1 << 18)) == course.losses);
  CHECK(Parameters(testing::ReadFile(folder_.File("summary"))) == course.parameters);
  CheckNothingIsLeft();
}

}  // namespace ddprun::slurm
