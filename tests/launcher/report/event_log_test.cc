#include "launcher/report/event_log.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/report/event_line.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"

namespace ddprun::launcher {
namespace {

using testing::Json;

constexpr int64_t kBegin = 1738324800123;  // 2025-01-31T12:00:00.123Z

JobRecord::Part TwoWorkers() {
  JobRecord::Part part{NodeId{"n1"}, "alpha", "./train.py"};
  part.config.workers_per_node = 2;
  part.config.run_id = "run7";
  part.config.nodes = {2, 3};
  part.config.max_restarts = 3;
  return part;
}

// A log whose clock goes on by a second with each thing that is noted.
struct Fixture {
  void Hear(const AgentEvent& event) { log.Note(event, now += 1000); }
  void Do(const AgentAction& action) { log.Note(action, now += 1000); }
  void Start(uint64_t round, int restart_count) {
    Do(JoinRound{});
    rendezvous::Assignment place;
    place.round.value = round;
    place.node_rank = 1;
    place.node_count = 2;
    place.first_rank = 2;
    place.world_size = 4;
    place.restart_count = restart_count;
    place.max_restarts = 3;
    Do(PrepareWorkers{place});
    log.NoteWorkerRuns(now);
    log.NoteWorkerRuns(now += 250);
  }
  void Exit(int local_rank, int code, bool was_told_to_stop = false) {
    Hear(WorkerEnd{.local_rank = local_rank,
                   .exit_code = code,
                   .was_told_to_stop = was_told_to_stop,
                   .message = "exit code " + std::to_string(code)});
  }
  Json Line(size_t index) const {
    REQUIRE(index < lines.size());
    const auto json = testing::ParseJson(lines[index]);
    REQUIRE_MESSAGE(json, lines[index]);
    return *json;
  }
  Json Last() const { return Line(lines.size() - 1); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < lines.size(); ++i) names.push_back(Line(i).get<std::string>("event"));
    return names;
  }

  int64_t now = kBegin - 1000;
  std::vector<std::string> lines;
  EventLog log{TwoWorkers(), [this](const EventHead& head, const JobEvent& event) {
                 lines.push_back(EventLine(head, event));
               }};
};

using Names = std::vector<std::string>;

TEST_CASE("events: a job's life is told in its order, each line with its number and its round") {
  Fixture job;
  job.Hear(AgentStarted{});
  job.Hear(rendezvous::Waiting{.reason = "1 of 2 nodes"});
  job.Start(1, 0);
  job.log.NoteFirstStep(job.now += 2000, 0.75);
  job.Exit(0, 0);
  job.Exit(1, 0);
  job.Hear(WorkersGone{});
  job.Hear(rendezvous::Concluded{{.exit_code = 0, .reason = "all ranks exited 0"}});
  job.log.NoteEffectiveShare(0.75);
  job.Do(EndJob{0, ExitOwner::kNobody, "all ranks exited 0"});
  CHECK(job.Names() == Names{"job_start", "waiting", "round_start", "workers_started", "first_step",
                             "round_end", "job_end"});
  for (size_t i = 0; i < job.lines.size(); ++i) {
    const Json line = job.Line(i);
    CHECK(job.lines[i] != Contains("\n"));
    CHECK(line.get<uint64_t>("number") == i + 1);
    CHECK(line.get<uint64_t>("round") == (i < 2 ? 0 : 1));
    CHECK(line.get<std::string>("run_id") == "run7");
    CHECK(line.get<std::string>("node") == "alpha");
  }
  CHECK(job.Line(0).get<std::string>("time") == "2025-01-31T12:00:00.123Z");
  CHECK(job.Line(0).get<int>("max_nodes") == 3);
  CHECK(job.Line(2).get<double>("rendezvous_s") == 1);
  CHECK(job.Line(2).get<int>("world_size") == 4);
  CHECK(job.Line(3).get<double>("start_s") == 0.25);
  CHECK(job.Line(4).get<double>("first_step_s") == 1.5);
  CHECK(job.Line(5).get<int>("succeeded") == 2);
  CHECK(job.Line(5).get<std::string>("reason") == "all workers of this node succeeded");
  CHECK(job.Last().get<std::string>("outcome") == "succeeded");
  CHECK(job.Last().get<std::string>("exit_code_of") == "null");
  CHECK(job.Last().get<double>("effective_share") == 0.75);
}

TEST_CASE("events: a failure ends its round, and the next begins with why it was restarted") {
  Fixture job;
  job.Start(1, 0);
  job.Exit(1, 7);
  FailureDescribed described;
  described.report.rank = 3;
  described.report.exit_code = 7;
  described.report.message = "exit code 7";
  described.report.error = rendezvous::WorkerError{.message = "ValueError: boom"};
  job.Hear(described);
  job.Exit(0, 143, true);
  job.Hear(WorkersGone{});
  // The coordinator's word may come when all is over here.
  job.Hear(rendezvous::Drained{Round{1}, "rank 3 failed on alpha"});
  job.Start(2, 1);
  CHECK(job.Names() == Names{"round_start", "workers_started", "failure", "round_end", "restart",
                             "round_start", "workers_started"});
  CHECK(job.Line(2).get<std::string>("error") == "ValueError: boom");
  CHECK(job.Line(2).get<std::string>("signal") == "null");
  CHECK(job.Line(3).get<std::string>("reason") == "rank 3: exit code 7");
  CHECK(job.Line(3).get<int>("failed") == 1);
  CHECK(job.Line(3).get<int>("stopped") == 1);
  CHECK(job.Line(4).get<bool>("is_charged"));
  CHECK(job.Line(4).get<std::string>("reason") == "rank 3 failed on alpha");
  CHECK(job.Line(4).get<uint64_t>("round") == 2);
}

TEST_CASE("events: a round for other nodes is a restart that is not charged") {
  Fixture job;
  job.Start(1, 0);
  job.Hear(rendezvous::Drained{Round{1}, "node beta is lost"});
  job.Hear(rendezvous::Drained{Round{1}, "later"});
  job.Start(2, 0);  // given up before a worker was started: nobody said WorkersGone
  const Json end = job.Line(2), restart = job.Line(3);
  CHECK(end.get<std::string>("event") == "round_end");
  CHECK(end.get<std::string>("reason") == "node beta is lost");
  CHECK(restart.get<std::string>("event") == "restart");
  CHECK(!restart.get<bool>("is_charged"));
}

TEST_CASE("events: a restart tells what the next round knows of the cause") {
  Fixture job;
  job.Start(1, 0);
  job.Hear(rendezvous::Drained{Round{1}, "rank 0 failed"});
  rendezvous::Assignment next{.round = Round{2}};
  next.restart_reason = "node beta is lost";
  job.Do(PrepareWorkers{next});
  CHECK(job.Line(2).get<std::string>("reason") == "rank 0 failed");
  CHECK(job.Line(3).get<std::string>("reason") == "node beta is lost");
}

TEST_CASE("events: a wait is told when its reason changes, and anew for the next round") {
  Fixture job;
  for (const char* reason : {"a", "a", "b", "b"}) {
    job.Hear(rendezvous::Waiting{.reason = reason});
  }
  CHECK(job.Names() == Names{"waiting", "waiting"});
  job.Start(1, 0);
  job.Hear(rendezvous::Waiting{.reason = "b"});
  CHECK(job.Names().back() == "waiting");
}

TEST_CASE("events: a failure of another node is told with the verdict, one of this node is not") {
  Fixture job;
  job.Start(1, 0);
  rendezvous::Concluded concluded;
  concluded.verdict.reason = "rank 0 failed";
  concluded.verdict.first_failure.emplace();
  concluded.verdict.first_failure->node.value = "n1";
  job.Hear(concluded);
  CHECK(job.Names().back() == "workers_started");
  concluded.verdict.first_failure->node.value = "n0";
  concluded.verdict.first_failure->host = "beta";
  job.Hear(concluded);
  CHECK(job.Last().get<std::string>("event") == "failure");
  CHECK(job.Last().get<std::string>("host") == "beta");
  concluded.verdict.first_failure->node.value = "n1";
  concluded.verdict.first_failure->is_hang = true;  // nobody has described its end
  job.Hear(concluded);
  CHECK(job.Names().size() == 4);
  CHECK(job.Last().get<std::string>("exit_code") == "null");
  job.Do(EndJob{1, ExitOwner::kWorker, "rank 0 failed"});
  CHECK(job.Line(job.lines.size() - 2).get<std::string>("reason") == "rank 0 failed");
}

TEST_CASE("events: who asks to stop, and how, is told; nothing follows the job's end") {
  Fixture job;
  job.Start(1, 0);
  job.Hear(StopAsked{"SIGUSR1"});
  CHECK(job.Last().get<std::string>("how") == "after step");
  CHECK(job.Last().get<std::string>("why") == "SIGUSR1");
  job.Hear(StopOrder{.how = rendezvous::StopHow::kAfterStep, .reason = "ddprun stop on node a"});
  const size_t told = job.lines.size();
  job.Hear(rendezvous::StopRequested{"ddprun stop on node a"});  // comes back
  CHECK(job.lines.size() == told);
  job.Hear(rendezvous::StopRequested{"ddprun stop on node b"});
  CHECK(job.Last().get<std::string>("why") == "ddprun stop on node b");
  job.Hear(SignalReceived{.signal = 15});
  CHECK(job.Last().get<std::string>("how") == "at once");
  job.Hear(SignalReceived{.signal = 15, .is_again = true});
  CHECK(job.Last().get<std::string>("how") == "at once");
  job.Hear(SignalReceived{.signal = 15, .is_kill = true});
  CHECK(job.Last().get<std::string>("how") == "kill");
  job.Hear(WorkersGone{});
  CHECK(job.Last().get<std::string>("reason") == "stopped by SIGTERM");
  job.Do(EndJob{143, ExitOwner::kSignal, "stopped by SIGTERM"});
  CHECK(job.Last().get<int>("exit_code") == 143);
  CHECK(job.Last().get<std::string>("effective_share") == "null");
  const size_t count = job.lines.size();
  job.Hear(SignalReceived{.signal = 15});
  job.log.NoteProblems({{.kind = "hang"}}, job.now);
  CHECK(job.lines.size() == count);
}

TEST_CASE("events: a problem is told when it begins and when it is over") {
  Fixture job;
  const Problem hang{.kind = "hang", .text = "rank 1 waits", .ranks = {1}, .since_s = 31};
  const Problem disk{.kind = "disk", .text = "full", .ranks = {}, .node = "beta"};
  job.log.NoteProblems({hang}, 101000);
  Problem longer = hang;
  longer.since_s = 40;
  longer.ranks = {1, 2};
  job.log.NoteProblems({longer, disk}, 102000);
  job.log.NoteProblems({disk}, 104500);
  CHECK(job.Names() == Names{"hang", "problem", "problem_end"});
  CHECK(job.Line(0).get<double>("since_s") == 31);
  CHECK(job.Line(0).get<std::string>("host") == "null");
  CHECK(job.Line(0).get_child("ranks").size() == 1);
  CHECK(job.Line(1).get<std::string>("kind") == "disk");
  CHECK(job.Line(1).get<std::string>("host") == "beta");
  CHECK(job.Line(2).get<std::string>("kind") == "hang");
  CHECK(job.Line(2).get<double>("lasted_s") == 34.5);
  job.log.NoteProblems({disk, {.kind = "straggler", .text = "rank 0 is slow"}}, 105000);
  CHECK(job.Names().back() == "straggler");
}

TEST_CASE("events: a line stays one line of UTF-8, and short") {
  const EventHead head{.unix_ms = kBegin, .run_id = "a\nb\xff\"", .node = "alpha"};
  const std::string odd = EventLine(head, WaitingEvent{"x\r\n\xff" + std::string(100000, 'y')});
  CHECK(odd != Contains("\n"));
  CHECK(odd.size() < 6000);
  const auto json = testing::ParseJson(odd);
  REQUIRE(json);
  CHECK(json->get<std::string>("run_id") == "a\nb\xef\xbf\xbd\"");
  Problem problem{.kind = "hang", .text = "all"};
  for (int rank = 0; rank < 100000; ++rank) problem.ranks.push_back(rank);
  CHECK(EventLine(head, ProblemEvent{problem}).size() < 10000);
}

}  // namespace
}  // namespace ddprun::launcher
