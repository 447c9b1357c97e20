#include "launcher/agent/agent_log.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <regex>
#include <thread>

#include "launcher/logs/logger.h"
#include "tests/launcher/logs/console_file.h"
#include "tests/support/contains.h"

namespace {
// What this thread has allocated so far.
thread_local int allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace ddprun::launcher {
namespace {

const AgentLog::Node kNode{.run_id = "job1", .id = "node-a", .workers = 2};

rendezvous::Assignment TestAssignment(uint64_t round) {
  rendezvous::Assignment assignment;
  assignment.epoch = Epoch{7};
  assignment.round = Round{round};
  assignment.node_rank = 1;
  assignment.node_count = 2;
  assignment.first_rank = 2;
  assignment.world_size = 4;
  assignment.master_addr = "a host name that is longer than a small string";
  assignment.master_port = 4000;
  return assignment;
}

// A round of two workers of which the second fails.
void LiveThrough(AgentLog& log) {
  log.Note(AgentEvent(AgentStarted{}));
  log.Note(AgentAction(JoinRound{}));
  log.Note(AgentEvent(rendezvous::ContactMade{"host:1 (10.0.0.1)", false}));
  log.Note(AgentEvent(rendezvous::Waiting{"1 of 2 nodes"}));
  log.Note(AgentEvent(rendezvous::Assigned{TestAssignment(3)}));
  log.Note(AgentAction(PrepareWorkers{TestAssignment(3)}));
  log.Note(AgentAction(StartWorkers{TestAssignment(3)}));
  log.Note(WorkerStarted{0, 71});
  log.Note(WorkerStarted{1, 72});
  log.Note(
      AgentEvent(WorkerEnd{.local_rank = 1, .pid = 72, .exit_code = 9, .message = "exit code 9"}));
  log.Note(AgentAction(StopWorkers{15, std::chrono::seconds(30)}));
  log.Note(AgentAction(Say{"a line of its own"}));
  log.Note(AgentEvent(WorkerEnd{.local_rank = 0, .pid = 71, .was_told_to_stop = true}));
  log.Note(AgentEvent(rendezvous::ContactLost{"Socket closed", true}));
  log.Note(AgentEvent(rendezvous::ContactRestored{}));
  log.Note(AgentEvent(rendezvous::Drained{Round{3}, "rank 3 failed"}));
  log.Note(AgentEvent(rendezvous::Concluded{{.exit_code = 9, .reason = "rank 3 failed"}}));
  log.Note(AgentAction(EndJob{9}));
}

// What is behind the level and the time of each line, one a line.
std::string Logged(LogLevel level, void (*live)(AgentLog&) = LiveThrough) {
  ConsoleFile console;
  {
    const auto logger = MakeLogger(console.router(), level);
    AgentLog log(*logger, kNode);
    live(log);
  }
  return std::regex_replace(console.Close(), std::regex("ddprun: ([a-z]+): [0-9:.]{12} "), "$1 ");
}

TEST_CASE("agent log: info is what an operator acts on, with run, round and rank") {
  const std::string store = "a host name that is longer than a small string";
  CHECK(Logged(LogLevel::kInfo) ==
        "info joining run=job1 node=node-a workers=2\n"
        "info coordinator reached run=job1 at='host:1 (10.0.0.1)'\n"
        "info waiting run=job1 reason='1 of 2 nodes'\n"
        "info assigned run=job1 round=3 epoch=7 ranks=2-3 world_size=4 node_rank=1 nodes=2 "
        "restart=0 store=" +
            store +
            ":4000\n"
            "info workers started run=job1 round=3 ranks=2-3 pids=71,72\n"
            "info worker ended run=job1 round=3 rank=3 pid=72 exit_code=9 cause='exit code 9'\n"
            "info stopping workers run=job1 round=3 signal=15 grace_ms=30000\n"
            "info coordinator lost run=job1 round=3 gone=yes reason='Socket closed'\n"
            "info coordinator back run=job1 round=3\n"
            "info draining run=job1 round=3 reason='rank 3 failed'\n"
            "info verdict run=job1 round=3 exit_code=9 reason='rank 3 failed'\n"
            "info ending run=job1 round=3 exit_code=9\n");
}

// Told anew with another deadline, by a coordinator reached anew, or after something else.
void WaitAgainAndAgain(AgentLog& log) {
  using rendezvous::Waiting;
  log.Note(AgentEvent(Waiting{"1 of 3 nodes"}));
  log.Note(AgentEvent(Waiting{"1 of 3 nodes", TimePoint(std::chrono::seconds(9))}));
  log.Note(AgentEvent(AgentTimePassed{}));
  log.Note(AgentEvent(Waiting{"1 of 3 nodes"}));
  log.Note(AgentEvent(Waiting{"2 of 3 nodes"}));
  log.Note(AgentEvent(Waiting{"2 of 3 nodes"}));
  log.Note(AgentEvent(Waiting{"1 of 3 nodes"}));
  log.Note(AgentEvent(rendezvous::ContactRestored{}));
  log.Note(AgentEvent(Waiting{"1 of 3 nodes"}));
}

TEST_CASE("agent log: a wait is logged when its reason changes, or when something lies between") {
  CHECK(Logged(LogLevel::kInfo, WaitAgainAndAgain) ==
        "info waiting run=job1 reason='1 of 3 nodes'\n"
        "info waiting run=job1 reason='2 of 3 nodes'\n"
        "info waiting run=job1 reason='1 of 3 nodes'\n"
        "info coordinator back run=job1\n"
        "info waiting run=job1 reason='1 of 3 nodes'\n");
}

TEST_CASE("agent log: debug has the rest, and no line twice") {
  const std::string text = Logged(LogLevel::kDebug);
  CHECK(text == Contains("debug starting workers run=job1 round=3 ranks=2-3\n"));
  CHECK(text == Contains("debug worker ended when told to run=job1 round=3 rank=2 pid=71"));
  CHECK(text == Contains("info workers started "));
  CHECK(Lines(text).size() == 12 + 4);
}

TEST_CASE("agent log: what is not logged costs no allocation") {
  ConsoleFile console;
  const auto logger = MakeLogger(console.router(), LogLevel::kWarn);
  AgentLog log(*logger, kNode);
  const AgentEvent waiting = rendezvous::Waiting{std::string(100, 'x')};
  const AgentEvent assigned = rendezvous::Assigned{TestAssignment(1)};
  const AgentEvent ended = WorkerEnd{.message = std::string(100, 'x')};
  const AgentAction start = PrepareWorkers{TestAssignment(1)};
  const int before = allocations;
  log.Note(waiting);
  log.Note(assigned);
  log.Note(start);
  log.Note(WorkerStarted{0, 71});
  log.Note(ended);
  CHECK_FALSE(log.LogStep());
  CHECK(allocations == before);
  CHECK(console.Close() == "");
}

TEST_CASE("agent log: gRPC's messages are debug, and nowhere else") {
  for (const LogLevel level : {LogLevel::kInfo, LogLevel::kDebug}) {
    ConsoleFile console;
    const auto logger = MakeLogger(console.router(), level);
    const AgentLog log(*logger, kNode);
    rendezvous::LogFromLibrary("grpc: broken");
    const std::string text = console.Close();
    const std::regex line("ddprun: debug: [0-9:.]{12} grpc: broken\n");
    const bool is_there = std::regex_match(text, line);
    CHECK((is_there || text.empty()));
    CHECK_MESSAGE(is_there == (level == LogLevel::kDebug), text);
  }
}

TEST_CASE("agent log: gRPC's threads may log while the agent, its logger and its console end") {
  std::atomic<bool> is_over{false};
  std::atomic<int> said{0};
  std::thread library([&] {
    while (!is_over) {
      rendezvous::LogFromLibrary("grpc: still here");
      ++said;
    }
  });
  for (int round = 0; round < 20; ++round) {
    ConsoleFile console;
    const auto logger = MakeLogger(console.router(), LogLevel::kDebug);
    {
      const AgentLog log(*logger, kNode);
      const int before = said;
      while (said < before + 2) std::this_thread::yield();  // the first may have begun before
    }
    CHECK(console.Close() == Contains("grpc: still here"));
  }
  is_over = true;
  library.join();
}

}  // namespace
}  // namespace ddprun::launcher
