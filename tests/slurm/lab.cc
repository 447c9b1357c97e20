#include "tests/slurm/lab.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/support/contains.h"

namespace ddprun::slurm {

using testing::Eventually;
using testing::Runfile;
using testing::Subprocess;

std::string Worker() { return Runfile("tests/e2e/toy_worker"); }

std::unique_ptr<Subprocess> Start(const Step& step) {
  Words argv = {"/usr/bin/srun"};
  argv.insert(argv.end(), step.slurm.begin(), step.slurm.end());
  argv.push_back(Runfile(step.ddprun));
  argv.insert(argv.end(), step.options.begin(), step.options.end());
  argv.push_back(Worker());
  argv.insert(argv.end(), step.steps.begin(), step.steps.end());
  return std::make_unique<Subprocess>(argv);
}

Result Run(const Step& step) {
  const auto srun = Start(step);
  const std::optional<int> code = srun->Wait();
  REQUIRE_MESSAGE(code, srun->Describe());
  return {.code = *code, .out = srun->out(), .err = srun->err()};
}

std::string Output(Words argv) {
  Subprocess program(std::move(argv));
  REQUIRE_MESSAGE(program.Wait(), program.Describe());
  return program.out();
}

namespace {

// A time limit is minutes.
constexpr std::chrono::seconds kSlurmPatience{150};

}  // namespace

Words SortedLines(const std::string& text) {
  Words lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::sort(lines.begin(), lines.end());
  return lines;
}

bool WaitForCount(const Subprocess& process, const std::string& text, size_t count) {
  return Eventually([&] { return CountOf(process.out(), text) == count; });
}

namespace {

std::string ProcessesLeft() {
  return Output({"/usr/bin/pgrep", "-a", "ddprun|toy_worker|^train$"});
}

std::string LeftOver() {
  std::string left = ProcessesLeft();
  // Jobs' records lie in the second, and logs in a temporary folder of the agent's own.
  for (const std::string folder : {"/dev/shm", "/tmp/ddprun-0"}) {
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
      left += entry.path().string() + "\n";
    }
  }
  return left;
}

void CheckIsEmpty(std::string (*what)()) {
  std::string left;
  const bool is_clean = Eventually([&left, what] {
    left = what();
    return left.empty();
  });
  CHECK_MESSAGE(is_clean, left);
}

}  // namespace

void CheckNoProcessIsLeft() { CheckIsEmpty(ProcessesLeft); }

void CheckNothingIsLeft() { CheckIsEmpty(LeftOver); }

void CheckNextJobTidies(size_t killed, const Words& slurm) {
  CheckNoProcessIsLeft();
  // Each has a folder and a control socket.
  const auto is_theirs = [&] { return SortedLines(LeftOver()).size() <= 2 * killed; };
  CHECK_MESSAGE(Eventually(is_theirs), LeftOver());
  const Result next = Run({.slurm = slurm, .steps = {"print:{rank}"}});
  CHECK_MESSAGE(next.code == 0, next.err);
  CheckNothingIsLeft();
}

namespace {

// Of each run that sacct knows, the last one's at the end.
Words EndingsSoFar(const std::string& id) {
  // sacct's own end is now, and a record is some seconds late.
  const std::string text = Output({"/usr/bin/sacct", "-D", "-a", "-n", "-P", "-S", "now-1hour",
                                   "-E", "now+1hour", "-j", id, "-o", "JobID,State,ExitCode"});
  Words endings;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const Words parts = absl::StrSplit(line, '|');
    if (parts.size() == 3 && parts[0] == id) endings.push_back(parts[1] + " " + parts[2]);
  }
  return endings;
}

bool IsEnding(const std::string& text) {
  // The code comes after the state.
  return text != "FAILED 0:0" && !absl::StartsWith(text, "RUNNING") &&
         !absl::StartsWith(text, "PENDING");
}

}  // namespace

std::string Ending(const std::string& id) {
  Words endings;
  Eventually(
      [&] {
        endings = EndingsSoFar(id);
        return !endings.empty() && IsEnding(endings.back());
      },
      kSlurmPatience);
  return endings.empty() ? "" : endings.back();
}

Words Endings(const std::string& id, size_t runs) {
  Words endings;
  Eventually([&] {
    endings = EndingsSoFar(id);
    return endings.size() >= runs && std::all_of(endings.begin(), endings.end(), IsEnding);
  });
  return endings;
}

std::string JobOf(const std::string& err) {
  const std::string line = "ddprun: Slurm step ";
  const size_t at = err.find(line);
  REQUIRE_MESSAGE(at != std::string::npos, err);
  const size_t begin = at + line.size();
  return err.substr(begin, err.find('.', begin) - begin);
}

std::string Srun(const std::string& options, const std::string& steps) {
  return "srun ddprun " + options + " " + Worker() + " " + steps;
}

Batch::Batch(const Words& options, const std::string& lines) {
  const std::string script = folder_.File("job.sh");
  const std::string ddprun = Runfile("ddprun");
  testing::WriteFile(script, "#!/bin/bash\nPATH=" + ddprun.substr(0, ddprun.rfind('/')) +
                                 ":$PATH\n" + lines + "\n");
  Words argv = {"/usr/bin/sbatch", "--parsable", "--open-mode=append", "-o", folder_.File("out")};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back(script);
  id_ = std::string(absl::StripSuffix(Output(argv), "\n"));
  REQUIRE(!id_.empty());
}

bool Batch::IsPending() const {
  return Output({"/usr/bin/squeue", "-h", "-j", id_, "-o", "%T"}) == "PENDING\n";
}

void Batch::StartAgain() const {
  REQUIRE_MESSAGE(Eventually([&] {
                    return IsPending() && Output({"/usr/bin/pgrep", "slurmstepd"}).empty();
                  }),
                  out());
  // Not in the second in which that run was ended: its nodes take this one for that.
  Output({"/usr/bin/scontrol", "update", "jobid=" + id_, "StartTime=now+1"});
}

std::string Batch::out() const {
  const std::string path = folder_.path() / "out";
  return std::filesystem::exists(path) ? testing::ReadFile(path) : "";
}

bool Batch::WaitForOut(const std::string& text, size_t count) const {
  return Eventually([&] { return CountOf(out(), text) >= count; });
}

namespace {

void Switch(const std::string& node, const std::string& what) {
  Output({"/bin/bash", Runfile("tests/slurm/in_slurm.sh"), what, node});
}

}  // namespace

CutNode::CutNode(const std::string& node) : node_(node) { Switch(node_, "--cut"); }

CutNode::~CutNode() {
  Switch(node_, "--return");
  // Slurm takes it back by itself (ReturnToService=2), later.
  Eventually([] {
    return CountOf(Output({"/usr/bin/sinfo", "-h", "-N", "-p", "main", "-t", "idle"}), "\n") == 4;
  });
}

}  // namespace ddprun::slurm
