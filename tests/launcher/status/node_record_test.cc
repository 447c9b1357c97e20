#include "launcher/status/node_record.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Assignment;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kBegin{seconds(1000)};

// A node of two workers, ranks 2 and 3 of 4.
class Lived {
 public:
  // `keep_children`: of the option.
  explicit Lived(Duration keep_children = {})
      : record_({.node_id = "id-b",
                 .host = "b",
                 .run_id = "run-1",
                 .program = "./train --secret",
                 .min_nodes = 2,
                 .max_nodes = 3,
                 .max_restarts = 5,
                 .keep_children = keep_children},
                kBegin) {}
  // Every word of it comes `after` the last.
  template <typename Word>
  Lived& Then(Duration after, const Word& word) {
    now_ += after;
    record_.Note(now_, word);
    return *this;
  }
  Lived& Event(Duration after, const AgentEvent& event) { return Then(after, event); }
  Lived& Action(Duration after, const AgentAction& action) { return Then(after, action); }
  Lived& Runs(Duration after, int local_rank, int pid) {
    now_ += after;
    record_.WorkerRuns(now_, local_rank, pid);
    return *this;
  }
  // Round `number`, from the join to running workers: 2 s of rendezvous, 300 ms of exec.
  Lived& Round(uint64_t number, int restart_count = 0) {
    Action(Duration{0}, JoinRound{});
    Event(seconds(2), rendezvous::Assigned{AssignmentOf(number, restart_count)});
    Action(Duration{0}, PrepareWorkers{AssignmentOf(number, restart_count)});
    Action(milliseconds(100), StartWorkers{AssignmentOf(number, restart_count)});
    Runs(milliseconds(100), 0, 70);
    return Runs(milliseconds(100), 1, 71);
  }
  static Assignment AssignmentOf(uint64_t number, int restart_count = 0) {
    Assignment assignment;
    assignment.round = ddprun::Round{number};
    assignment.node_rank = 1;
    assignment.node_count = 2;
    assignment.first_rank = 2;
    assignment.world_size = 4;
    assignment.restart_count = restart_count;
    return assignment;
  }
  WorkerEnd End(int local_rank, int exit_code, bool was_told = false) const {
    return {.local_rank = local_rank,
            .pid = 70 + local_rank,
            .exit_code = exit_code,
            .was_told_to_stop = was_told,
            .message = exit_code == 0 ? "" : "killed by signal 9 (SIGKILL)",
            .at = now_};
  }
  NodeView Node(Duration after = Duration{0}) const {
    NodeView view;
    record_.Fill(now_ + after, view);
    return view;
  }
  JobView Job(bool show_private = true, Duration after = Duration{0}) const {
    JobView view;
    record_.Fill(now_ + after, show_private, view);
    return view;
  }
  const NodeRecord& record() const { return record_; }

 private:
  TimePoint now_ = kBegin;
  NodeRecord record_;
};

FailureDescribed Described(uint64_t round, const std::string& tail = "one\ntwo") {
  FailureDescribed described;
  described.assignment = Lived::AssignmentOf(round);
  described.report.rank = 2;
  described.report.host = "b";
  described.report.exit_code = 137;
  described.report.message = "killed by signal 9 (SIGKILL)";
  described.report.stderr_tail = tail;
  return described;
}

TEST_CASE("node record: before the first round it joins, and says what it waits for") {
  Lived node;
  node.Event(seconds(1), AgentStarted{}).Action(Duration{0}, JoinRound{});
  node.Event(Duration{0}, rendezvous::Waiting{"1 of 2 nodes", kBegin + seconds(61)});
  const NodeView view = node.Node(seconds(10));
  CHECK(view.id == "id-b");
  CHECK(view.host == "b");
  CHECK(view.node_rank == -1);
  CHECK(view.state == "joining");
  CHECK(view.up_s == 11);
  CHECK(view.waiting_for == "1 of 2 nodes");
  CHECK(view.waiting_left_s == 50);
  CHECK(view.ranks.empty());
  const JobView job = node.Job();
  CHECK(job.state == "forming");
  CHECK(job.round == 0);
  CHECK(job.rounds.empty());
  CHECK(job.min_nodes == 2);
  CHECK(job.max_nodes == 3);
  CHECK(job.max_restarts == 5);
  CHECK(!node.record().has_rank_0());
}

TEST_CASE("node record: a node that hears the job's end while it joins forms nothing any more") {
  Lived node;
  node.Event(Duration{0}, AgentStarted{}).Action(Duration{0}, JoinRound{});
  node.Event(Duration{0}, rendezvous::Waiting{"1 of 2 nodes", kBegin + seconds(61)});
  node.Event(seconds(1), rendezvous::Concluded{{.exit_code = 121, .reason = "node b is lost"}});
  CHECK(node.Node().state == "stopping");
  CHECK(node.Job().state == "stopping");
  CHECK(node.Job().gone_nodes == "node b is lost");
  CHECK(node.Job().waiting_for == "");
  CHECK_FALSE(node.Job().waiting_left_s);
}

TEST_CASE("node record: a round's beginning is timed, and its workers are there") {
  Lived node;
  node.Event(Duration{0}, rendezvous::Waiting{"1 of 2 nodes", {}}).Round(1);
  const NodeView view = node.Node(seconds(5));
  CHECK(view.node_rank == 1);
  CHECK(view.state == "running");
  CHECK(view.waiting_for == "");
  REQUIRE(view.ranks.size() == 2);
  CHECK(view.ranks[0].rank == 2);
  CHECK(view.ranks[0].pid == 70);
  CHECK(view.ranks[0].state == "running");
  CHECK(view.ranks[0].up_s == doctest::Approx(5.1));
  CHECK(view.ranks[1].rank == 3);
  const JobView job = node.Job(true, seconds(5));
  CHECK(job.state == "running");
  CHECK(job.world_size == 4);
  CHECK(job.node_count == 2);
  REQUIRE(job.rounds.size() == 1);
  const RoundView& round = job.rounds[0];
  CHECK(round.round == 1);
  CHECK(round.reason == "");
  CHECK(!round.detect_s);
  CHECK(!round.stop_s);
  CHECK(round.rendezvous_s == doctest::Approx(2));
  CHECK(round.exec_s == doctest::Approx(0.3));
  CHECK(round.age_s == doctest::Approx(5.3));
}

TEST_CASE("node record: the way from a failure to the next round is timed part by part") {
  Lived node;
  node.Round(1);
  node.Event(seconds(60), node.End(0, 137));
  node.Action(milliseconds(250), StopWorkers{15, seconds(30)});
  CHECK(node.Node().state == "stopping");
  CHECK(node.Job().state == "stopping");
  node.Event(milliseconds(50), Described(1));
  node.Event(Duration{0}, node.End(1, 143, true));
  node.Event(milliseconds(1450), WorkersGone{});
  node.Round(2, 1);
  const JobView job = node.Job();
  CHECK(job.restart_count == 1);
  REQUIRE(job.rounds.size() == 2);
  const RoundView& round = job.rounds[1];
  CHECK(round.detect_s == doctest::Approx(60.25));  // End was made before the time passed
  CHECK(round.stop_s == doctest::Approx(1.5));
  CHECK(round.rendezvous_s == doctest::Approx(2));
  CHECK(round.reason == "rank 2 failed: killed by signal 9 (SIGKILL)");
}

TEST_CASE("node record: a round that another node ended has its reason, and no time of detection") {
  Lived node;
  node.Round(1);
  node.Event(seconds(60), rendezvous::Drained{ddprun::Round{1}, "node a left"});
  node.Action(Duration{0}, StopWorkers{15, seconds(30)});
  node.Event(seconds(1), node.End(0, 143, true)).Event(Duration{0}, WorkersGone{});
  node.Round(2);
  const RoundView round = node.Job().rounds[1];
  CHECK(round.reason == "node a left");
  CHECK(!round.detect_s);
  CHECK(round.stop_s == doctest::Approx(1));
  CHECK(!node.Job().first_fault);
}

TEST_CASE("node record: a round is over since its workers were stopped, until the next one") {
  Lived node;
  node.Round(1);
  CHECK(!node.Job().round_over_s);
  node.Event(seconds(20), rendezvous::Drained{ddprun::Round{1}, "node c is lost"});
  node.Action(Duration{0}, StopWorkers{15, seconds(30)});
  CHECK(node.Job(true, seconds(3)).round_over_s == doctest::Approx(3));
  node.Action(seconds(1), JoinRound{});
  CHECK(node.Job(true, seconds(3)).round_over_s == doctest::Approx(4));
  node.Round(2);
  CHECK(!node.Job().round_over_s);
}

TEST_CASE("node record: a worker that has ended says how, and lives no longer") {
  Lived node;
  node.Round(1);
  node.Event(seconds(60), node.End(0, 0));
  NodeView view = node.Node(seconds(100));
  CHECK(view.ranks[0].state == "ended");
  CHECK(view.ranks[0].end == "exit code 0");
  CHECK(view.ranks[0].up_s < 61);
  node.Action(Duration{0}, ReportSuccess{ddprun::Round{1}});
  CHECK(node.Node().state == "succeeded");
  CHECK(node.Job().state == "running");
  node.Action(Duration{0}, EndJob{});
  CHECK(node.Job().state == "ended");
}

TEST_CASE("node record: a worker that could not be started has lived for no time") {
  Lived node;
  node.Action(Duration{0}, JoinRound{});
  node.Action(Duration{0}, PrepareWorkers{Lived::AssignmentOf(1)});
  node.Event(Duration{0}, node.End(0, 127));
  REQUIRE(node.Node().ranks.size() == 1);
  CHECK(node.Node(seconds(9)).ranks[0].up_s == 0);
  CHECK(node.Node().ranks[0].pid == 70);
}

TEST_CASE("node record: the first fault is this node's until the job names one") {
  Lived node;
  node.Round(1);
  node.Event(seconds(1), Described(1, "a\x1b[31m\n" + std::string(3000, 'x') + "\nlast"));
  FailureDescribed second = Described(1);
  second.report.rank = 3;
  node.Event(seconds(1), second);
  JobView job = node.Job(true, seconds(4));
  REQUIRE(job.first_fault);
  CHECK(job.first_fault->rank == 2);
  CHECK(job.first_fault->round == 1);
  CHECK(job.first_fault->age_s == 5);
  CHECK(job.first_fault->last_lines.size() <= 2000);
  CHECK(job.first_fault->last_lines == Contains("\nlast"));
  CHECK(job.first_fault->last_lines != Contains("\x1b"));
  // What workers wrote is not for strangers, nor is how the program was called.
  CHECK(node.Job(false).first_fault->last_lines == "");
  CHECK(node.Job(false).program == "");
  CHECK(node.Job().program == "./train --secret");

  rendezvous::Verdict verdict{.exit_code = 3, .reason = "rank 0 failed"};
  verdict.first_failure = Described(1).report;
  verdict.first_failure->rank = 0;
  verdict.first_failure->host = "a";
  node.Event(seconds(1), rendezvous::Concluded{verdict});
  job = node.Job();
  CHECK(job.first_fault->rank == 0);
  CHECK(job.first_fault->host == "a");
}

TEST_CASE("node record: a round that a lost node has ended has no first fault") {
  Lived node;
  node.Round(1).Event(seconds(1), Described(1));
  node.Event(seconds(1), rendezvous::Drained{Round{1}, "rank 2 failed"});
  REQUIRE(node.Job().first_fault);
  rendezvous::Assignment next = Lived::AssignmentOf(2);
  next.restart_reason = "node b is lost\x1b";
  node.Action(seconds(1), PrepareWorkers{next});
  CHECK(!node.Job().first_fault);
  CHECK(node.Job().rounds.back().reason == "node b is lost\\x1b");
}

TEST_CASE("node record: a fault of a later round takes the place of an earlier one's") {
  Lived node;
  node.Round(1).Event(seconds(1), Described(1)).Round(2).Event(seconds(1), Described(2));
  CHECK(node.Job().first_fault->round == 2);
}

TEST_CASE("node record: a lost coordinator is what it waits for, until it is back") {
  Lived node;
  node.Event(Duration{0}, rendezvous::ContactMade{"b:29400", true});
  CHECK(node.Node().hosts_coordinator);
  node.Event(Duration{0}, rendezvous::ContactMade{"b:29400", false});
  CHECK_FALSE(node.Node().hosts_coordinator);
  node.Round(1).Event(seconds(1), rendezvous::ContactLost{.reason = "timed out"});
  CHECK(node.Node().waiting_for == "the coordinator at b:29400 is out of reach (timed out)");
  CHECK(node.Job().waiting_for == "the coordinator at b:29400 is out of reach (timed out)");
  node.Event(seconds(1), rendezvous::ContactRestored{});
  CHECK(node.Node().waiting_for == "");
}

TEST_CASE("node record: ranks that were asked to end are waited for while they run") {
  Lived node;
  node.Round(1).Action(seconds(2), AskToStop{"ddprun stop\x1b"});
  CHECK(node.Node().waiting_for == "waiting for ranks that are to save and end (ddprun stop\\x1b)");
  node.Action(seconds(1), StopWorkers{});
  CHECK(node.Node().waiting_for == "");
}

TEST_CASE(
    "node record: after a success it waits for what the workers left, as long as that may be") {
  Lived lived(seconds(60));
  lived.Round(1);
  lived.Event(seconds(1), lived.End(0, 0));
  lived.Event(seconds(1), lived.End(1, 0));
  lived.Action(Duration{0}, ReportSuccess{});
  CHECK(lived.Node().waiting_for == "");
  lived.Event(Duration{0}, rendezvous::Concluded{});
  const std::string wait = "all ranks have succeeded, waiting for what they left (--keep-children)";
  CHECK(lived.Node(seconds(10)).waiting_for == wait);
  CHECK(lived.Node(seconds(10)).waiting_left_s == 49);  // rank 1's end is dated a second earlier
  CHECK(lived.Job(true, seconds(10)).waiting_for == wait);
  CHECK(lived.Job(true, seconds(10)).waiting_left_s == 49);
  SUBCASE("until it ends them") { lived.Action(Duration{0}, StopWorkers{}); }
  SUBCASE("until it leaves") { lived.Action(Duration{0}, EndJob{}); }
  CHECK(lived.Node().waiting_for == "");
  CHECK(lived.Node().waiting_left_s == std::nullopt);
}

TEST_CASE("node record: what is left and may not go on is waited for without a time") {
  Lived lived;
  lived.Round(1);
  lived.Action(Duration{0}, ReportSuccess{});
  lived.Event(Duration{0}, rendezvous::Concluded{});
  CHECK(lived.Node().waiting_for == "all ranks have succeeded, waiting for what they left");
  CHECK(lived.Node().waiting_left_s == std::nullopt);
}

TEST_CASE("node record: the node of a coordinator that is gone is named until the next round") {
  Lived node;
  node.Round(1).Event(seconds(1), rendezvous::ContactLost{.reason = "closed"});
  CHECK(node.Node().gone_node == "");
  node.Event(seconds(1), rendezvous::ContactLost{.reason = "closed", .is_gone = true});
  CHECK(node.Node().gone_node == "node  is lost: the coordinator's process there is gone");
  node.Event(seconds(1), rendezvous::ContactRestored{});
  CHECK(node.Node().gone_node != "");
  node.Round(2);
  CHECK(node.Node().gone_node == "");
}

TEST_CASE("node record: a node that has ended the coordinator that it hosted is not lost by that") {
  Lived node;
  node.Event(Duration{0}, rendezvous::ContactMade{"b:29400", true});
  node.Round(1).Event(seconds(1), rendezvous::ContactLost{.reason = "closed", .is_gone = true});
  CHECK(node.Node().gone_node == "");
  CHECK(node.Node().waiting_for == "");
  node.Event(seconds(1), rendezvous::ContactLost{.reason = "etcd has not renewed its lease"});
  CHECK(node.Node().waiting_for ==
        "this node's coordinator at b:29400 has stopped (etcd has not renewed its lease)");
  node.Event(Duration{0}, rendezvous::ContactMade{"a:29400", false});
  node.Event(seconds(1), rendezvous::ContactLost{.reason = "closed", .is_gone = true});
  CHECK(node.Node().gone_node != "");
  CHECK(node.Node().waiting_for == "the coordinator at a:29400 is out of reach (closed)");
}

TEST_CASE("node record: of many rounds the newest are kept") {
  Lived node;
  for (uint64_t round = 1; round <= 50; ++round) node.Round(round);
  const JobView job = node.Job();
  REQUIRE(job.rounds.size() == NodeRecord::kMaxRounds);
  CHECK(job.rounds.front().round == 31);
  CHECK(job.rounds.back().round == 50);
}

}  // namespace
}  // namespace ddprun::launcher
