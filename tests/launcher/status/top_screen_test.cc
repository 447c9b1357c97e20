#include "launcher/status/top_screen.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/status/status_words.h"
#include "tests/launcher/status/snapshots.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using testing::FullJob;
using testing::HungJob;
using testing::TrainingJob;

const SpeedHistory& History() {
  static const SpeedHistory history{"samples/s", {64, 128, std::nan(""), 250, 256}};
  return history;
}

std::string Screen(const JobView& job, int columns, int rows) {
  return absl::StrJoin(TopScreen(job, History(), {.columns = columns, .rows = rows}), "\n") + "\n";
}

void CheckFits(const JobView& job, int columns, int rows) {
  for (const bool allows_colours : {false, true}) {
    const std::vector<std::string> lines = TopScreen(
        job, History(), {.columns = columns, .rows = rows, .allows_colours = allows_colours});
    CHECK(lines.size() == static_cast<size_t>(rows));
    for (const std::string& line : lines) {
      const std::string plain = absl::StrReplaceAll(
          line, {{"\x1b[31m", ""}, {"\x1b[32m", ""}, {"\x1b[33m", ""}, {"\x1b[0m", ""}});
      CHECK_MESSAGE(ColumnsOf(plain) <= columns, line);
      CHECK_MESSAGE(plain.find_first_of("\x1b\r\n\t") == std::string::npos, line);
    }
  }
}

TEST_CASE("top screen: the smallest terminal has the sentence, the problem and the worst rank") {
  CHECK(Screen(HungJob(), 20, 5) == R"(hung: round 1, st...
hang: ranks 0-1, ...
rank    step   age
   2  18,240  42 s
q quit
)");
}

TEST_CASE("top screen: with more room there are the curve, all ranks and how the round began") {
  CHECK(Screen(HungJob(), 70, 12) == R"(hung: round 1, step 18,240 for 42 s
hang: ranks 0-1, 3 wait in all-reduce #88124 for 42 s; rank 2 has n...
256 samples/s ▃▅ ██
rank  state      step   age  collective                    self    GPU
   2  running  18,240  42 s  #88123                      350 ms    0 %
   0  running  18,240  42 s  all-reduce #88124 for 42 s  350 ms  100 %
   1  running  18,240  42 s  all-reduce #88124 for 42 s  350 ms  100 %
   3  running  18,240  42 s  all-reduce #88124 for 42 s  350 ms  100 %
start of round 1: rendezvous 80 ms, exec 40 ms, first step 3.2 s


q quit
)");
}

TEST_CASE("top screen: of 1,024 ranks as many are shown as fit, the others are counted") {
  JobView job = TrainingJob(128, 8);
  job.nodes[77].ranks[3].self_s = 0.9;
  job.nodes[77].age_s = 12;
  CHECK(Screen(job, 80, 10) == R"(running: round 1, 128 of 128 nodes, step 18,240, 256 samples/s
rank  node                      state      step     age  collective    self  CPU
 619  host-77 (as of 12 s ago)  running  18,240  400 ms  #88123      900 ms  1.0
   0  host-0                    running  18,240  400 ms  #88123      350 ms  1.0
   1  host-0                    running  18,240  400 ms  #88123      350 ms  1.0
   2  host-0                    running  18,240  400 ms  #88123      350 ms  1.0
   3  host-0                    running  18,240  400 ms  #88123      350 ms  1.0
   4  host-0                    running  18,240  400 ms  #88123      350 ms  1.0
and 1,018 ranks more
q quit
)");
}

TEST_CASE("top screen: many problems leave room for ranks and are counted") {
  JobView job = HungJob();
  job.problems.resize(50, {.kind = "gpu", .text = "Xid 79", .ranks = {}});
  CHECK(Screen(job, 60, 14) == R"(hung: round 1, step 18,240 for 42 s
hang: ranks 0-1, 3 wait in all-reduce #88124 for 42 s; ra...
gpu: Xid 79
and 48 problems more
256 samples/s ▃▅ ██
rank  state      step   age  collective                  CPU
   2  running  18,240  42 s  #88123                      0.0
   0  running  18,240  42 s  all-reduce #88124 for 42 s  1.0
   1  running  18,240  42 s  all-reduce #88124 for 42 s  1.0
   3  running  18,240  42 s  all-reduce #88124 for 42 s  1.0
start of round 1: rendezvous 80 ms, exec 40 ms, first ste...


q quit
)");
}

TEST_CASE("top screen: a job that forms and one of which nothing is known") {
  JobView job;
  job.sentence = "forming: 1 of 2 nodes";
  job.waiting_line = "waits for 1 node more";
  job.nodes.resize(1);
  job.nodes[0].host = "host-0";
  job.nodes[0].state = "joining";
  job.silent_nodes = {"host-1"};
  CHECK(Screen(job, 40, 6) ==
        "forming: 1 of 2 nodes\nwaits for 1 node more\nno answer from host-1\nhost-0: joining\n\n"
        "q quit\n");
  CHECK(Screen(JobView(), 40, 3) == "unknown\n\nq quit\n");
  CHECK(TopScreen(JobView(), {}, {.columns = 20, .rows = 12})[1].empty());
}

TEST_CASE("top screen: the curve starts at zero, shows the newest that fit, and knows ASCII") {
  const auto curve = [](std::vector<double> values, TopOptions options) {
    options.rows = 24;
    return TopScreen(TrainingJob(1, 1), {"steps/s", std::move(values)}, options)[1];
  };
  CHECK(curve({0, 1, 2, 3, 4}, {}) == "4.0 steps/s ▁▃▅▇█");
  CHECK(curve({99, 100, 101}, {}) == "101 steps/s ███");
  CHECK(curve({0, 0}, {}) == "0.0 steps/s ▁▁");
  CHECK(curve({1, 2, 3, 4, 4, 2}, {.columns = 16}) == "2.0 steps/s ▇██▅");
  CHECK(curve({1, -1, 4}, {.is_utf8 = false}) == "4.0 steps/s : #");
  CHECK(curve({}, {}).starts_with("rank"));
}

TEST_CASE("top screen: it fits every terminal, whatever the texts hold") {
  const std::string evil = "\x1b[2J\x07\n\r\t\xff 漢字🚀\xe2\x80\xae" + std::string(10'000, 'x');
  JobView job = FullJob();
  job.sentence = job.waiting_line = job.silent_nodes[0] = job.problems[0].text = evil;
  job.first_fault->last_lines = evil;
  for (NodeView& node : job.nodes) {
    node.host = node.state = node.waiting_for = evil;
    for (RankView& rank : node.ranks) rank.state = rank.end = rank.last_line = evil;
  }
  for (const int columns : {2, 20, 33, 80, 200}) {
    for (const int rows : {1, 2, 3, 4, 5, 6, 9, 12, 24, 60}) {
      CheckFits(job, columns, rows);
      CheckFits(HungJob(), columns, rows);
    }
  }
  CheckFits(TrainingJob(128, 8), 20, 5);
  CHECK(TopScreen(job, History(), {.columns = -1, .rows = -1}).size() == 1);
}

TEST_CASE("top screen: last lines are shown only where they may be") {
  CHECK(Screen(FullJob(), 100, 30) == Contains("Traceback: boom"));
  const std::string without = absl::StrJoin(
      TopScreen(FullJob(), History(), {.columns = 100, .rows = 30, .shows_last_lines = false}),
      "\n");
  CHECK(without != Contains("boom"));
  CHECK(without != Contains("loss"));
}

}  // namespace
}  // namespace ddprun::launcher
