// What `ddprun bench dp-ddp` has found, as plain values. [pure]
#ifndef DDPRUN_BENCH_REPORT_H_
#define DDPRUN_BENCH_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::bench {

// One process with a thread for each replica, or a process for each rank.
enum class Way { kDataParallel, kDistributed };
const char* Name(Way way);      // "dp", "ddp": as the table and the JSON have it
const char* LongName(Way way);  // "DataParallel", "DistributedDataParallel"

// Both ways have trained this many steps when their losses are compared, and how far those may be
// apart, as a share: gradients are summed in another order.
inline constexpr int kLossSteps = 10;
inline constexpr double kLossTolerance = 1e-4;
// The halves of a row, or of a point of the sweep, may be so far apart, as a share: more is no
// noise of a quiet machine.
inline constexpr double kHalvesLimit = 0.10;
// Communication that computation does not hide, as a share of the step, should stay below this.
inline constexpr double kExposedLimit = 0.10;

// One way with one number of ranks. Times are medians over the steps.
struct Row {
  Way way = Way::kDistributed;
  int ranks = 1;
  int64_t steps = 0;
  double samples_per_second = 0;
  double step_ms = 0;
  double communication_ms = 0;         // while at least one transfer was under way
  double exposed_ms = 0;               // of it while nothing was computed
  uint64_t bytes_moved = 0;            // between devices in one step, all together
  std::vector<uint64_t> memory_bytes;  // by device: weights, gradients, momentum, activations, data
  double final_loss = 0;               // after kLossSteps
  double halves_apart = 0;             // how much longer the slower half's step was, as a share

  double exposed_share() const { return step_ms > 0 ? exposed_ms / step_ms : 0; }
};

// A piece of a step, in milliseconds since its beginning.
struct Span {
  std::string name;
  double begin_ms = 0;
  double end_ms = 0;
};

// One step on rank 0, or on device 0: of those measured the one whose length and exposed
// communication are nearest to the row's there.
struct Timeline {
  Way way = Way::kDistributed;
  int ranks = 1;
  int64_t step = 1;  // which of the row's, from 1
  double step_ms = 0;
  double exposed_ms = 0;
  double backward_end_ms = 0;    // a reduction before it is hidden, one behind it exposed
  std::vector<Span> phases;      // one after the other
  std::vector<Span> reductions;  // kDistributed: of the buckets
};

// A step with one value of bucket_cap_mb.
struct SweepPoint {
  double cap_mb = 0;
  std::vector<double> same_mb;  // smaller values that give the same buckets, ascending
  int buckets = 0;
  double step_ms = 0;
  double exposed_ms = 0;
  double halves_apart = 0;  // as a row's, of the turns before and behind the middle
};

struct Machine {
  int cores = 1;              // that this process may use
  int gpus = 0;               // that CUDA shows, one for each rank; 0: the ranks train on the cores
  double core_quota = 0;      // processor time that its cgroup may use, in cores; 0: no limit
  uint64_t memory_bytes = 0;  // free for new programs; 0: unknown
  double load = 0;            // of other programs, in the minute before the measurement

  const char* device() const { return gpus > 0 ? "cuda" : "cpu"; }
  // How many ranks can compute at the same time.
  double usable_devices() const;
};

struct Model {
  int64_t parameters = 0;
  int layers = 0;
  int global_batch = 0;
};

struct Report {
  Machine machine;
  Model model;
  std::vector<Row> rows;  // by way, then by ranks ascending from 1
  std::vector<Timeline> timelines;
  int sweep_ranks = 0;
  std::vector<SweepPoint> sweep;  // empty: with one rank there is nothing to choose
  std::string failure;            // what ended the measurements early; empty: nothing did
};

// How much longer the slower half is, as a share.
double Apart(double one_ms, double other_ms);
// Of these numbers, ascending, the largest above 1 that has a core, or a GPU, for each rank; else
// the smallest above 1. 0: there is none. Ranks that take turns wait for each other, whatever the
// buckets are, so this is what a time line and the sweep can tell most about.
int RanksWithCores(const std::vector<int>& ranks, const Machine& machine);
// Of the report's rows.
int ShownRanks(const Report& report);

const Row* FindRow(const Report& report, Way way, int ranks);
// How many times as fast as one rank of the same way; it should approach the number of ranks.
double Speedup(const Report& report, const Row& row);
// How much more than the least of the devices the fullest holds, as a share.
double MemoryImbalance(const Row& row);
// The largest cap whose step is at most 2 % longer than the shortest: less is noise, and fewer
// buckets are simpler. nullptr: there was no sweep.
const SweepPoint* RecommendedCap(const Report& report);
// Adds what one measurement has found. Of two rows of one way and number of ranks the faster stays,
// with its time line: what another program did meanwhile makes a row slower, never faster.
void Merge(Report found, Report& report);
// Empty where all rows have the loss of the first, within kLossTolerance; otherwise a sentence.
std::string LossDifference(const Report& report);

// Empty where the halves of each row and point of the sweep are within kHalvesLimit; otherwise a
// sentence: which numbers are uncertain, and by how much.
std::string Uncertainty(const Report& report);
// The values that a point stands for: "4 = 25".
std::string CapsText(const SweepPoint& point);

// The table, for a terminal.
std::string TableText(const Report& report);
// One sentence: what keeps DistributedDataParallel with the most ranks from being faster, or what
// ended the measurements early.
std::string Verdict(const Report& report);
// One sentence: how the two ways compare at ShownRanks(). Empty: there is nothing to compare.
std::string Comparison(const Report& report);
// In a line: "2 cores, 21.9 GiB of memory free".
std::string MachineText(const Machine& machine);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_REPORT_H_
