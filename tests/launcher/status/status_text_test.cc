#include "launcher/status/status_text.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/status/status_words.h"
#include "tests/launcher/status/snapshots.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using testing::FullJob;
using testing::HungJob;
using testing::TrainingJob;

constexpr int kRanksOfLargeJob = 1024;

JobView LargeJob() {
  JobView job = TrainingJob(kRanksOfLargeJob / 8, 8);
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) rank.self_s = 0.3 + rank.rank % 4 * 0.01;
  }
  return job;
}

// Whatever the job: lines of at most `columns`, nothing that moves a cursor.
void CheckFits(const JobView& job, int columns) {
  const std::string text = StatusText(job, {.columns = columns});
  CHECK(text.ends_with('\n'));
  CHECK(text.find_first_of("\x1b\r\t") == std::string::npos);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    CHECK_MESSAGE(ColumnsOf(line) <= columns, line);
  }
}

TEST_CASE("status text: a healthy job of 4 ranks on one node") {
  CHECK(StatusText(TrainingJob(1, 4), {}) ==
        R"(running: round 1, 1 of 1 nodes, step 18,240, 256 samples/s
rank  state      step     age  collective    self  CPU   GPU   memory  phase  last line
   0  running  18,240  400 ms  #88123      350 ms  1.0  93 %  1.2 GiB  train  epoch 3: loss 0.21
   1  running  18,240  400 ms  #88123      350 ms  1.0  93 %  1.2 GiB  train  epoch 3: loss 0.21
   2  running  18,240  400 ms  #88123      350 ms  1.0  93 %  1.2 GiB  train  epoch 3: loss 0.21
   3  running  18,240  400 ms  #88123      350 ms  1.0  93 %  1.2 GiB  train  epoch 3: loss 0.21
start of round 1: rendezvous 80 ms, exec 40 ms, first step 3.2 s
)");
}

TEST_CASE("status text: a rank that hangs the others stands first") {
  CHECK(StatusText(HungJob(), {}) ==
        R"(hung: round 1, step 18,240 for 42 s
hang: ranks 0-1, 3 wait in all-reduce #88124 for 42 s; rank 2 has not come
rank  state      step   age  collective                    self  CPU    GPU  last line
   2  running  18,240  42 s  #88123                      350 ms  0.0    0 %  loading shard 17
   0  running  18,240  42 s  all-reduce #88124 for 42 s  350 ms  1.0  100 %  epoch 3: loss 0.21
   1  running  18,240  42 s  all-reduce #88124 for 42 s  350 ms  1.0  100 %  epoch 3: loss 0.21
   3  running  18,240  42 s  all-reduce #88124 for 42 s  350 ms  1.0  100 %  epoch 3: loss 0.21
start of round 1: rendezvous 80 ms, exec 40 ms, first step 3.2 s
)");
}

TEST_CASE("status text: a rank that a signal holds is stopped") {
  JobView job = TrainingJob(1, 2);
  job.nodes[0].ranks[1].wait = "do_signal_stop";
  CHECK(StatusText(job, {}) == Contains("\n   1  stopped  18,240 "));
  CHECK(StatusText(job, {}) == Contains("\n   0  running  18,240 "));
}

TEST_CASE("status text: a silent node is named, an old view has its age, the unknown is a dash") {
  JobView job = TrainingJob(2, 2);
  job.silent_nodes = {"host-1"};
  job.waiting_line = "waits for host-1";
  job.nodes[1].age_s = 12.3;
  job.nodes[1].waiting_for = "the coordinator does not answer";
  job.nodes[1].waiting_left_s = 28.2;
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      rank.groups.clear();
      rank.last_line.clear();
      rank.gpu.reset();
    }
  }
  job.nodes[0].ranks[1].step.reset();
  job.nodes[0].ranks[1].memory.reset();
  CHECK(StatusText(job, {}) == R"(running: round 1, 2 of 2 nodes, step 18,240, 256 samples/s
waits for host-1
no answer from host-1
rank  state      step     age    self  CPU   memory  phase
host-0
   0  running  18,240  400 ms  350 ms  1.0  1.2 GiB  train
   1  running       -       -  350 ms  1.0        -  train
host-1 (as of 12 s ago): the coordinator does not answer (28 s left)
   2  running  18,240  400 ms  350 ms  1.0  1.2 GiB  train
   3  running  18,240  400 ms  350 ms  1.0  1.2 GiB  train
start of round 1: rendezvous 80 ms, exec 40 ms, first step 3.2 s
)");
}

TEST_CASE("status text: a healthy job of 1,024 ranks is its spread and a few of its nodes") {
  CHECK(StatusText(LargeJob(), {}) ==
        R"(running: round 1, 128 of 128 nodes, step 18,240, 256 samples/s
self time per step:
  300 ms to 306 ms  256 ranks  ##############################
  306 ms to 312 ms  256 ranks  ##############################
  318 ms to 324 ms  256 ranks  ##############################
  324 ms to 330 ms  256 ranks  ##############################
node    state    ranks        step   GPU
host-0  running  8 running  18,240  93 %
host-1  running  8 running  18,240  93 %
host-2  running  8 running  18,240  93 %
and 125 nodes more, all like these
start of round 1: rendezvous 80 ms, exec 40 ms, first step 3.2 s
)");
}

TEST_CASE("status text: of 1,024 ranks those that stand out are shown, and their nodes") {
  JobView job = LargeJob();
  job.nodes[77].ranks[3].self_s = 0.9;
  job.nodes[5].age_s = 12;
  job.nodes[9].ranks[0].step = 18200;
  job.nodes[9].oom_kills = 1;
  CHECK(StatusText(job, {}) == R"(running: round 1, 128 of 128 nodes, step 18,240, 256 samples/s
rank  node     state      step     age  collective    self  CPU   GPU  phase  last line
  72  host-9   running  18,200  400 ms  #88123      300 ms  1.0  93 %  train  epoch 3: loss 0.21
 619  host-77  running  18,240  400 ms  #88123      900 ms  1.0  93 %  train  epoch 3: loss 0.21
steps:
  18,200-18,208  1 rank  #
  18,236-18,240  1,023 ranks  ##############################
node                     state    ranks               step   GPU  note
host-5 (as of 12 s ago)  running  8 running         18,240  93 %
host-9                   running  8 running  18,200-18,240  93 %  out of memory: 1 kill
host-77                  running  8 running         18,240  93 %
host-0                   running  8 running         18,240  93 %
host-1                   running  8 running         18,240  93 %
host-2                   running  8 running         18,240  93 %
and 122 nodes more, all like the last
start of round 1: rendezvous 80 ms, exec 40 ms, first step 3.2 s
)");
}

TEST_CASE("status text: no more than 16 ranks, 20 nodes and 10 problems are shown of a large job") {
  JobView job = LargeJob();
  for (NodeView& node : job.nodes) {
    for (RankView& rank : node.ranks) {
      rank.groups[0].called = 88124;
      rank.groups[0].waiting_s = 42;
    }
  }
  job.problems.resize(30, {.kind = "no_progress", .text = "nothing moves", .ranks = {}});
  const std::string text = StatusText(job, {});
  CHECK(text == Contains("\nand 1,008 ranks more that stand out\n"));
  CHECK(text == Contains("\nand 108 nodes more, 108 of them unusual\n"));
  CHECK(text == Contains("\nno progress: nothing moves\nand 20 problems more\n"));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  CHECK(lines.size() < 65);
}

TEST_CASE("status text: a job that forms says what it waits for, node by node") {
  JobView job;
  job.state = "forming";
  job.sentence = "forming: 1 of 2 nodes";
  job.waiting_line = "waits for 1 node more, 4 min left";
  job.nodes.resize(1);
  job.nodes[0].host = "host-0";
  job.nodes[0].state = "joining";
  CHECK(StatusText(job, {}) ==
        "forming: 1 of 2 nodes\nwaits for 1 node more, 4 min left\nhost-0: joining\n");
}

TEST_CASE("status text: nothing known is one word") {
  CHECK(StatusText(JobView(), {}) == "unknown\n");
  JobView job;
  job.nodes.resize(1);
  job.nodes[0].ranks.resize(2);
  job.nodes[0].ranks[1].rank = 1;
  CHECK(StatusText(job, {}) == "unknown\nrank\n   0\n   1\n");
  for (const int columns : {1, 5, 20, 100}) CheckFits(job, columns);
}

TEST_CASE("status text: the first fault is told with its last lines, if these may be shown") {
  const std::string text = StatusText(FullJob(), {});
  CHECK(
      text ==
      Contains("start of round 1 (rank 3 failed): detect 350 ms, stop 1.2 s, rendezvous 80 ms, "));
  CHECK(
      text ==
      Contains(
          "first fault, in round 1, 3 min 5 s ago: rank 3 on host-1, killed by signal 9 (SIGKILL)\n"
          "  loading\n  Traceback: boom\n"));
  // The kills are told once, though job and node have them.
  CHECK(text == Contains("\noom: 2 kills\ntaken out: node host-8 is bad: GPU 3 is lost "
                         "(quarantine for 60 s more)\nno answer"));
  const std::string without = StatusText(FullJob(), {.shows_last_lines = false});
  CHECK(without != Contains("boom"));
  CHECK(without != Contains("loss"));
  CHECK(without != Contains("last line"));
  CHECK(without == Contains("(SIGKILL)\n"));
}

TEST_CASE("status text: colours mark states only, and change nothing else") {
  JobView job = HungJob();
  job.nodes[0].ranks[1].end = "exit code 1";
  job.nodes[0].ranks[1].state = "ended";
  const std::string text = StatusText(job, {.allows_colours = true});
  CHECK(text == Contains("   2  \x1b[33mrunning\x1b[0m  "));
  CHECK(text == Contains("   1  \x1b[31mexit code 1\x1b[0m  "));
  CHECK(text == Contains("   0  \x1b[32mrunning\x1b[0m  "));
  CHECK(absl::StrReplaceAll(
            text, {{"\x1b[31m", ""}, {"\x1b[32m", ""}, {"\x1b[33m", ""}, {"\x1b[0m", ""}}) ==
        StatusText(job, {}));
}

TEST_CASE("status text: hostile texts neither leave their line nor widen it") {
  const std::string evil =
      "\x1b[2J\x1b]0;owned\x07\n\r\t\xff 漢字🚀\xe2\x80\xae" + std::string(10'000, 'x');
  JobView job = FullJob();
  for (std::string* text :
       {&job.sentence, &job.waiting_line, &job.silent_nodes[0], &job.problems[0].text,
        &job.problems[0].kind, &job.rounds[0].reason, &job.first_fault->text,
        &job.first_fault->host, &job.first_fault->last_lines}) {
    *text = evil;
  }
  for (NodeView& node : job.nodes) {
    node.host = node.state = node.waiting_for = evil;
    for (RankView& rank : node.ranks) {
      rank.state = rank.end = rank.last_line = evil;
      for (GroupView& group : rank.groups) {
        group.op = group.name = evil;
        group.waiting_s = 5;
      }
    }
  }
  for (const int columns : {-1, 0}) CHECK(!StatusText(job, {.columns = columns}).empty());
  // A wide character needs two.
  for (const int columns : {2, 7, 20, 40, 100, 300}) CheckFits(job, columns);
  JobView large = LargeJob();
  for (NodeView& node : large.nodes) node.host = node.state = node.waiting_for = evil;
  for (const int columns : {2, 20, 100}) CheckFits(large, columns);
  CHECK(StatusText(job, {}).size() < 8000);
}

TEST_CASE("status text: any width is kept") {
  for (int columns = 1; columns < 130; ++columns) {
    CheckFits(HungJob(), columns);
    CheckFits(FullJob(), columns);
  }
}

}  // namespace
}  // namespace ddprun::launcher
