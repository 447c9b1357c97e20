// An agent's core under test: each step reads as a line, a word an action.
#ifndef DDPRUN_TESTS_LAUNCHER_AGENT_AGENT_BENCH_H_
#define DDPRUN_TESTS_LAUNCHER_AGENT_AGENT_BENCH_H_

#include <optional>
#include <string>

#include "launcher/agent/agent_core.h"

namespace ddprun::launcher {

class Bench {
 public:
  explicit Bench(int workers = 2, AgentPolicy policy = {});

  std::string Step(const AgentEvent& event);
  // Lets time pass in the steps that the core itself asks for. "!" stands for one that did nothing.
  std::string Pass(Duration duration);
  // Lets time go by in which the agent does not run, and wakes it.
  std::string Sleep(Duration duration);
  // A round begins; the workers' files are there at once.
  std::string Assign(uint64_t round) { return Begin(AssignmentOf(round)); }
  std::string Begin(const rendezvous::Assignment& assignment);
  // What is asked of a failure's description is answered at once.
  std::string End(int local_rank, int code, int signal = 0);
  std::string Describe(int local_rank, int code, std::optional<int> left_peer = {});
  // `line`, with the answer where it asks for a description.
  std::string Told(std::string line, int local_rank, int code);
  std::string Drain(uint64_t round);
  // EndJob's three answers.
  std::string Answer();
  // From the start until the workers of `round` run: "join start:1" for the first.
  std::string Run(uint64_t round = 1);

  static WorkerEnd EndOf(int local_rank, int code, int signal = 0);
  static rendezvous::Assignment AssignmentOf(uint64_t round);
  TimePoint now() const { return now_; }
  AgentCore& core() { return core_; }

 private:
  AgentCore core_;
  TimePoint now_{std::chrono::seconds(1000)};
  rendezvous::Assignment assignment_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_AGENT_AGENT_BENCH_H_
