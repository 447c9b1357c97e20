#include "tests/bench/example_report.h"

namespace ddprun::bench {
namespace {

constexpr uint64_t kMb = 1 << 20;

Row MakeRow(Way way, int ranks, double step_ms, double communication_ms, double exposed_ms) {
  Row row{.way = way,
          .ranks = ranks,
          .steps = 100,
          .samples_per_second = 128 * 1000 / step_ms,
          .step_ms = step_ms,
          .communication_ms = communication_ms,
          .exposed_ms = exposed_ms,
          .bytes_moved = static_cast<uint64_t>(ranks - 1) * 8 * kMb,
          .memory_bytes = std::vector<uint64_t>(ranks, 12 * kMb),
          .final_loss = 2.25};
  if (way == Way::kDataParallel) row.memory_bytes[0] = 15 * kMb;
  return row;
}

}  // namespace

Report ExampleReport() {
  const Way dp = Way::kDataParallel, ddp = Way::kDistributed;
  Report report{.machine = {.cores = 4, .memory_bytes = 8192 * kMb},
                .model = {.parameters = 1000000, .layers = 8, .global_batch = 128}};
  report.rows = {MakeRow(dp, 1, 40, 0, 0),  MakeRow(dp, 2, 25, 5, 5),  MakeRow(dp, 4, 20, 8, 8),
                 MakeRow(ddp, 1, 40, 0, 0), MakeRow(ddp, 2, 21, 2, 1), MakeRow(ddp, 4, 11, 3, 0.5)};
  report.timelines = {
      {.way = dp,
       .ranks = 4,
       .step = 17,
       .step_ms = 20,
       .exposed_ms = 8,
       .backward_end_ms = 15,
       .phases = {{"replicate", 0, 4},
                  {"forward", 4, 8},
                  {"gather", 8, 8.5},
                  {"backward", 8.5, 15},
                  {"reduce", 15, 19},
                  {"update", 19, 20}}},
      {.way = ddp,
       .ranks = 4,
       .step = 23,
       .step_ms = 11,
       .exposed_ms = 0.5,
       .backward_end_ms = 9.5,
       .phases = {{"forward", 0, 4}, {"backward", 4, 9.5}, {"wait", 9.5, 10}, {"update", 10, 11}},
       .reductions = {{"bucket 1", 5, 6}, {"bucket 2", 9, 10}}}};
  report.sweep_ranks = 4;
  report.sweep = {
      {0.25, {}, 8, 12, 0.3}, {1, {}, 4, 11, 0.5}, {4, {}, 2, 11.2, 0.8}, {25, {}, 1, 13, 2}};
  return report;
}

Row& RowOf(Report& report, Way way, int ranks) {
  return const_cast<Row&>(*FindRow(report, way, ranks));
}

}  // namespace ddprun::bench
