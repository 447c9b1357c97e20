// Nodes of one worker each, each on a host of its own behind a wire. The rendezvous is at the first
// host.
#ifndef DDPRUN_TESTS_FAULTS_WIRED_H_
#define DDPRUN_TESTS_FAULTS_WIRED_H_

#include <string>
#include <vector>

#include "tests/faults/bench.h"
#include "tests/faults/wire.h"

namespace ddprun::testing {

class Wired {
 public:
  Wired(Bench& bench, Wire& wire) : bench_(bench), wire_(wire) {}

  // Of two options of one name the last wins.
  void Start(const std::vector<int>& hosts, const std::vector<std::string>& more,
             const std::vector<std::string>& steps);
  // One more node, with the options and steps of the others.
  void StartOn(int host);

  // Whether ranks 0 to n - 1 of n nodes have made their files "up<rank>.<restart>" in time.
  bool AwaitWorkers(int restart);
  // How many workers have begun on a host so far; each of them made a file.
  size_t Starts(int host) const;
  // The pid of the worker that is alive on a host; 0: there is none.
  int PidOn(int host) const;
  // Whether it comes to be that a worker is alive, the `starts`th, on each of these hosts.
  bool AwaitRunning(const std::vector<int>& hosts, size_t starts);
  bool AwaitStopped(const std::vector<int>& hosts);

  void NoteDescriptors();
  bool AllEndWith(int exit_code);
  // The node that was started first has index 0.
  Subprocess& node(size_t index) { return *nodes_[index]; }
  std::string Describe() const;
  // How often all have said it, together.
  size_t Count(const std::string& text) const;

 private:
  std::vector<int> PidsBegun(int host) const;

  Bench& bench_;
  Wire& wire_;
  std::vector<std::string> options_;
  std::vector<std::string> steps_;
  std::vector<Bench::Node> nodes_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_WIRED_H_
