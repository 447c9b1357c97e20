// The table and the sentences.
#include <doctest/doctest.h>

#include <sstream>

#include "tests/bench/example_report.h"
#include "tests/support/contains.h"

namespace ddprun::bench {
namespace {

TEST_CASE("table: a row for each way and number of ranks, with a mark above the 10 % rule") {
  const std::string table = TableText(ExampleReport());
  CHECK(
      table ==
      Contains(
          "way  ranks  samples/s    speed-up  step ms  comm. ms  exposed %  moved MiB  memory MiB  "
          "imbalance\n"
          "dp       1       3200  1.00 of  1    40.00      0.00       0.0         0.0        15.0  "
          "    0.0 %\n"));
  CHECK(
      table ==
      Contains(
          "dp       4       6400  2.00 of  4    20.00      8.00      40.0!       24.0        15.0  "
          "   25.0 %\n"));
  CHECK(
      table ==
      Contains(
          "ddp      4      11636  3.64 of  4    11.00      3.00       4.5        24.0        12.0  "
          "    0.0 %\n"));
  CHECK(table ==
        Contains("\nbucket_cap_mb: 4 is recommended for 4 ranks here; step in ms by value: 0.25: "
                 "12.00, 1: 11.00, 4: 11.20, 25: 13.00\n"));
  Report same = ExampleReport();
  same.sweep = {{0.5, {0.25}, 8, 12, 0.3}, {25, {2, 4}, 2, 11, 1}};
  CHECK(TableText(same) ==
        Contains(
            "\nbucket_cap_mb: 25 is recommended for 4 ranks here; step in ms by value: 0.25 = 0.5: "
            "12.00, 2 = 4 = 25: 11.00 (values with = give the same buckets)\n"));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line) && line.rfind("bucket", 0) != 0;) {
    CHECK(line.size() <= 104);
  }
}

TEST_CASE("verdict: the limit is computation where scaling and communication are good") {
  CHECK(Verdict(ExampleReport()) ==
        "Computation limits, as it should: exposed communication is 4.5 % of the step, within the "
        "10 % that are good, and 4 ranks are 3.6 times as fast as one.");
}

TEST_CASE("verdict: more ranks than cores are the first thing that limits") {
  Report report = ExampleReport();
  report.machine.cores = 2;
  CHECK(Verdict(report) ==
        "The cores limit: 4 ranks share 2 cores, take turns, and reach 3.6 times one rank; 2 ranks "
        "with a core each reach 1.9 times (exposed communication is 4.8 % of the step, within the "
        "10 % that are good).");
  report.machine = {.cores = 64, .core_quota = 1.5};
  CHECK(
      Verdict(report) ==
      Contains(
          "The cores limit: 4 ranks share 1.5 cores, take turns, and reach 3.6 times one rank ("));
}

TEST_CASE("verdict: exposed communication above 10 % limits") {
  Report report = ExampleReport();
  RowOf(report, Way::kDistributed, 4).exposed_ms = 2.2;
  CHECK(
      Verdict(report) ==
      Contains("Communication limits: exposed communication is 20 % of the step, above the 10 %"));
}

TEST_CASE("verdict: bad scaling without much communication is due to what the ranks share") {
  Report report = ExampleReport();
  RowOf(report, Way::kDistributed, 4).samples_per_second = 5000;
  CHECK(Verdict(report) ==
        Contains("What the ranks share limits (memory bandwidth, caches, the clock): "));
  report.machine.load = 3;
  CHECK(Verdict(report) == Contains("the clock, the load was 3.0 before): "));
}

TEST_CASE("verdict: what ended the measurements early comes before all else") {
  Report report = ExampleReport();
  report.failure = "DataParallel with 2 replicas: rank 0 of 1 failed: exit code 1";
  CHECK(Verdict(report) ==
        "Not all was measured: DataParallel with 2 replicas: rank 0 of 1 failed: exit code 1. "
        "Rows that were measured only once may be far off.");
}

TEST_CASE("verdict: one rank alone is told as such, and there is nothing to compare") {
  Report report = ExampleReport();
  std::erase_if(report.rows, [](const Row& row) { return row.ranks > 1; });
  CHECK(Verdict(report) == Contains("One rank was measured"));
  CHECK(Comparison(report).empty());
}

TEST_CASE("comparison: both ways with a core for each rank, and what Python adds") {
  CHECK(
      Comparison(ExampleReport()) ==
      Contains("With 4 ranks DistributedDataParallel trains 1.82 times as many samples a second as "
               "DataParallel; exposed communication is "));
  CHECK(Comparison(ExampleReport()) == Contains(" of its step and 40 % of DataParallel's. "));
  CHECK(Comparison(ExampleReport()) ==
        Contains(", as its threads share Python's GIL, which C++ does not "));
  Report report = ExampleReport();
  report.machine.cores = 2;
  CHECK(Comparison(report) == Contains("With 2 ranks DistributedDataParallel trains 1.19 times"));
}

TEST_CASE("machine: cores, a quota that is less, memory, and what others do") {
  CHECK(MachineText({.cores = 1}) == "1 core");
  CHECK(MachineText({.cores = 16, .gpus = 1}) == "1 GPU, 16 cores");
  CHECK(MachineText({.cores = 8, .core_quota = 2.5, .memory_bytes = 3ull << 30, .load = 1}) ==
        "8 cores of which the cgroup grants the time of 2.5, 3.0 GiB of memory free, the load was "
        "1.0 before");
  CHECK(MachineText({.cores = 8, .core_quota = 16, .load = 0.1}) == "8 cores");
}

}  // namespace
}  // namespace ddprun::bench
