// The ranks of a job as a launcher starts them, without one.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_JOB_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_JOB_H_

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/store/store_server.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {

// `world_size` ranks of one program, with a store.
class Job {
 public:
  Job(int world_size, const std::vector<std::string>& args);

  Subprocess& rank(int rank) { return *ranks_[rank]; }
  // The exit code of each rank; -1: it still runs.
  std::vector<int> Wait();
  // What all ranks together wrote.
  std::string Stderr() const;

 private:
  std::unique_ptr<rendezvous::StoreServer> store_;
  std::vector<std::unique_ptr<Subprocess>> ranks_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_JOB_H_
