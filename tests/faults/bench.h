// What every test of a fault shares: the program under test, its job, and one ending.
//
// A scenario is a function that makes a fault and says what it saw: "" when all that ddprun
// promises held, else a sentence on the first thing that did not. So the same scenario can be run
// over a ddprun of which one defence is off, where it must not hold (CheckHoldsBy).
#ifndef DDPRUN_TESTS_FAULTS_BENCH_H_
#define DDPRUN_TESTS_FAULTS_BENCH_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/job.h"

namespace ddprun::testing {

class Bench {
 public:
  using Node = std::unique_ptr<Subprocess>;

  // `defence_off`: the name of a defence (disarm/defences.py) without which ddprun runs; empty:
  // ddprun itself.
  explicit Bench(std::string defence_off = "");
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Starts `ddprun <options> toy_worker <steps>`, or `ddprun <arguments>`.
  Node Run(std::vector<std::string> options, const std::vector<std::string>& steps,
           Subprocess::Options how = {});
  Node RunRaw(std::vector<std::string> arguments, Subprocess::Options how = {});
  // Starts `<command> ddprun <arguments>`, where the command executes its last arguments.
  Node RunUnder(std::vector<std::string> command, const std::vector<std::string>& arguments,
                Subprocess::Options how = {});

  // Whether it comes to hold, with and without the defence, within kPatience.
  bool Eventually(const std::function<bool()>& condition) const;
  // Whether it comes to hold, which only the defence brings about, in less than `time` on a quiet
  // machine. Where the defence is off it never does, and is not waited for any longer.
  bool DefenceBrings(const std::function<bool()>& condition,
                     std::chrono::seconds time = std::chrono::seconds(5)) const;
  // Whether it does not come to hold, which the defence prevents. Where the defence is off it
  // comes, and is waited for; where the defence is on, the look is short.
  bool IsPrevented(const std::function<bool()>& condition) const;
  bool has_defence() const { return defence_off_.empty(); }
  bool Ends(Subprocess& process, int exit_code) const;
  bool Says(const Subprocess& process, const std::string& text, size_t times = 1) const;

  // Counts the descriptors of a process that is to outlive the fault, once their number stays: an
  // agent opens its control socket when its workers run already.
  void NoteDescriptors(const Subprocess& process);
  // How many those are.
  size_t SettledDescriptors(const Subprocess& process) const;
  // Where there is no time before the fault, or too much is gone behind it: how many it may have.
  void AllowDescriptors(const Subprocess& process, size_t count);
  // The common ending: once all is well again no process has more descriptors than before. "" or
  // what is wrong.
  std::string CheckDescriptors() const;
  // And when all has ended nothing is left of the job.
  std::string CheckAllGone() const;

  Job& job() { return job_; }

 private:
  const std::string defence_off_;
  Job job_;
  std::map<int, size_t> descriptors_;  // by pid
};

bool HasEnded(Subprocess& process);

using Scenario = std::function<std::string(Bench&)>;

// Runs it over ddprun, where it must hold.
void CheckHolds(const Scenario& scenario);
// And once more over a ddprun without the defence, where it must end with that very sentence.
void CheckHoldsBy(const std::string& defence, const Scenario& scenario,
                  const std::string& broken_without);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_BENCH_H_
