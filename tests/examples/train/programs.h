// Programs started by a test, the ranks of a job among them.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_PROGRAMS_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_PROGRAMS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {

// One child process. Killed with the object if it still lives.
class Program {
 public:
  // REQUIRES: args[0] is a path. Output goes to files of the program's own.
  Program(const std::vector<std::string>& args, const std::vector<std::string>& environment);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Kill();
  // The exit code, or 128 + n for signal n. Ends the test program after 60 s.
  int Wait();
  std::string Stdout() const;
  std::string Stderr() const;

 private:
  TempDir output_;
  pid_t pid_ = -1;  // -1 once reaped
  UniqueFd pidfd_;
  int exit_code_ = -1;
};

// `world_size` ranks of one program, with a store, as a launcher starts them.
class Job {
 public:
  Job(int world_size, const std::vector<std::string>& args);

  Program& rank(int rank) { return *ranks_[rank]; }
  // The exit code of each rank.
  std::vector<int> Wait();
  // What all ranks together wrote.
  std::string Stderr() const;

 private:
  std::unique_ptr<rendezvous::StoreServer> store_;
  std::vector<std::unique_ptr<Program>> ranks_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_PROGRAMS_H_
