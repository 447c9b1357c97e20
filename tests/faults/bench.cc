#include "tests/faults/bench.h"

#include <signal.h>

#include <doctest/doctest.h>

#include <utility>

#include "tests/support/contains.h"
#include "tests/support/descriptors.h"

namespace ddprun::testing {
namespace {

constexpr std::chrono::seconds kShortLook{2};
constexpr std::chrono::milliseconds kSettled{500};  // lower bound: for so long it must stay

}  // namespace

Bench::Bench(std::string defence_off) : defence_off_(std::move(defence_off)) {}

// What a ddprun without a defence has left is ours to end.
Bench::~Bench() {
  if (has_defence()) return;
  testing::Eventually(
      [this] {
        const std::vector<int> pids = job_.Processes();
        for (const int pid : pids) kill(pid, SIGKILL);
        return pids.empty();
      },
      std::chrono::seconds(10));
}

Bench::Node Bench::Run(std::vector<std::string> options, const std::vector<std::string>& steps,
                       Subprocess::Options how) {
  options.push_back(Runfile("tests/e2e/toy_worker"));
  options.insert(options.end(), steps.begin(), steps.end());
  return RunRaw(std::move(options), std::move(how));
}

Bench::Node Bench::RunRaw(std::vector<std::string> arguments, Subprocess::Options how) {
  return RunUnder({}, arguments, std::move(how));
}

Bench::Node Bench::RunUnder(std::vector<std::string> command,
                            const std::vector<std::string>& arguments, Subprocess::Options how) {
  command.push_back(Runfile(has_defence() ? "ddprun" : "tests/faults/ddprun_disarmed"));
  command.insert(command.end(), arguments.begin(), arguments.end());
  how.env["DDPRUN_TEST_DISARM"] = defence_off_;
  return job_.RunProgram(std::move(command), std::move(how));
}

bool Bench::Eventually(const std::function<bool()>& condition) const {
  return testing::Eventually(condition);
}

bool Bench::DefenceBrings(const std::function<bool()>& condition, std::chrono::seconds time) const {
  return testing::Eventually(condition, has_defence() ? kPatience : time);
}

bool Bench::IsPrevented(const std::function<bool()>& condition) const {
  return !testing::Eventually(condition, has_defence() ? kShortLook : kPatience);
}

bool Bench::Ends(Subprocess& process, int exit_code) const { return process.Wait() == exit_code; }

bool Bench::Says(const Subprocess& process, const std::string& text, size_t times) const {
  return Eventually([&] { return CountOf(process.err(), text) >= times; });
}

void Bench::NoteDescriptors(const Subprocess& process) {
  AllowDescriptors(process, SettledDescriptors(process));
}

size_t Bench::SettledDescriptors(const Subprocess& process) const {
  size_t count = 0;
  auto since = std::chrono::steady_clock::now();
  Eventually([&] {
    const auto now = std::chrono::steady_clock::now();
    if (const size_t open = CountDescriptors(process.pid()); open != count) {
      count = open;
      since = now;
    }
    return now - since > kSettled;
  });
  return count;
}

void Bench::AllowDescriptors(const Subprocess& process, size_t count) {
  descriptors_[process.pid()] = count;
}

std::string Bench::CheckDescriptors() const {
  for (const auto& [pid, before] : descriptors_) {
    // A connection may be on its way out, and a look of the agent's at its node under way.
    if (!Eventually([&, pid = pid, before = before] { return CountDescriptors(pid) <= before; })) {
      return "process " + std::to_string(pid) + " had or may have " + std::to_string(before) +
             " descriptors and has " + std::to_string(CountDescriptors(pid)) + " after the fault";
    }
  }
  return "";
}

std::string Bench::CheckAllGone() const {
  return job_.IsGone() ? "" : "processes of the job are left";
}

bool HasEnded(Subprocess& process) {
  return process.Wait(std::chrono::milliseconds(0)).has_value();
}

void CheckHolds(const Scenario& scenario) {
  Bench bench;
  const std::string broken = scenario(bench);
  CHECK(broken == "");
  if (broken.empty()) CHECK(bench.CheckAllGone() == "");
}

void CheckHoldsBy(const std::string& defence, const Scenario& scenario,
                  const std::string& broken_without) {
  CheckHolds(scenario);
  Bench twin(defence);
  CHECK(scenario(twin) == broken_without);
}

}  // namespace ddprun::testing
