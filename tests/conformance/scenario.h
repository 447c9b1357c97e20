// A scenario: one small program, run in the same way under torchrun and under ddprun, and what is
// seen of both compared field by field. Only the table of intended differences excuses any. What
// torchrun does is recorded (recorder.h).
#ifndef DDPRUN_TESTS_CONFORMANCE_SCENARIO_H_
#define DDPRUN_TESTS_CONFORMANCE_SCENARIO_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/differences.h"
#include "tests/e2e/job.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {

enum class Launcher { kTorchrun, kDdprun };

class Run;

// In every word: {dir} is the run's own directory, in which it runs, {port} a port of the run's
// own, {programs} the folder of the programs, {toy} tests/e2e/toy_worker.
struct Scenario {
  std::string name;  // of its own: in the table, and of its recording
  std::vector<std::string> options;
  // What the command of each agent adds to `options`; started in this order, side by side.
  std::vector<std::vector<std::string>> nodes = {{}};
  std::vector<std::string> command;
  // The workers import PyTorch: without one the case is skipped.
  bool needs_torch = false;
  std::map<std::string, std::string> env = {};
  // Words in front of the launcher.
  std::vector<std::string> prefix = {};
  // Called while the agents run; ends when what it waits for has come about.
  std::function<void(Run&)> during = nullptr;
  // Called when they have ended: adds fields.
  std::function<void(Run&)> after = nullptr;
  // What is written to stdout is not compared.
  bool is_quiet = false;
  // Each agent's exit code beside the class of it.
  bool has_codes = false;
  // A worker for each CPU that the test may use: their number is kept as {cpus}.
  bool is_worker_per_cpu = false;
};

// The agents of one scenario under one launcher.
class Run {
 public:
  Run(Launcher launcher, const Scenario& scenario);
  // Ends what is left.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Launcher launcher() const { return launcher_; }
  Job& job() { return job_; }
  Subprocess& node(int index) { return *nodes_[static_cast<size_t>(index)]; }
  // Signals an agent, unless it has ended.
  void Signal(int index, int signal);
  // Starts one agent more, with `options` behind the scenario's.
  void StartNode(const std::vector<std::string>& options);
  // The path of a file in {dir}.
  std::string File(const std::string& name) const { return job_.File(name); }
  // Waits for a file in {dir}, with a check.
  void AwaitFile(const std::string& name);
  void Touch(const std::string& name) { job_.Touch(name); }
  void Remove(const std::string& name);
  // Waits until somebody listens on {port}, with a check.
  void AwaitPort();
  // Waits for a text on an agent's stderr, with a check.
  void AwaitErr(int index, const std::string& of_torchrun, const std::string& of_ddprun);
  void Observe(const std::string& field, const std::string& value);
  // Does what the scenario does while the agents run, and finishes.
  void Drive();
  // Waits for all agents and observes: exit, code, out, err (lines with "seen: "), files,
  // file.NAME, env.NAME, leftovers.
  void Finish();

  const Observed& observed() const { return observed_; }
  std::string Describe() const;

 private:
  std::string Dir() const;
  std::string Filled(std::string word) const;
  std::string Normalised(std::string text) const;
  void ObserveExits();
  void ObserveFiles();
  void ObserveEnvironments(const std::map<std::string, std::string>& dumps);
  void ForgetCpus();
  void KillLeftovers();

  const Launcher launcher_;
  const Scenario& scenario_;
  Job job_;
  std::map<std::string, std::string> env_;
  std::vector<std::unique_ptr<Subprocess>> nodes_;
  Observed observed_;
};

// Runs the scenario under ddprun and compares it with torchrun's recording. A case calls it last.
void Compare(const Scenario& scenario);

// Runs it under both: what is under test is the program beside the real torchrun. A case calls it
// last: without PyTorch it is skipped.
void CompareLive(const Scenario& scenario);

// Lines of a text, sorted, as one field.
std::string SortedLines(const std::string& text);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_CONFORMANCE_SCENARIO_H_
