// A round that is healthy stays as it is, whatever happens to messages, sessions and coordinators.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "tests/rendezvous/core/machine_view.h"
#include "tests/sim/fake_job.h"

namespace ddprun::rendezvous::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kSeeds = 250;

// Some nodes that run a round, a spare, and a network that loses sessions and coordinators but
// gives every node its word within the evict time, and who closes is back within 2 s.
class HealthyJob {
 public:
  explicit HealthyJob(uint64_t seed)
      : random_(seed), nodes_(1 + Below(4)), job_(MakePolicy(nodes_), MakeBeginning()) {
    for (uint64_t i = 0; i < nodes_; ++i) job_.Join(Name(i), false, false);
    job_.Join("spare", false, false);
    job_.TakeActions();
  }

  void Disturb() {
    bool is_by_peer = false;
    switch (Below(7)) {
      case 0:
        job_.Restart(Below(2) == 0);
        return ComeBack();
      case 1:
        is_by_peer = Below(2) == 0;
        job_.Break(AnyName(), is_by_peer);
        job_.Pass(milliseconds(Below(is_by_peer ? 2000 : 4000)));
        return ComeBack();
      case 2:  // a second session while the first looks alive
        return job_.Join(AnyName(), true, true);
      case 3:
        job_.Stall(milliseconds(Below(60000)));
        return job_.Pass(milliseconds(Below(2000)));
      case 4:
        return Stray();
      case 5:
        return job_.Join("spare", false, true);
      default:
        return job_.Pass(milliseconds(Below(15000)));
    }
  }

  // Every node ends well, and so does the job.
  void Finish() {
    for (uint64_t i = 0; i < nodes_; ++i) {
      const FakeNode& node = job_.node(Name(i));
      job_.Feed(FirstWorkerSucceeded{.stamp = node.stamp(), .rank = node.first_rank});
      job_.Feed(WorkersSucceeded{node.stamp()});
    }
  }

  // What a node of the round was told that stops or moves its workers; empty: nothing.
  std::string Disturbance() {
    for (const std::string& breach : job_.broken()) return breach;
    for (const std::string& line : job_.TakeLines()) {
      const bool is_to_member =
          line.find("n0: ") != std::string::npos || line.find("n1: ") != std::string::npos ||
          line.find("n2: ") != std::string::npos || line.find("n3: ") != std::string::npos;
      if (is_to_member && line.find(": close") == std::string::npos &&
          line.find("exit_code=0") == std::string::npos) {
        return line;
      }
    }
    return "";
  }

  bool HasSucceeded() const {
    const std::optional<Verdict>& verdict = job_.machine().verdict();
    return verdict.has_value() && verdict->exit_code == 0;
  }
  std::string Describe() const { return RenderState(job_.machine(), job_.now()); }

 private:
  static Policy MakePolicy(uint64_t nodes) {
    Policy policy;
    policy.run_id = "job1";
    policy.min_nodes = policy.max_nodes = static_cast<int>(nodes);
    policy.max_restarts = 3;
    return policy;
  }
  static Beginning MakeBeginning() {
    return {.epoch = Epoch{5}, .instance = {7, 1}, .verdict = std::nullopt};
  }

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  static std::string Name(uint64_t i) { return "n" + std::to_string(i); }
  std::string AnyName() { return Name(Below(nodes_)); }

  // All that have no session come back within the evict time, in any order, a spare among them.
  void ComeBack() {
    const uint64_t first = Below(nodes_ + 1);
    for (uint64_t i = 0; i <= nodes_; ++i) {
      const uint64_t at = (first + i) % (nodes_ + 1);
      const std::string name = at == nodes_ ? "spare" : Name(at);
      if (job_.node(name).is_connected) continue;
      job_.Join(name, at != nodes_, true);
      job_.Pass(milliseconds(Below(1500)));
    }
  }

  // What is late, said twice, or of another job.
  void Stray() {
    const FakeNode& node = job_.node(AnyName());
    Stamp old = node.stamp();
    old.round = Round{old.round.value - 1};
    Stamp other = node.stamp();
    other.instance = {99, 99};
    WorkersFailed failed{.stamp = Below(2) == 0 ? old : other, .report = {}};
    failed.report.rank = node.first_rank;
    failed.report.exit_code = 3;
    job_.Feed(failed);
    job_.Feed(NodeLeft{Stamp{SessionId{100000 + Below(9)}, {}, {}, {}}, "nobody"});
    job_.Feed(SessionBroken{SessionId{100000 + Below(9)}});
    FakeNode& stranger = job_.node("stranger");
    stranger.assignment = node.assignment;
    stranger.assignment.instance = {99, 99};
    job_.Join("stranger", true, true);
    job_.node("differs").hello.policy.max_restarts = 9;
    job_.Join("differs", false, true);
  }

  std::mt19937_64 random_;
  const uint64_t nodes_;
  FakeJob job_;
};

TEST_CASE("machine: no message, loss or restart of a coordinator disturbs a healthy round") {
  int disturbed = 0;
  for (uint64_t seed = 1; seed <= kSeeds && disturbed < 3; ++seed) {
    HealthyJob job(seed);
    std::string what;
    for (int i = 0; i < 30 && what.empty(); ++i) {
      job.Disturb();
      what = job.Disturbance();
    }
    if (what.empty()) {
      job.Finish();
      what = job.Disturbance();
    }
    if (what.empty() && !job.HasSucceeded()) what = "it did not end";
    if (what.empty()) continue;
    ++disturbed;
    MESSAGE("seed " << seed << ": " << what << "\n" << job.Describe());
  }
  CHECK(disturbed == 0);
}

}  // namespace
}  // namespace ddprun::rendezvous::testing
