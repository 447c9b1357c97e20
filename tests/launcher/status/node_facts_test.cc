#include "launcher/status/node_facts.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace ddprun::launcher {
namespace {

RankView Rank(int local_rank, int pid) {
  RankView rank;
  rank.local_rank = local_rank;
  rank.pid = pid;
  rank.state = "running";
  return rank;
}

// A process that waits to be killed.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ == 0) {
      pause();
      _exit(0);
    }
    REQUIRE(pid_ > 0);
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int pid() const { return pid_; }

 private:
  const pid_t pid_;
};

TEST_CASE("node facts: of workers that live there is memory; of the node, too") {
  const Sleeper sleeper;
  NodeFacts facts;
  NodeView view;
  view.ranks = {Rank(0, getpid()), Rank(1, sleeper.pid())};
  facts.Fill(view);
  CHECK(view.ranks[0].memory.value_or(0) > 0);
  CHECK(view.ranks[1].memory.value_or(0) > 0);
  CHECK(view.memory_limit.value_or(0) > 0);
  CHECK(view.oom_kills == 0);
}

TEST_CASE("node facts: workers that have ended, or have not begun, have none") {
  NodeFacts facts;
  NodeView view;
  view.ranks = {Rank(0, 0), Rank(1, getpid()), Rank(2, 0x3fffffff)};
  view.ranks[1].state = "ended";
  facts.Fill(view);
  for (const RankView& rank : view.ranks) {
    CHECK(!rank.memory);
    CHECK(!rank.cpu);
  }
}

TEST_CASE("node facts: another process of the same local rank does not get the first one's") {
  NodeFacts facts;
  NodeView first;
  first.ranks = {Rank(0, getpid())};
  facts.Fill(first);
  REQUIRE(first.ranks[0].memory);
  // Nothing is read again so soon: what is known is of another process.
  const Sleeper sleeper;
  NodeView second;
  second.ranks = {Rank(0, sleeper.pid())};
  facts.Fill(second);
  CHECK(!second.ranks[0].memory);
}

TEST_CASE("node facts: a node without workers has what the node has") {
  NodeFacts facts;
  NodeView view;
  facts.Fill(view);
  CHECK(view.memory_limit.value_or(0) > 0);
}

}  // namespace
}  // namespace ddprun::launcher
