// The ranks of one group as processes of their own, so that they can stop and die.
#ifndef DDPRUN_TESTS_SUPPORT_RANK_PROCESSES_H_
#define DDPRUN_TESTS_SUPPORT_RANK_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"

namespace ddprun::testing {

// Forks one process per rank. Each gets the environment that a launcher gives a worker, runs `body`
// and exits with what it returns. The children are forked before the test starts any thread and
// wait for the store's port. Whoever is left at the end is killed.
class RankProcesses {
 public:
  struct Options {
    int world_size = 2;
    // Added to every rank's environment; "" removes. DDPRUN_HOST_ID plays several hosts.
    std::map<std::string, std::string> env;
    std::function<std::map<std::string, std::string>(int rank)> env_of_rank;
  };
  // `body` may write lines for the test with Say().
  using Body = std::function<int(int rank)>;

  RankProcesses(const Options& options, const Body& body);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // In a child: a line for the parent.
  static void Say(const std::string& line);

  // Waits for the next line of `rank`; "" at its end of file, "TIMEOUT" after 60 s.
  std::string Hear(int rank);
  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].pid; }
  void Signal(int rank, int signal);
  // Waits for the end of `rank` and returns its exit code, 128 + n for signal n.
  int Await(int rank);

 private:
  struct Rank {
    pid_t pid = -1;
    UniqueFd lines;
    std::string buffer;
    bool has_ended = false;
  };
  std::vector<Rank> ranks_;
  std::unique_ptr<rendezvous::StoreServer> store_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_RANK_PROCESSES_H_
