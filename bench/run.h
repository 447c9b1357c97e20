// Runs all measurements, each in processes of its own.
#ifndef DDPRUN_BENCH_RUN_H_
#define DDPRUN_BENCH_RUN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report.h"

namespace ddprun::bench {

struct RunOptions {
  std::vector<int> ranks = {1, 2, 4};  // ascending, each once, from 1; 1 is first
  double seconds = 3;  // for each row, in two halves that are apart; for the sweep twice that
  Machine machine;
};

// Whether this process is one of those that Run() has started: it executes the program anew, comes
// to the same call of Run() and ends in it. REQUIRES: before Run().
bool IsRank();

// Starts one measurement after the other by ddp::Spawn and collects what they find. `say` gets a
// line before each. Where a rank fails, which has said why on stderr, the rest is left out and
// Report::failure names it. Errors, before the first row is there: ResourceExhausted, the machine
// has too little memory; Aborted, a rank failed.
// REQUIRES: the process has one thread; every process comes here with the same options.
absl::StatusOr<Report> Run(const RunOptions& options,
                           const std::function<void(const std::string&)>& say);

// How much memory is free, and what the cgroup grants; `cores` is what the caller knows.
Machine ReadMachine(int cores);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_RUN_H_
