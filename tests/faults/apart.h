// A coordinator that runs apart, and two agents of one worker each, whose workers run until
// Finish().
#ifndef DDPRUN_TESTS_FAULTS_APART_H_
#define DDPRUN_TESTS_FAULTS_APART_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/bench.h"

namespace ddprun::testing {

class Apart {
 public:
  // The coordinator keeps the job's file. `env` is its own.
  explicit Apart(Bench& bench, const std::map<std::string, std::string>& env = {});

  // On the same address once more.
  bool StartCoordinator(const std::map<std::string, std::string>& env = {});
  // The first agent gets rank 0. `ports`: where each looks for the coordinator; 0: where it is.
  // `env`: the second one's. Whether the workers have come to run.
  bool StartNodes(const std::vector<std::string>& more, std::array<uint16_t, 2> ports = {},
                  const std::map<std::string, std::string>& env = {});
  bool AwaitWorkers(int restart);
  std::vector<int> Pids() const;
  // Lets the workers end; "" or what is wrong: all end with 0, nobody has more descriptors.
  std::string Finish();

  Subprocess& coordinator() { return *coordinator_; }
  Subprocess& node(size_t index) { return *nodes_[index]; }
  bool HaveBothSaid(const std::string& text, size_t times = 1) const;

 private:
  Bench& bench_;
  Bench::Node coordinator_;
  std::vector<Bench::Node> nodes_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_APART_H_
