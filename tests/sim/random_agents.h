// Agents and a network that do whatever numbers say: come, break, fail, lie about rounds, stall.
#ifndef DDPRUN_TESTS_SIM_RANDOM_AGENTS_H_
#define DDPRUN_TESTS_SIM_RANDOM_AGENTS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tests/sim/fake_job.h"

namespace ddprun::rendezvous::testing {

// What happened over many seeds, so that a test can show that it saw what it is about.
struct Tally {
  int rounds = 0;
  int successes = 0;
  int failures = 0;
  int given_up = 0;
  int losses = 0;
  int finished = 0;
  int restarts = 0;
  int stops = 0;
  int bad_nodes = 0;
  int64_t steps = 0;
};

class RandomAgents {
 public:
  using Draw = std::function<uint64_t()>;

  // Does what the numbers say that `draw` gives. With `is_loud` it prints what the machine says,
  // and counts nothing.
  RandomAgents(Draw draw, bool is_loud);
  RandomAgents(uint64_t seed, bool is_loud);

  // Anything may happen, sense or not: `actions` times.
  void Misbehave(int actions);
  // From now on every node does what it is told and nothing breaks. Returns whether the job came
  // to its end within the virtual time in which it must.
  bool Settle();
  // What the run added to the tally.
  void AddTo(Tally& tally) const;

  FakeJob& job() { return job_; }
  std::string Describe() const;

 private:
  static Policy RandomPolicy(const Draw& draw);

  // 0 <= result < bound.
  uint64_t Below(uint64_t bound) { return draw_() % bound; }
  std::string AnyName();
  void ActOnce();
  void Come(const std::string& name);
  void Report(const std::string& name);
  Health AnyHealth();
  StopRead AnyStopRead();
  void Lie(const std::string& name);
  void OrderStop(const std::string& name);
  void LetTimePass();
  void Restart();
  void Obey();
  void Count();

  const bool is_loud_;
  const Draw draw_;
  FakeJob job_;
  Tally tally_;
};

}  // namespace ddprun::rendezvous::testing

#endif  // DDPRUN_TESTS_SIM_RANDOM_AGENTS_H_
