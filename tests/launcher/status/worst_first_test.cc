#include "launcher/status/worst_first.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/launcher/status/snapshots.h"

namespace ddprun::launcher {
namespace {

using testing::HungJob;
using testing::TrainingJob;

// The ranks' numbers, in order; those that stand out come before "|".
std::string OrderOf(const JobView& job) {
  std::string out;
  bool was_out = true;
  for (const RankPlace& place : WorstFirst(job)) {
    if (was_out && !place.stands_out) out += "| ";
    was_out = place.stands_out;
    out += std::to_string(job.nodes[place.node].ranks[place.index].rank) + " ";
  }
  return out;
}

TEST_CASE("worst first: the ranks of a healthy job are in order, and none stands out") {
  JobView job = TrainingJob(2, 4);
  job.nodes[1].ranks[2].step = 18241;               // one step ahead is nothing
  job.nodes[0].ranks[1].groups[0].waiting_s = 0.2;  // nor is a short wait
  job.nodes[0].ranks[3].self_s = 0.4;
  CHECK(OrderOf(job) == "| 0 1 2 3 4 5 6 7 ");
  CHECK(WorstFirst(JobView()).empty());
}

TEST_CASE("worst first: each reason has its weight") {
  JobView job = TrainingJob(2, 4);
  job.nodes[1].ranks[3].self_s = 0.9;
  CHECK(OrderOf(job) == "7 | 0 1 2 3 4 5 6 ");
  job.nodes[1].ranks[2].groups[0].waiting_s = 3;  // on operation 88124
  job.nodes[1].ranks[2].groups[0].called = 88124;
  job.nodes[1].ranks[1].groups[0].waiting_s = 5;
  job.nodes[1].ranks[1].groups[0].called = 88124;
  for (const int other : {0, 3})
    job.nodes[1].ranks[static_cast<size_t>(other)].groups[0].called = 88124;
  for (RankView& rank : job.nodes[0].ranks) rank.groups[0].called = 88124;
  CHECK(OrderOf(job) == "5 6 7 | 0 1 2 3 4 ");
  job.nodes[0].ranks[2].step = 18230;
  job.nodes[0].ranks[3].step = 18235;
  CHECK(OrderOf(job) == "2 3 5 6 7 | 0 1 4 ");
  job.nodes[1].ranks[0].groups[0].called = 88123;  // the others wait for it
  CHECK(OrderOf(job) == "4 2 3 5 6 7 | 0 1 ");
  job.nodes[0].ranks[1].end = "exit code 1";
  CHECK(OrderOf(job) == "1 4 2 3 5 6 7 | 0 ");
  job.nodes[1].problems = {{.kind = "gpu", .text = "x", .ranks = {6}}};
  job.problems = {{.kind = "hang", .text = "x", .ranks = {0}},
                  {.kind = "straggler", .text = "x", .ranks = {7, 0}}};
  CHECK(OrderOf(job) == "0 7 6 1 4 2 3 5 ");
}

TEST_CASE("worst first: the rank that the others wait for comes before them without a judge") {
  JobView job = HungJob();
  job.problems.clear();
  CHECK(OrderOf(job) == "2 0 1 3 ");
}

TEST_CASE(
    "worst first: a rank that ended well does not stand out, steps at the ends of the range do") {
  JobView job = TrainingJob(1, 2);
  job.nodes[0].ranks[0].end = "exit code 0";
  CHECK(OrderOf(job) == "| 0 1 ");
  job.nodes[0].ranks[0].step = std::numeric_limits<int64_t>::max();
  job.nodes[0].ranks[1].step = std::numeric_limits<int64_t>::min();
  job.nodes[0].ranks[1].self_s = std::numeric_limits<double>::quiet_NaN();
  CHECK(OrderOf(job) == "1 | 0 ");
}

TEST_CASE("worst first: a rank's main group is the one that hangs, else the busiest") {
  RankView rank;
  CHECK(MainGroup(rank) == nullptr);
  rank.groups = {{.key = 1, .name = "world", .quiet_s = 3},
                 {.key = 2, .name = "tp", .quiet_s = 0.1}};
  CHECK(MainGroup(rank)->name == "tp");
  rank.groups[0].waiting_s = 3;
  CHECK(MainGroup(rank)->name == "world");
}

}  // namespace
}  // namespace ddprun::launcher
